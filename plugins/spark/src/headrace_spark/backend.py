"""The Spark backend: starts the query of a job and hands out its handle."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.interfaces.backend import Backend, JobHandle, RunOptions
from headrace.interfaces.settings import Settings
from headrace.plan.graph import Plan

from headrace_spark.settings import SparkSettings

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream
    from headrace.jobs.job import Job
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class SparkBackend(Backend):
    """Runs a job as one Structured Streaming query, in a Spark on this machine or on a cluster."""

    Settings: ClassVar[type[Settings]] = SparkSettings

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        from headrace_spark.handle import SparkHandle
        from headrace_spark.query import start_query

        settings = self.settings
        assert isinstance(settings, SparkSettings)
        return SparkHandle(plan, options, partial(start_query, plan, options, settings))

    @staticmethod
    def start_query(job: Job, session: SparkSession, **options: Any) -> StreamingQuery:
        """What ``job.to_spark(session, …)`` calls; see ``to_spark``."""
        return to_spark(job, session, **options)

    @staticmethod
    def to_dataframe(what: Job | Stream, session: SparkSession | None = None, **options: Any) -> DataFrame:
        """What ``job.to_dataframe(session, …)`` calls; see ``headrace_spark.frames``."""
        from headrace_spark.frames import to_dataframe

        return to_dataframe(what, session, **options)


def to_spark(job: Job, session: SparkSession, **options: Any) -> StreamingQuery:
    """Start a job in a session and return Spark's own handle of it, for users who work with Spark directly.

    ``options`` are those of ``job.start(backend="spark", …)``; without ``until="end"`` the query runs until it is
    stopped. Stopping it interrupts the current micro-batch; the next start from the same checkpoint runs that batch again. Raises
    JobError as ``start`` does.
    """
    from headrace.jobs.job import options_of

    from headrace_spark.query import start_query

    given = {"until": None, **options, "session": session}
    run_options, settings = options_of(SparkBackend, "spark", given)
    started = start_query(job.plan(run_options), run_options, settings)
    threading.Thread(target=started.clean_up_at_end, name=f"headrace {job.name}", daemon=True).start()
    return started.query
