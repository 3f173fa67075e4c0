"""Queries that are started again by their handle, when the processes of Spark end or start late, as on a busy machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError, JobError, JobFailedError
from headrace.interfaces.backend import JobState
from headrace_spark.queries import query
from headrace_spark.queries.handle import SparkHandle
from headrace_spark.transit.run_directory import RunDirectory
from spark_parts import CountingSource, DatabaseSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
LATE = "Spark did not start the job: org.apache.spark.SparkException: Python worker failed to connect back."
#: What Spark says when the planning process was killed: Java's EOFException has no text.
GONE = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST"
#: What it says when an executor was killed whose rows another stage had read in part; when a task has lost four executors.
PASSED_ON = (
    "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: A shuffle map stage with indeterminate "
    "output was failed and retried. However, Spark cannot rollback the ResultStage 7 to re-process the input data"
)
LOST = (
    "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent "
    "failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor 4): ExecutorLostFailure (executor 4 exited unrelated to the tasks)"
)


@pytest.fixture
def job(source: CountingSource, sink: DatabaseSink) -> hr.Job:
    source.set_count("a", 10)
    made: hr.Job = hr.stream("test", "restarts").from_(source, format="json", schema={"n": "int64"}).to(sink)
    return made


def running(job: hr.Job, place: Path) -> SparkHandle:
    handle = job.start("spark", checkpoint=place / "state", discovery_interval="50 ms")
    assert isinstance(handle, SparkHandle)
    eventually(lambda: handle.status().records_read == 10, "rows", shown=handle.status)
    return handle


def fail(handle: SparkHandle, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the query that runs end with what Spark says; return when another one runs, or the job has ended."""
    ended = handle._started.query

    def failed(timeout: float | None = None) -> bool:
        ended.stop()
        raise RuntimeError(text)

    monkeypatch.setattr(ended, "awaitTermination", failed)
    # Until then rows would still be read by the query that is to fail.
    eventually(lambda: handle._started.query is not ended or handle._ended.is_set(), "the failure was seen")


def late(start: Callable[..., Any], times: int, error: Exception) -> Callable[..., Any]:
    """Return a start that fails so often."""
    left = [error] * times

    def starts(*given: Any) -> Any:
        if left:
            raise left.pop()
        return start(*given)

    return starts


def goes_on(handle: SparkHandle, source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 15)
    eventually(lambda: handle.status().records_read == 15, "rows after it was started again", shown=handle.status)
    handle.stop()
    assert handle.wait().state is JobState.STOPPED
    assert [n for _, n in sink.stored()] == list(range(15))


def test_a_planner_whose_connection_ends_before_its_process_is_replaced(
    job: hr.Job, source: CountingSource, sink: DatabaseSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system closes the files of a killed process first; a busy machine may not end it before Java has told us."""
    handle = running(job, tmp_path)
    looks = iter([False] * 5)
    monkeypatch.setattr(RunDirectory, "planner_has_ended", property(lambda run: next(looks, True)))
    fail(handle, GONE, monkeypatch)
    goes_on(handle, source, sink)


@pytest.mark.parametrize("said", [PASSED_ON, LOST])
def test_a_query_that_has_lost_executors_is_started_again(
    said: str, job: hr.Job, source: CountingSource, sink: DatabaseSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(job, tmp_path)
    fail(handle, said, monkeypatch)
    goes_on(handle, source, sink)


def test_it_may_happen_often_as_long_as_micro_batches_are_completed_in_between(
    job: hr.Job, source: CountingSource, sink: DatabaseSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(job, tmp_path)
    for count in range(11, 16):
        fail(handle, LOST, monkeypatch)
        source.set_count("a", count)
        eventually(lambda count=count: handle.status().records_read == count, "rows", shown=handle.status)  # type: ignore[misc]
    for _ in range(4):
        fail(handle, LOST, monkeypatch)
    with pytest.raises(JobFailedError, match="ExecutorLostFailure"):
        handle.wait(timedelta(minutes=2))
    assert [n for _, n in sink.stored()] == list(range(15))


def test_an_error_that_says_nothing_of_a_connection_is_told_at_once(
    job: hr.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(job, tmp_path)
    looked: list[None] = []

    def look(run: RunDirectory) -> bool:
        looked.append(None)
        return False

    monkeypatch.setattr(RunDirectory, "planner_has_ended", property(look))
    fail(handle, "[STREAM_FAILED] Query terminated with exception: something else", monkeypatch)
    with pytest.raises(JobFailedError, match="something else"):
        handle.wait(timedelta(minutes=2))
    assert len(looked) == 1


def test_a_job_whose_tasks_always_kill_their_worker_is_not_started_again(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has tried it as often as it may, and then ends the planning process."""
    source.set_count("a", 20)

    def dying(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 15:
            os._exit(3)
        return row

    stream = hr.stream("test", "dying").from_(source, format="json", schema={"n": "int64"})
    job = stream.map(dying, schema={"n": "int64"}).to(sink)
    with pytest.raises(JobFailedError, match="failed 4 times"):
        job.run("spark", checkpoint=tmp_path / "state", max_micro_batch_records=10)
    assert "started again" not in caplog.text
    assert [n for _, n in sink.stored()] == list(range(10))


def test_a_start_that_was_too_slow_is_tried_again(
    job: hr.Job, source: CountingSource, sink: DatabaseSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(query, "start_query", late(query.start_query, 2, JobError(LATE)))
    handle = running(job, tmp_path)
    assert caplog.text.count("did not start within ten seconds, as on a machine that has too much to do") == 2
    goes_on(handle, source, sink)


def test_a_start_that_is_always_too_slow_says_so(job: hr.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "start_query", late(query.start_query, 100, JobError(LATE)))
    with pytest.raises(JobError, match="Python worker failed to connect back"):
        job.start("spark", checkpoint=tmp_path / "state")


def test_a_query_whose_new_start_was_too_slow_is_started_once_more(
    job: hr.Job, source: CountingSource, sink: DatabaseSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(job, tmp_path)
    monkeypatch.setattr(handle, "_start", late(handle._start, 1, JobError(LATE)))
    monkeypatch.setattr(RunDirectory, "planner_has_ended", property(lambda run: True))
    fail(handle, GONE, monkeypatch)
    goes_on(handle, source, sink)


def test_a_job_that_waits_for_room_and_is_taken_over_ends_with_the_reason(
    job: hr.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(job, tmp_path)
    monkeypatch.setattr(handle, "_start", late(handle._start, 1, CheckpointError("another run has it")))
    fail(handle, "[STREAM_FAILED] Query terminated with exception: No space left on device", monkeypatch)
    with pytest.raises(JobFailedError, match="another run has it"):
        handle.wait(timedelta(minutes=2))
    assert handle.status().state is JobState.FAILED
