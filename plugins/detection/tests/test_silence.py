"""Events that wait while nothing comes: they are looked at after idle_timeout, and not before."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.testing import MemorySink, MemorySource
from headrace_detection.correlate import Correlate
from test_correlate import BEGIN, COLUMNS, CORRELATIONS, RULES

from tests.eventually import eventually

SECOND_US = 1_000_000
SCHEMA = Schema.of(COLUMNS)
BEGIN_US = int(BEGIN.timestamp()) * SECOND_US
COUNT = CORRELATIONS[0]


def running(idle_timeout: str | None = "40 s") -> Any:
    return Correlate(CORRELATIONS, on="ts", output="all", idle_timeout=idle_timeout).open(SCHEMA)


def events(*times_us: int) -> Batch:
    rows = [(BEGIN + timedelta(microseconds=at), at, COUNT.version, "a", 1, None) for at in times_us]
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    return Batch(Queue("0"), frame.with_columns(pl.lit(BEGIN_US, pl.Int64).alias(WATERMARK)))


def told(operator: Any, *messages: Any) -> list[int]:
    """Return the numbers of the alerts that messages and batches give."""
    given: list[Any] = []
    for message in messages:
        given += operator.process(message) if isinstance(message, Batch) else operator.on_system(message)
    return [number for each in given for number in each.frame["n"].to_list()]


def ticks(first: int, last: int, step: int = 10) -> list[Tick]:
    return [Tick(seconds * SECOND_US) for seconds in range(first, last + 1, step)]


def test_waiting_events_are_looked_at_when_nothing_has_come_for_so_long() -> None:
    operator = running()
    assert told(operator, events(1, 2, 3), *ticks(100, 130)) == []
    assert told(operator, *ticks(140, 140)) == [3]
    assert told(operator, *ticks(150, 500)) == [], "there is nothing to give twice"
    assert told(operator, events(2, 3, 4), EndOfInput()) == [4]
    assert operator.late_rows() == 2


def test_rows_and_watermarks_end_a_silence() -> None:
    operator = running()
    assert told(operator, events(1, 2, 3), *ticks(100, 130), events(6), *ticks(140, 170)) == []
    assert told(operator, Watermark(Queue("0"), BEGIN_US + 1), *ticks(180, 210)) == []
    assert told(operator, *ticks(220, 220)) == [3, 6]


def test_time_in_which_the_job_did_not_run_was_no_silence() -> None:
    operator = running()
    assert told(operator, events(1, 2, 3), *ticks(100, 110)) == []
    assert told(operator, *ticks(9_000, 9_010)) == [], "of the two hours a quarter of the time-out counts"
    assert told(operator, *ticks(9_020, 9_020)) == [3]


@pytest.mark.parametrize("place", range(7))
def test_a_silence_is_the_same_after_a_restart(place: int) -> None:
    """Records since a checkpoint are read again with the ticks of before: the same entry gives the alert."""
    entries: list[Any] = [events(1, 2, 3), *ticks(100, 150)]
    alone = running()
    whole = [told(alone, entry) for entry in entries]
    first = running()
    stored = []
    for entry in entries[:place]:
        told(first, entry)
        stored.append(first.delta())
    second = running()
    for state in stored:
        if state:
            second.apply(state)
    assert [told(second, entry) for entry in entries[place:]] == whole[place:]


def test_no_time_out_and_a_wrong_one() -> None:
    operator = running(None)
    assert told(operator, events(1, 2, 3), *ticks(100, 9_000)) == []
    assert Correlate(CORRELATIONS, on="ts", idle_timeout=None).tick_seconds is None
    assert Correlate(CORRELATIONS, on="ts", idle_timeout="2 s").tick_seconds == 1
    assert Correlate(CORRELATIONS, on="ts", idle_timeout="4 min").tick_seconds == 60
    with pytest.raises(OptionError, match="not a duration"):
        Correlate(CORRELATIONS, on="ts", idle_timeout="0 s")


def test_a_running_job_whose_sources_are_silent(tmp_path: Path) -> None:
    """One queue is silent from the beginning, the other after the last of three failed logins: the alert comes all the same."""
    (tmp_path / "rules.yml").write_text(RULES)
    rows = [
        {"User": user, "Host": "h1", "EventID": 4625, "ts": f"2026-01-01T10:00:0{n}Z"} for n, user in enumerate("abc")
    ]
    source, sink = MemorySource({"a": [json.dumps(row).encode() for row in rows], "b": []}), MemorySink()
    schema = {"User": "string", "Host": "string", "EventID": "int64", "ts": "timestamp"}
    stream = hr.stream("test", "silence").from_(source, format="json", schema=schema)
    stream = stream.watermark("ts", delay="1 h", idle_timeout="100 ms").rules(str(tmp_path))
    job = stream.correlate(str(tmp_path), on="ts", idle_timeout="1 s").where("rule_id = 'sprayed'").to(sink)
    with job.start("light", checkpoint=tmp_path / "state", checkpoint_interval="100 ms"):
        eventually(lambda: [row["User"] for row in sink.rows] == ["c"], "the alert")
