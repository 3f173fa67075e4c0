"""The verbs of keyed streams, as users write them."""

from __future__ import annotations

import json
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import OptionError
from headrace.testing import MemorySink, MemorySource
from headrace_light.backend import LightBackend

from tests.eventually import eventually

ROWS = [{"k": "a", "v": 3}, {"k": "b", "v": 1}, {"k": "a", "v": 2}, {"k": "a", "v": 9}]


def stream(rows: list[dict[str, Any]] = ROWS) -> hr.Stream:
    bodies = [json.dumps(row).encode() for row in rows]
    pipe = hr.stream("test", "verbs")
    return pipe.from_(MemorySource({"q": bodies}), format="json", schema={"k": "string", "v": "int64"})


def table(made: hr.Stream) -> list[dict[str, Any]]:
    sink = MemorySink()
    made.to(sink).run("light")
    return sorted(sink.table(), key=lambda row: tuple(map(str, row.values())))


def test_running_verbs() -> None:
    assert table(stream().key_by("k").agg(n="count(*)", s="sum(v)")) == [
        {"k": "a", "n": 3, "s": 14},
        {"k": "b", "n": 1, "s": 1},
    ]
    assert table(stream().agg(n="count(*)")) == [{"n": 4}]
    assert table(stream().distinct("k")) == [{"k": "a", "v": 3}, {"k": "b", "v": 1}]
    assert table(stream().key_by("k").deduplicate(keep="last")) == [{"k": "a", "v": 9}, {"k": "b", "v": 1}]
    assert table(stream().key_by("k").deduplicate(by="v")) == [{"k": "a", "v": 2}, {"k": "b", "v": 1}]
    assert table(stream().key_by("k").top_n(2, by="v desc")) == [
        {"k": "a", "v": 3},
        {"k": "a", "v": 9},
        {"k": "b", "v": 1},
    ]
    assert table(stream().key_by(upper="upper(k)").agg(n="count(*)")) == [
        {"upper": "A", "n": 3},
        {"upper": "B", "n": 1},
    ]


def test_a_key_that_nothing_comes_for_is_forgotten() -> None:
    sink, clock = MemorySink(), ManualClock(1_000.0)
    source = MemorySource({"q": [b'{"k": "a", "v": 1}']})
    job = (
        hr.stream("test", "ttl")
        .from_(source, format="json", schema={"k": "string", "v": "int64"})
        .key_by("k")
        .ttl("1 h")
        .agg(n="count(*)")
        .to(sink)
    )
    handle = LightBackend(clock=clock).start(job.plan(), hr.RunOptions(until=None))
    try:
        eventually(lambda: len(sink.rows) >= 1, "the first row", shown=lambda: sink.rows)
        clock.advance(3 * 3600)
        source.append("q", b'{"k": "a", "v": 1}')
        eventually(lambda: len(sink.rows) >= 2, "the second row", shown=lambda: sink.rows)
    finally:
        handle.stop()
    assert [row["n"] for row in sink.rows][-1] == 1, "the key began anew"


def test_a_time_to_live_is_a_duration() -> None:
    with pytest.raises(OptionError, match="soon"):
        stream().key_by("k").ttl("soon")
