"""What Spark's own tools show of a job: its plans, its progress, its log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headrace as hr
import headrace_spark
import pytest
from headrace.foundation.errors import JobFailedError
from headrace_spark import JobProgress
from headrace_spark.processes import session
from headrace_spark.processes.settings import SparkSettings
from headrace_spark.queries.handle import SparkHandle
from keyed_parts import timed, windowed
from pyspark.sql import SparkSession
from spark_parts import CountingSource, DatabaseSink, Failing, WindowSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
SCHEMA = {"n": "int64", "queue": "string"}


def stream_of(source: CountingSource, name: str) -> hr.Stream:
    return hr.stream("tools", name).from_(source, format="json", schema=SCHEMA)


def test_plan_and_progress_of_a_job(source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 150)
    sink = WindowSink(tmp_path / "windows.db")
    first = windowed(timed(stream_of(source, "shown").with_columns(k="n % 7")))
    job = windowed(first.with_columns(k="k % 2"), seconds=500).to(sink)
    handle = job.start("spark", checkpoint=tmp_path / "state", until=None, show_progress=False)
    assert isinstance(handle, SparkHandle)
    told: list[JobProgress] = []
    handle.on_progress(told.append)

    def failing(progress: object) -> None:
        raise ValueError("a mistake of the user's")

    handle.on_progress(failing)
    eventually(lambda: handle.status().records_read == 150, "first records")
    source.set_count("a", 151)  # figures of a micro-batch are in the progress of the next one
    last = told_of(told, 150)
    assert last.figures is not None
    status = handle.status()
    assert (last.figures.lag, last.figures.dead_letters) == ({"counting": 0}, 0)
    assert last.figures.watermark == datetime(1970, 1, 1, 0, 2, 29, tzinfo=UTC)
    assert status.state_rows > 0
    assert last.figures.state_rows > 0
    assert last.figures.state_bytes > 0
    assert last.spark.name is not None
    assert last.spark.name.startswith("tools.shown ")
    assert "] → [key_by, window_count, with_columns-3] → [key_by-2, window_count-2, to_window" in last.spark.name
    query: Any = handle._started.query
    eventually(lambda: "MapInArrow key_by, window_count" in query._jsq.explainInternal(False), "a plan with names")
    again = handle.progress()
    assert again is not None
    assert again.spark.batchId >= last.spark.batchId
    handle.stop()


def told_of(told: list[JobProgress], records: int) -> JobProgress:
    """Wait for the progress whose figures have so many records, and return it."""
    wanted = {"counting": records}
    return eventually(lambda: [p for p in told if p.figures and p.figures.records_read == wanted], f"{records} read")[0]


def test_progress_of_a_query_of_the_users_own(
    source: CountingSource, sink: DatabaseSink, spark: SparkSession, tmp_path: Path
) -> None:
    source.set_count("a", 10)
    query = stream_of(source, "own").to(sink).to_spark(spark, checkpoint=tmp_path / "state")
    told: list[JobProgress] = []
    headrace_spark.on_progress(query, told.append)
    eventually(lambda: len(sink.stored()) == 10, "rows")
    source.set_count("a", 12)
    last = told_of(told, 10)
    assert last.figures is not None
    assert last.figures.rows_written == {"to_database": 10}
    assert headrace_spark.progress(query) is not None
    query.stop()


def test_the_log_has_a_workers_traceback_once_per_attempt(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 10)
    log = session.session_for(SparkSettings()).log_file
    assert log is not None
    logged_before = len(text_of(log))
    handle = stream_of(source, "logged").apply(Failing()).to(sink).start("spark", until="end")
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        handle.wait()
    eventually(lambda: "terminated with error" in text_of(log)[logged_before:], "the query's own message")
    logged = text_of(log)[logged_before:]
    attempts = logged.count("Exception in task")
    assert attempts == 4
    assert logged.count("frame.head(1 // 0)") == attempts
    assert "its traceback is in the message of org.apache.spark.executor.Executor" in logged


def text_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")
