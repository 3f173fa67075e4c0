"""Runs an operator of windows and the model of it on the same rows, in batches and with restarts as a test says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from headrace.flow.messages import EndOfInput, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.operator import StatefulOperator
from headrace.interfaces.windows import Emit, Window
from headrace_stateful.windows.window_aggregate import WindowAggregate
from headrace_stateful.windows.window_operator import WindowOperator

from plugins.stateful.tests.stateful_driver import QUEUE, Run, batch_of

SCHEMA = Schema.of({"key": "string", "ts": "timestamp", "number": "int64"})
#: What the model's numbers come to. The list tells their order too.
AGGREGATES = {"n": "count(*)", "total": "sum(number)", "greatest": "max(number)", "first": "first(number)"}
ORDERED = {**AGGREGATES, "all": "array_agg(number)"}
NEVER = -(2**63)

#: (key, time, number)
Event = tuple[Any, int, int | None]


#: When results of a window are given: before its end, after it, until when.
EMITS = [
    Emit(),
    Emit(before_us=3),
    Emit(before_us=0),
    Emit(until_us=8),
    Emit(after_us=3, until_us=10),
    Emit(after_us=0, until_us=8),
    Emit(before_us=4, after_us=0, until_us=6),
    Emit(before_us=0, after_us=4, until_us=9),
]


def instant(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")) + timedelta(microseconds=time)


def watermarks_of(events: Sequence[Event], delay: int) -> list[int]:
    """Return the watermark before each event, and behind the last."""
    found, greatest = [NEVER], NEVER
    for _, time, _ in events:
        greatest = max(greatest, time)
        found.append(greatest - delay)
    return found


def aggregated(numbers: tuple[int | None, ...], *, ordered: bool) -> tuple[Any, ...]:
    """Return what the aggregates come to."""
    known = [number for number in numbers if number is not None]
    made = (len(numbers), sum(known) if known else None, max(known, default=None), known[0] if known else None)
    return (*made, list(numbers)) if ordered else made


class WindowRun(Run):
    """Takes note of watermarks and change kinds with the rows."""

    def results(self, *, changes: bool) -> list[tuple[Any, ...]]:
        """Return (watermark, kind, key, start, end, aggregates…, result), as the model has them."""
        kinds = [kind for kind, (where, _) in zip(self.kinds, self.rows, strict=True) if where == ""]
        rows = [row for where, row in self.rows if where == ""]
        return [
            (mark, kind, *(row if changes else (*row, "final")))
            for mark, kind, row in zip(self.watermarks, kinds, rows, strict=True)
        ]

    def late(self) -> list[tuple[Any, ...]]:
        return [row for where, row in self.rows if where == "late"]


@cache
def make(window: Window, emit: Emit, *, ordered: bool = False) -> Callable[[], StatefulOperator]:
    """Return what opens an operator; compiled once."""
    opened = WindowAggregate(("key",), window, ORDERED if ordered else AGGREGATES, emit=emit).open(SCHEMA)
    assert isinstance(opened, WindowOperator)
    kind: Any = type(opened)
    return lambda: kind(opened.shape)


def drive(
    run: Run, events: Sequence[Event], marks: Sequence[int], cuts: Sequence[int], stores: Sequence[int], *, end: bool
) -> None:
    """Give events in batches cut at ``cuts``; store and restart before the batches numbered in ``stores``."""
    borders = sorted({0, *(cut for cut in cuts if 0 < cut < len(events)), len(events)})
    for number, (first, last) in enumerate(itertools.pairwise(borders)):
        if number in stores:
            run.store(whole=number % 3 == 2)
            run.restart()
        part = [(key, instant(time), number) for key, time, number in events[first:last]]
        known = [None if mark == NEVER else mark for mark in marks[first:last]]
        if part:
            run.give(batch_of(part, dict(SCHEMA), watermarks=known, first=first))
        if marks[last] > NEVER:
            run.tell(Watermark(QUEUE, marks[last]))
    if end:
        run.tell(EndOfInput())


def comparable(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))
