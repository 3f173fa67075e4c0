"""Jobs of the simulation with a part beside the stream: a dimension table that is loaded again and again, and correlations of Sigma.

A seed that had another shape before gets one of these now and then (``chosen``), so that all other seeds mean what they meant.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import headrace as hr
import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.source import Reader, Source, StartPosition

from tests.simulation.jobs import SHAPES, Asked, Shape, Streams
from tests.simulation.servers import Row

#: How often of a hundred a history of any other shape has one of these.
_CHOSEN = 0.15
_POLL_US = 300
#: Rows of the table that no record asks for; their number tells one load from another.
_NOISE_MAX = 6
_SPAN = timedelta(seconds=4)
#: Longer than servers are away and processes sleep: a record that comes after it would be late.
_IDLE_TIMEOUT = "60 s"

_RULE = {"id": "small", "expression": "v < 7"}
_CORRELATION = {
    "title": "Several", "id": "several",
    "correlation": {"type": "event_count", "rules": ["small"], "group-by": ["k"], "timespan": "4s", "condition": {"gte": 2}},
}  # fmt: skip


class TableSource(Source):
    """A table in two queues. Each opening gives the rows of its keys, and others beside, a few at each poll."""

    def identity(self) -> Mapping[str, Any]:
        return {"table": "names"}

    def queues(self) -> Collection[Queue]:
        _asked("queues of the table")
        return [Queue("q0"), Queue("q1")]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        keys = "ac~" if queue.name == "q0" else "b"
        rows = [{"k": key, "name": key.upper()} for key in keys]
        noise = 0 if Asked.here is None else int(Asked.here.world.random.random() * _NOISE_MAX)
        rows[1:1] = [{"k": f"{queue.name} {number}", "name": "nobody"} for number in range(noise)]
        return _TableReader([json.dumps(row).encode() for row in rows], queue.name)


class _TableReader(OffsetReader):
    def __init__(self, bodies: Sequence[bytes], queue: str) -> None:
        super().__init__(0)
        self._all, self._queue = bodies, queue

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        _asked(f"poll of the table, {self._queue} at {self._next}")
        begin, self._next = self._next, min(self._next + 2, len(self._all))
        if begin == self._next:
            return None
        bodies = self._all[begin : self._next]
        return RawBatch(np.arange(begin, self._next, dtype=np.int64), self.position, bodies=Bodies.of(bodies))

    def seek(self, position: ReadPosition) -> None:
        self._next = position.offset

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        return len(self._all)


def _asked(what: str) -> None:
    if Asked.here is not None:
        Asked.here.request(what, _POLL_US)


def _looked_up(streams: Streams) -> Any:
    table = hr.stream("simulated", "job").from_(
        TableSource(), format="json", schema={"k": "string", "name": "string"}, name="names"
    )
    return streams["s0"].lookup_join(table, on="k", refresh="0.3 s", threads=2).select("id", "k", "name")


def _named(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    return [{"id": each["id"], "k": each["k"], "name": each["k"].upper()} for each in records["s0"]]


def _correlated(streams: Streams) -> Any:
    tagged = streams["s0"].watermark("ts", delay="5 s").rules([_RULE])
    alerts = tagged.correlate([_CORRELATION], rules=[_RULE], on="ts", output="all", idle_timeout=_IDLE_TIMEOUT)
    return alerts.select("k", "correlation_count", window_end="ts")


def _several(records: Mapping[str, Sequence[Row]]) -> list[Row]:
    past: dict[str, list[datetime]] = defaultdict(list)
    found: list[Row] = []
    for each in sorted(records["s0"], key=lambda row: row["ts"]):
        if each["v"] >= 7:
            continue
        times = past[each["k"]]
        times.append(each["ts"])
        count = sum(time >= each["ts"] - _SPAN for time in times)
        if count >= 2:
            found.append({"k": each["k"], "correlation_count": count, "window_end": each["ts"]})
    return found


BESIDE: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("looked up", _looked_up, _named, keyed=False, asks=True),
        Shape("correlated", _correlated, _several, timed=True, idle=True),
    )
}
ALL_SHAPES: Mapping[str, Shape] = {**SHAPES, **BESIDE}


def chosen(kind: str, seed: int, shape: Shape) -> Shape:
    """Return one of these shapes for some of the seeds of a kind of histories, and ``shape`` for the others."""
    random = Random(f"beside {kind} {seed}")
    return random.choice(list(BESIDE.values())) if random.random() < _CHOSEN else shape
