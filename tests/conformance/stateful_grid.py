"""Cases that cross every kind of window with every way to emit, and every kind of join with every way to join."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr

from tests.conformance.case import Case
from tests.conformance.stateful_inputs import ORDERS, SCHEMA, clicks, orders

WINDOWS: Mapping[str, Callable[[], Any]] = {
    "tumbling": lambda: hr.tumbling("10 s", on="ts"),
    "sliding": lambda: hr.sliding("30 s", "10 s", on="ts"),
    "cumulative": lambda: hr.cumulative("1 min", "20 s", on="ts"),
    "session": lambda: hr.session("8 s", on="ts"),
}
EMITS: Mapping[str, Callable[[], Any]] = {
    "final": lambda: None,
    "early": lambda: hr.emit(before="5 s"),
    "late": lambda: hr.emit(after="1 s", until="20 s"),
    "both": lambda: hr.emit(before="5 s", after="1 s", until="20 s"),
}
HOWS = ("inner", "left", "right", "full", "semi", "anti")
JOINS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "within": lambda: {"within": ("-5 s", "10 s"), "time": ("ts", "at")},
    "window": lambda: {"window": hr.tumbling("10 s", on="ts"), "time": ("ts", "at")},
    "unbounded": dict,
}


def windows(directory: Path, *, window: str) -> hr.Job:
    """One kind of window, emitted in every way; results that change are read as the table that they come to."""
    pipe = hr.stream("grid", window)
    events = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA).key_by("key")
    made: list[hr.Job] = []
    for name, emit in EMITS.items():
        counts = events.window(WINDOWS[window](), late="4 s", emit=emit()).agg(n="count(*)", s="sum(v)", hi="max(v)")
        path = f"{directory}/out/table-{name}"
        made.append(counts.to_file(path, format="json", changes="column", name=name))
    return _all(made)


def joins(directory: Path, *, kind: str) -> hr.Job:
    """One kind of join, in every way."""
    pipe = hr.stream("grid", kind)
    left = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
    right = pipe.from_file(f"{directory}/in/orders.ndjson", format="json", schema=ORDERS, name="orders")
    left, right = left.watermark("ts", delay="4 s"), right.watermark("at")
    made = []
    for how in HOWS:
        joined = left.join(right, on="key", how=how, **JOINS[kind]())
        made.append(joined.to_file(f"{directory}/out/table-{how}", format="json", changes="column", name=how))
    return _all(made)


def _all(jobs: Sequence[hr.Job]) -> hr.Job:
    first, *others = jobs
    for other in others:
        first = first.also(other)
    return first


_CLICKS: Mapping[str, Sequence[str | bytes]] = {"clicks.ndjson": clicks(300, 1)}
_BOTH: Mapping[str, Sequence[str | bytes]] = {"clicks.ndjson": clicks(150, 1), "orders.ndjson": orders(90, 7)}
GRID = [
    *(Case(f"{name}-windows", _CLICKS, partial(windows, window=name)) for name in WINDOWS),
    *(Case(f"joins-{name}", _BOTH, partial(joins, kind=name)) for name in JOINS),
]
