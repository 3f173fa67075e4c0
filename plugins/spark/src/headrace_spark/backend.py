"""The Spark backend: starts the query of a job and hands out its handle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import JobError
from headrace.interfaces.backend import Backend, JobHandle, RunOptions
from headrace.interfaces.settings import Settings
from headrace.plan.graph import Plan

from headrace_spark.checkpoints.ownership import lock_of
from headrace_spark.processes.settings import SparkSettings

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream
    from headrace.jobs.job import Job
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace_spark.queries.query import StartedQuery


class SparkBackend(Backend):
    """Runs a job as one Structured Streaming query, in a Spark on this machine or on a cluster."""

    Settings: ClassVar[type[Settings]] = SparkSettings

    def make_ready(self, plan: Plan, options: RunOptions) -> None:
        """Import what drives a query. Operators are opened in workers alone: they may need what only those have."""
        import headrace_spark.queries.handle  # noqa: F401

        _starter_of(plan)

    def load_ahead(self, plan: Plan, options: RunOptions) -> None:
        """Start headrace's own Spark, where the job is going to run in it. Raises JobError as the start would.

        The state of shards is loaded by workers, in the first micro-batch.
        """
        from headrace_spark.processes.session import start_ahead

        assert isinstance(self.settings, SparkSettings)
        start_ahead(self.settings)

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        from headrace_spark.queries.handle import SparkHandle

        settings = self.settings
        assert isinstance(settings, SparkSettings)
        return SparkHandle(plan, options, partial(_starter_of(plan), plan, options, settings))

    @staticmethod
    def take_from_lost_process(checkpoint: str) -> None:
        """Remove the lock, which a paused Java keeps. The claim of the next run keeps it from planning, completing and storing anything."""
        if "://" not in checkpoint:
            lock_of(checkpoint).unlink(missing_ok=True)

    @staticmethod
    def start_query(job: Job, session: SparkSession, **options: Any) -> StreamingQuery:
        """What ``job.to_spark(session, …)`` calls; see ``to_spark``."""
        return to_spark(job, session, **options)

    @staticmethod
    def to_dataframe(what: Job | Stream, session: SparkSession | None = None, **options: Any) -> DataFrame:
        """What ``job.to_dataframe(session, …)`` calls; see ``headrace_spark.queries.frames``."""
        from headrace_spark.queries.frames import to_dataframe

        return to_dataframe(what, session, **options)


def to_spark(job: Job, session: SparkSession, **options: Any) -> StreamingQuery:
    """Start a job in a session and return Spark's own handle of it, for users who work with Spark directly.

    ``options`` are those of ``job.start(backend="spark", …)``; without ``until="end"`` the query runs until it is
    stopped. Stopping it interrupts the current micro-batch; the next start from the same checkpoint runs that batch again. Raises
    JobError as ``start`` does.
    """
    from headrace.jobs.job import options_of
    from pyspark.sql.streaming.query import StreamingQuery

    given = {"until": None, **options, "session": session}
    run_options, settings = options_of(SparkBackend, "spark", given)
    plan = job.plan(run_options)
    started = _starter_of(plan)(plan, run_options, settings)
    if not isinstance(started.query, StreamingQuery):
        raise JobError(
            "the job reads batch DataFrames, so it does not have a StreamingQuery",
            job=job.name,
            hint="use job.run(backend='spark')",
        )
    threading.Thread(target=started.clean_up_at_end, name=f"headrace {job.name}", daemon=True).start()
    return started.query


def _starter_of(plan: Plan) -> Callable[..., StartedQuery]:
    """Return what starts the query of a plan: over DataFrames, or over sources of headrace."""
    from headrace_spark.dataframes.frame_source import frames_of

    if frames_of(plan):
        from headrace_spark.queries.frame_query import start_frame_query

        return start_frame_query
    from headrace_spark.queries.query import start_query

    return start_query
