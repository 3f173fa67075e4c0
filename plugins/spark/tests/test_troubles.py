"""Servers that are away and tasks that run again are told on the driver's log, once each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import RetriableError
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.transit.troubles import KINDS, TroubleNotes, Troubles
from micro_batches import MicroBatches, forget_all
from spark_parts import CountingSource, LineSink
from test_planner import FlakySource, begun, bodies, planner_of


def logged(directory: Path, caplog: pytest.LogCaptureFixture, troubles: Troubles | None = None) -> list[str]:
    """Return what the driver logs of the events that are in a run's directory."""
    known = troubles or Troubles("test.job")
    with caplog.at_level(logging.WARNING):
        for event in RunDirectory(directory).new_events():
            if event["kind"] in KINDS:
                known.take(**event)
    texts = [record.message for record in caplog.records]
    caplog.clear()
    return texts


def test_an_outage_is_logged_once_and_its_end_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    planner, worker = TroubleNotes(str(tmp_path)), TroubleNotes(str(tmp_path))
    for _ in range(5):
        planner.away("orders/a", "connection refused")
        worker.away("orders/a", "connection lost")
        planner.away("orders/b", "connection refused")
    planner.back("orders/a")
    worker.back("orders/a")
    planner.back("orders/c")
    assert logged(tmp_path, caplog) == [
        "job test.job: orders/a is not available, trying again: connection refused",
        "job test.job: orders/b is not available, trying again: connection refused",
        "job test.job: orders/a is available again",
    ]


def test_tasks_that_run_again_are_logged_once_for_each_stage_of_a_micro_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = TroubleNotes(str(tmp_path))
    for batch_id in (3, 4):
        for task in range(4):
            notes.begun("source stage", batch_id, 0 if task == 0 else 1)
            notes.begun("sink stage", batch_id, 0)
    why = "because a worker process was killed, failed or was slow"
    assert logged(tmp_path, caplog) == [
        f"job test.job: micro-batch {number}: the source stage is run again (attempt 2), {why}" for number in (3, 4)
    ]


def test_tasks_that_are_refused_are_logged_once_for_each_micro_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = TroubleNotes(str(tmp_path))
    for batch_id in (3, 3, 4):
        notes.fenced(batch_id, f"micro-batch {batch_id} is completed")
    assert logged(tmp_path, caplog) == [
        f"job test.job: a task was rejected: micro-batch {number} is completed" for number in (3, 4)
    ]


def test_a_process_without_the_directory_goes_on(tmp_path: Path) -> None:
    notes = TroubleNotes(str(tmp_path / "of another machine"))
    notes.away("orders/a", "connection refused")
    notes.back("orders/a")
    notes.begun("sink stage", 1, 1)


def test_the_planner_tells_of_servers_that_are_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, clock = FlakySource({"a": bodies(2)}), ManualClock()
    source.calls_away = 3
    planner = planner_of(tmp_path, source, clock=clock)
    start = begun(planner)
    troubles = Troubles("test.job")
    assert logged(tmp_path, caplog, troubles) == [
        "job test.job: flaky is not available, trying again: the server is away",
        "job test.job: flaky is available again",
    ]
    for _ in range(4):
        source.calls_away = 1
        clock.advance(2.0)
        planner.next_end(start, None)
    again = [event for event in RunDirectory(tmp_path).new_events() if event["kind"] in KINDS]
    assert [event["kind"] for event in again[2:]] == ["away"], "told once, not at each look"


def test_a_worker_tells_of_what_an_operator_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls = tmp_path / "calls"

    def asked(row: dict[str, Any]) -> dict[str, Any]:
        with calls.open("a") as file:
            file.write("x")
        if calls.stat().st_size == 2:
            raise RetriableError("the table is away")
        return row

    source, sink = CountingSource(tmp_path / "source"), LineSink(tmp_path / "lines")
    sink.prepare(None)
    source.set_count("a", 10)
    schema = {"n": "int64", "queue": "string"}
    stream = hr.stream("test", "job").from_(source, format="json", schema=schema)
    job = stream.map(asked, schema=schema).key_by("n").distinct().to(sink)
    try:
        MicroBatches(job, tmp_path / "run").run_to_end()
    finally:
        forget_all()
    assert sorted(row["n"] for row in sink.rows()) == list(range(10))
    texts = logged(tmp_path / "run", caplog)
    assert [text.partition(": ")[2] for text in texts] == [
        "the server of an operator of queue counting/a is not available, trying again: the table is away",
        "the server of an operator of queue counting/a is available again",
    ]
