"""Cases of jobs with keyed state: windows, joins, distinct, functions with state, a shuffle behind a shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import headrace as hr

from tests.conformance.case import Case
from tests.conformance.change_cases import CASES as CHANGES
from tests.conformance.stateful_grid import GRID
from tests.conformance.stateful_inputs import ORDERS, SCHEMA, clicks, orders


def _clicks(directory: Path, pipeline: str, pattern: str = "clicks*.ndjson") -> hr.Stream:
    pipe = hr.stream("conformance", pipeline)
    return pipe.from_file(f"{directory}/in/{pattern}", format="json", schema=SCHEMA)


def _to(stream: hr.Stream, directory: Path, name: str = "rows") -> hr.Job:
    written: hr.Job = stream.to_file(f"{directory}/out/{name}", format="json")
    return written


def _one(count: int = 400) -> dict[str, Sequence[str | bytes]]:
    return {"clicks.ndjson": clicks(count, 1)}


def _three() -> dict[str, Sequence[str | bytes]]:
    # Several queues: who is late depends on the order in which queues are read, so nobody is.
    return {f"clicks-{n}.ndjson": clicks(150, n, first=n * 1000) for n in range(3)}


def tumbling(directory: Path) -> hr.Job:
    windowed = _clicks(directory, "tumbling").key_by("key").window(hr.tumbling("10 s", on="ts"), late="4 s")
    aggregated = windowed.agg(n="count(*)", s="sum(v)", lo="min(v)", hi="max(v)", a="avg(v)", ids="count(distinct id)")
    return _to(aggregated, directory)


def late_rows(directory: Path, pattern: str = "clicks*.ndjson") -> hr.Job:
    windowed = _clicks(directory, "late", pattern).key_by("key").window(hr.tumbling("5 s", on="ts"), late="1 s")
    counted = windowed.agg(n="count(*)", first="first(id)", last="last(id)")
    return _to(counted, directory).also(_to(counted.late(), directory, "late"))


def sliding(directory: Path) -> hr.Job:
    keyed = _clicks(directory, "sliding", "clicks-*.ndjson").where("v > 0").key_by(k="coalesce(key, 'none')")
    return _to(keyed.window(hr.sliding("30 s", "10 s", on="ts"), late="10 s").agg(n="count(*)", s="sum(v)"), directory)


def sessions_late(directory: Path) -> hr.Job:
    keyed = _clicks(directory, "sessions-late").key_by("key")
    counted = keyed.window(hr.session("900 ms", on="ts"), late="200 ms").agg(n="count(*)")
    return _to(counted, directory).also(_to(counted.late(), directory, "late"))


CORRELATIONS = [
    {
        "id": kind,
        "correlation": {"type": kind, "rules": ["low", "high"], "group-by": ["key"], "timespan": "20s", **more},
    }
    for kind, more in (
        ("event_count", {"condition": {"gte": 3}}),
        ("value_count", {"condition": {"field": "id", "gte": 3}}),
        ("temporal", {}),
        ("temporal_ordered", {"generate": True}),
    )
]


def correlations(directory: Path) -> hr.Job:
    rules = {"low": "v < 2", "high": "v > 10"}
    tagged = _clicks(directory, "correlations", "clicks-*.ndjson").rules(rules, output="tag")
    return _to(tagged.correlate(CORRELATIONS, rules=rules, on="ts", late="10 s", output="all"), directory)


def without_key(directory: Path) -> hr.Job:
    return _to(_clicks(directory, "all").window(hr.tumbling("1 min", on="ts"), late="4 s").agg(n="count(*)"), directory)


def window_on_window(directory: Path) -> hr.Job:
    keyed = _clicks(directory, "twice").key_by("key")
    first = keyed.window(hr.tumbling("10 s", on="ts"), late="4 s").agg(n="count(*)")
    second = first.window(hr.tumbling("40 s", on="window_start")).agg(most="max(n)", keys="count(*)")
    return _to(second, directory)


def distinct(directory: Path) -> hr.Job:
    return _to(_clicks(directory, "distinct").select("key").distinct("key"), directory)


def join_within(directory: Path) -> hr.Job:
    pipe = hr.stream("conformance", "within")
    left = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
    right = pipe.from_file(f"{directory}/in/orders.ndjson", format="json", schema=ORDERS, name="orders")
    left = left.watermark("ts", delay="4 s")
    right = right.watermark("at")
    return _to(left.join(right, on="key", within=("-5 s", "10 s"), time=("ts", "at")), directory)


def with_state(directory: Path, pattern: str = "clicks*.ndjson") -> hr.Job:
    def since_last(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["n"] = state.get("n", 0) + 1
        if state["n"] % 3 == 0:
            yield {"key": row["key"], "id": row["id"], "n": state["n"]}

    keyed = _clicks(directory, "process", pattern).key_by("key")
    return _to(keyed.process(since_last, schema={"key": "string", "id": "int64", "n": "int64"}), directory)


def _both(directory: Path, pipeline: str) -> tuple[hr.Stream, hr.Stream]:
    pipe = hr.stream("conformance", pipeline)
    left = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
    right = pipe.from_file(f"{directory}/in/orders.ndjson", format="json", schema=ORDERS, name="orders")
    return left, right


def _to_table(stream: hr.Stream, directory: Path, name: str = "table") -> hr.Job:
    written: hr.Job = stream.to_file(f"{directory}/out/{name}", format="json", changes="column")
    return written


def join_without_bound(directory: Path) -> hr.Job:
    """Joins of changelogs: outer joins give and take back rows without partner."""
    left, right = _both(directory, "regular")
    counts = left.key_by("key").agg(n="count(*)", most="max(v)")
    joined = counts.join(right, on="key", how="full", where="most > 15 OR order < 40", suffix="_of_order")
    missing = right.select("order", "key").join(left.where("v > 18"), on="key", how="anti")
    return _to_table(joined, directory).also(_to_table(missing, directory, "table-of-missing"))


def changes_of_changes(directory: Path) -> hr.Job:
    """Aggregates and Top-N over results that change."""
    counts = (
        _clicks(directory, "changes", "clicks-*.ndjson").key_by("key").agg(n="count(*)", s="sum(v)", last_id="max(id)")
    )
    again = counts.key_by("n").agg(k="count(*)", hi="max(s)", ids="count(distinct last_id)")
    best = counts.key_by().top_n(4, by="n desc, key", rank="place")
    return _to_table(again, directory).also(_to_table(best, directory, "table-of-best"))


_JOINED: dict[str, Sequence[str | bytes]] = {**_one(250), "orders.ndjson": orders(150, 7)}

CASES = [
    Case("tumbling", _one(), tumbling),
    Case("late", _one(), late_rows),
    Case("sliding", _three(), sliding),
    Case("sessions-late", _one(), sessions_late),
    Case("without-key", _one(), without_key),
    Case("window-on-window", _one(), window_on_window),
    Case("distinct", _three(), distinct),
    Case("join-within", _JOINED, join_within),
    Case("with-state", _one(), with_state),
    Case("join-without-bound", _JOINED, join_without_bound),
    Case("changes-of-changes", _three(), changes_of_changes),
    Case("correlations", _three(), correlations),
    *GRID,
    *CHANGES,
]
