"""The figures of a job together with Spark's own: ``progress`` and ``on_progress``, for queries and for handles."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.interfaces.backend import event_time
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.transit.totals import KEY

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The figures of a run up to and with micro-batch ``batch_id`` (-1: none is completed yet). They are sums, not rates."""

    batch_id: int
    #: Per source.
    records_read: Mapping[str, int]
    #: Per sink, without those for dead letters.
    rows_written: Mapping[str, int]
    #: Rows that sinks had already.
    rows_skipped: int
    dead_letters: int
    late_rows: int
    #: Records that are left when the micro-batch of this progress is completed, per source.
    lag: Mapping[str, int]
    watermark: datetime | None
    state_rows: int
    #: Size of the state files that a restart reads.
    state_bytes: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JobFigures:
        return cls(
            batch_id=value["batchId"],
            records_read=value["recordsRead"],
            rows_written=value["rowsWritten"],
            rows_skipped=value["rowsSkipped"],
            dead_letters=value["deadLetters"],
            late_rows=value["lateRows"],
            lag=value["lag"],
            watermark=event_time(value["watermarkMicros"]),
            state_rows=value["stateRows"],
            state_bytes=value["stateBytes"],
        )

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> JobFigures | None:
        """Return the figures in Spark's progress; None when it is not of a job that headrace plans."""
        for source in progress.sources:
            try:
                found = json.loads(source.latestOffset or "null")
            except ValueError:
                continue
            if isinstance(found, dict) and KEY in found:
                return cls.from_json(found[KEY])
        return None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Spark's progress of a micro-batch, and the figures of the job."""

    spark: StreamingQueryProgress
    #: None: the job is a query of the user's over DataFrames only.
    figures: JobFigures | None


def progress(query: StreamingQuery) -> JobProgress | None:
    """Return the progress of the last micro-batch of a job's query; None when none is completed yet."""
    last = query.lastProgress
    return None if last is None else JobProgress(last, JobFigures.of(last))


def on_progress(query: StreamingQuery, function: Callable[[JobProgress], object]) -> StreamingQueryListener:
    """Call a function after each micro-batch of a job's query, in a thread of Spark's listeners.

    Each job runs in its own session, and listeners of other sessions are not called for it. Returns the listener.
    """
    context = SparkContext._active_spark_context
    assert context is not None, "a query runs in it"
    session: Any = query._jsq.sparkSession()
    listener = _Listener(str(query.runId), function)
    SparkSession(context, session).streams.addListener(listener)
    return listener


class _Listener(StreamingQueryListener):
    def __init__(self, run_id: str, function: Callable[[JobProgress], object]) -> None:
        self._run_id = run_id
        self._function = function

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to tell yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.runId) != self._run_id:
            return
        try:
            self._function(JobProgress(event.progress, JobFigures.of(event.progress)))
        except Exception:  # a function of the user's must not end Spark's listeners
            logger.exception("query %s: the function that is told of its progress has failed", event.progress.name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No micro-batch has run."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Who has the query or its handle sees it there."""
