"""Jobs of the simulation, and what must come out of them.

Each has few verbs and a model in plain Python, which is given all records and knows nothing of queues, batches or faults. Records of a
queue are never further behind than the delay of the watermark, so the final rows do not depend on which queue is read first.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import headrace as hr

from tests.simulation.servers import Row, shown

SCHEMA = {"id": "int64", "k": "string", "v": "int64", "ts": "timestamp"}
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
#: How far a record may be behind those before it in its queue.
DELAY = timedelta(seconds=5)
_SECOND = timedelta(seconds=1)

#: Records of one queue: when each comes (microseconds of the world), and its values; None: a body that cannot be decoded.
Queue = Sequence[tuple[int, Row | None]]
#: By source and queue.
Input = Mapping[str, Mapping[str, Queue]]
Streams = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """A kind of job. ``build`` gives the stream that is written; ``model`` its final rows. ``changes``: whether they change on the way."""

    name: str
    build: Callable[[Streams], Any]
    model: Callable[[Mapping[str, Sequence[Row]]], list[Row]]
    sources: int = 1
    changes: bool = False
    keyed: bool = True
    #: Whether event time counts: a queue that appears later would have late records.
    timed: bool = False
    #: Whether a part of the job asks a server beside the stream, which can be away.
    asks: bool = False
    #: Whether results come when nothing has come for a while, without a record that is behind all others.
    idle: bool = False


def _copies(row: Row) -> list[Row]:
    return [{"id": row["id"], "copy": number} for number in range(row["v"] % 4)]


def _plain(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    return [{"id": each["id"], "k": each["k"], "w": each["v"] * 2 + 1} for each in records["s0"] if each["v"] > 2]


def _flat(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    return [row for each in records["s0"] for row in _copies(each)]


class Asked:
    """The server that a function of a job asks; None: it answers at once. Workers have the function by its name, and so this one."""

    here: Any = None


def _doubled(row: Row) -> Row:
    if Asked.here is not None:
        Asked.here.request(f"double {row['id']}", 200)
    return {"id": row["id"], "k": row["k"], "double": row["v"] * 2}


def _asking(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    return [{"id": each["id"], "k": each["k"], "double": each["v"] * 2} for each in records["s0"]]


def _tumbling(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    found: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for each in records["s0"]:
        start = each["ts"] - (each["ts"] - BEGIN) % (10 * _SECOND)
        found[each["k"], start].append(each["v"])
    return [
        {"k": k, "window_start": start, "window_end": start + 10 * _SECOND, "n": len(values), "total": sum(values)}
        for (k, start), values in found.items()
    ]


def _session(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    found: list[Row] = []
    by_key: dict[str, list[Row]] = defaultdict(list)
    for each in records["s0"]:
        by_key[each["k"]].append(each)
    for k, rows in by_key.items():
        rows.sort(key=lambda row: row["ts"])
        parts: list[list[Row]] = []
        for row in rows:
            if parts and row["ts"] <= parts[-1][-1]["ts"] + 4 * _SECOND:
                parts[-1].append(row)
            else:
                parts.append([row])
        for part in parts:
            start, end = part[0]["ts"], part[-1]["ts"] + 4 * _SECOND
            found.append({"k": k, "window_start": start, "window_end": end, "n": len(part)})
    return found


def _running(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    found: dict[str, list[int]] = defaultdict(list)
    for each in records["s0"]:
        found[each["k"]].append(each["v"])
    return [{"k": k, "n": len(values), "total": sum(values), "most": max(values)} for k, values in found.items()]


def _two_stages(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    found: dict[datetime, list[int]] = defaultdict(list)
    for row in _tumbling(records):
        found[row["window_start"] - (row["window_start"] - BEGIN) % (20 * _SECOND)].append(row["total"])
    return [
        {"window_start": start, "window_end": start + 20 * _SECOND, "keys": len(totals), "total": sum(totals)}
        for start, totals in found.items()
    ]


def _joined(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    return [
        {"id": one["id"], "k": one["k"], "other": two["id"]}
        for one in records["s0"]
        for two in records["s1"]
        if one["k"] == two["k"]
    ]


def _remembered(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    counts = Counter(each["k"] for each in records["s0"])
    return [{"k": k, "nth": nth} for k, count in counts.items() for nth in range(2, count + 1, 2)]


def _every_second(row: Row, state: dict[str, Any], timers: Any) -> list[Row]:
    state["n"] = state.get("n", 0) + 1
    return [{"k": row["k"], "nth": state["n"]}] if state["n"] % 2 == 0 else []


def _window(stream: Any, window: Any) -> Any:
    return stream.window(window, late="5 s")


SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("plain", lambda s: s["s0"].where("v > 2").select("id", "k", w="v * 2 + 1"), _plain, keyed=False),
        Shape(
            "flat",
            lambda s: s["s0"].flat_map(_copies, schema={"id": "int64", "copy": "int64"}),
            _flat,
            keyed=False,
        ),
        Shape(
            "asking",
            lambda s: s["s0"].map(_doubled, schema={"id": "int64", "k": "string", "double": "int64"}),
            _asking,
            keyed=False,
            asks=True,
        ),
        Shape(
            "tumbling",
            lambda s: _window(s["s0"].key_by("k"), hr.tumbling("10 s", on="ts")).agg(n="count(*)", total="sum(v)"),
            _tumbling,
            timed=True,
        ),
        Shape(
            "session",
            lambda s: _window(s["s0"].key_by("k"), hr.session("4 s", on="ts")).agg(n="count(*)"),
            _session,
            timed=True,
        ),
        Shape(
            "running",
            lambda s: s["s0"].key_by("k").agg(n="count(*)", total="sum(v)", most="max(v)"),
            _running,
            changes=True,
        ),
        Shape(
            "two stages",
            lambda s: (
                _window(s["s0"].key_by("k"), hr.tumbling("10 s", on="ts"))
                .agg(n="count(*)", total="sum(v)")
                .window(hr.tumbling("20 s", on="window_start"))
                .agg(keys="count(*)", total="sum(total)")
            ),
            _two_stages,
            timed=True,
        ),
        Shape(
            "join",
            lambda s: s["s0"].join(s["s1"].select("k", other="id"), on="k").select("id", "k", "other"),
            _joined,
            sources=2,
        ),
        Shape(
            "function",
            lambda s: s["s0"].key_by("k").process(_every_second, schema={"k": "string", "nth": "int64"}),
            _remembered,
        ),
    )
}


def make_input(random: Random, sources: int, *, records_max: int, span_us: int, bad: bool) -> Input:
    """Return records of one to three queues per source, which come within ``span_us``."""
    number = 0
    found: dict[str, dict[str, Queue]] = {}
    for source in range(sources):
        queues: dict[str, Queue] = {}
        for queue in range(random.choice((1, 1, 2, 3))):
            clock, us = BEGIN + timedelta(seconds=random.randrange(5)), 0
            records: list[tuple[int, Row | None]] = []
            for _ in range(random.randint(1, records_max)):
                clock += timedelta(milliseconds=random.choice((0, 200, 1000, 3000, 9000)))
                us += random.randrange(1 + 2 * span_us // records_max)
                ts = clock - timedelta(milliseconds=random.choice((0, 0, 500, 4000)))
                row = {"id": number, "k": random.choice("abc"), "v": random.randint(0, 9), "ts": max(ts, BEGIN)}
                records.append((us, None if bad and random.random() < 0.1 else row))
                number += 1
            queues[f"q{queue}"] = records
        found[f"s{source}"] = queues
    return found


def body_of(row: Row | None) -> bytes:
    """Return a record as it lies in a topic."""
    return b'{"id": 1, "k' if row is None else json.dumps({**row, "ts": row["ts"].isoformat()}).encode()


def expected(shape: Shape, given: Input) -> Counter[str]:
    """Return the final rows, and how often each."""
    rows = {
        source: [row for records in queues.values() for _, row in records if row is not None]
        for source, queues in given.items()
    }
    return Counter(map(shown, shape.model(rows)))


def bad_records(given: Input) -> int:
    """Return how many records cannot be decoded."""
    return sum(row is None for queues in given.values() for records in queues.values() for _, row in records)
