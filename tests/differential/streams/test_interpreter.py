"""The interpreter on cases that Flink's documentation and headrace's own describe in words, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.differential.streams.interpreter import interpret
from tests.differential.streams.plan import (
    Aggregate,
    Arrival,
    Emit,
    Grouped,
    How,
    IntervalJoin,
    Late,
    Node,
    Over,
    OverCall,
    Plan,
    Source,
    Table,
    Window,
    Windowed,
    WindowJoin,
)  # fmt: skip

COLUMNS = {"k": "text", "v": "int", "ts": "time"}
COUNT = {"n": Aggregate("count", None)}
_NO = timedelta()


def at(seconds: float) -> datetime:
    return datetime(2024, 5, 6, 10) + timedelta(seconds=seconds)


def table(delay: float, queues: int = 1, name: str = "t") -> Table:
    return Table(name, COLUMNS, queues, timedelta(seconds=delay))


def rows(*values: tuple[str, float], queue: int = 0, name: str = "t") -> list[Arrival]:
    return [Arrival(name, queue, {"k": key, "v": 1, "ts": at(seconds)}) for key, seconds in values]


def windowed(source: Node, kind: str, seconds: float, emit: Emit | None = None) -> Windowed:
    size = timedelta(seconds=seconds)
    return Windowed(
        {"k": "text", "window_start": "time", "n": "int"},
        source,
        ("k",),
        Window(kind, size, size, _NO, "ts"),
        COUNT,
        emit,
    )


# The clicks of docs/windows.md: (user, second).
CLICKS = [("Uma", 1), ("Sven", 4), ("Uma", 9), ("Sven", 7), ("Uma", 14), ("Uma", 21), ("Sven", 3)]


def results(arrivals: list[Arrival], node: Node, *tables: Table) -> set[tuple[str, float, int]]:
    found = interpret(Plan(tables, tuple(arrivals), {"out": node})).rows["out"]
    return {(row["k"], (row["window_start"] - at(0)).total_seconds(), row["n"]) for row in found}


def test_tumbling_windows_and_late_rows() -> None:
    source = Source(COLUMNS, table(5))
    node = windowed(source, "tumbling", 10)
    assert results(rows(*CLICKS), node, source.table) == {("Sven", 0, 2), ("Uma", 0, 2), ("Uma", 10, 1), ("Uma", 20, 1)}
    late = interpret(Plan((source.table,), tuple(rows(*CLICKS)), {"out": Late(COLUMNS, node)})).rows["out"]
    assert [row["ts"] for row in late] == [at(3)]


def test_sessions_that_touch_are_one() -> None:
    source = Source(COLUMNS, table(5))
    node = windowed(source, "session", 7)
    assert results(rows(*CLICKS), node, source.table) == {("Sven", 4, 2), ("Uma", 1, 1), ("Uma", 9, 3)}
    assert results(rows(("a", 0), ("a", 7), ("a", 14.5)), node, source.table) == {("a", 0, 2), ("a", 14.5, 1)}


def test_a_row_in_time_changes_a_result_that_was_given() -> None:
    source = Source(COLUMNS, table(5))
    node = windowed(source, "tumbling", 10, Emit(None, None, timedelta(minutes=1)))
    assert ("Sven", 0, 3) in results(rows(*CLICKS), node, source.table)


def test_the_watermark_is_the_least_of_all_queues() -> None:
    source = Source(COLUMNS, table(0, queues=2))
    node = windowed(source, "tumbling", 10)
    ahead = rows(("a", 50), queue=0)
    # Nothing has come of the other queue: no row is late. Then it is at 30, and a row of 12 s is.
    assert ("a", 10, 1) in results([*ahead, *rows(("a", 12), queue=0)], node, source.table)
    both = [*ahead, *rows(("a", 30), queue=1), *rows(("a", 12), queue=0)]
    assert results(both, node, source.table) == {("a", 50, 1), ("a", 30, 1)}


@pytest.mark.parametrize(
    ("how", "wanted"), [("inner", [(1, 4)]), ("left", [(1, 4), (20, None)]), ("full", [(1, 4), (20, None), (None, 9)])]
)
def test_joins_within_a_bound(how: How, wanted: list[tuple[float | None, float | None]]) -> None:
    left, right = Source(COLUMNS, table(0)), Source(COLUMNS, table(0, name="u"))
    names = {name: f"r_{name}" for name in COLUMNS}
    node = IntervalJoin({}, left, right, (("k", "k"),), how, names, low=_NO, high=timedelta(seconds=5))
    arrivals = [*rows(("a", 1)), *rows(("a", 4), name="u"), *rows(("a", 9), name="u"), *rows(("a", 20))]
    plan = Plan(
        (left.table, right.table),
        tuple(arrivals),
        {"out": replace(node, columns={**COLUMNS, "r_ts": "time"})},
    )
    found = [(row["ts"], row["r_ts"]) for row in interpret(plan).rows["out"]]
    assert sorted(found, key=repr) == sorted(
        [tuple(None if s is None else at(s) for s in pair) for pair in wanted], key=repr
    )


def test_frames_of_rows_and_of_time() -> None:
    source = Source(COLUMNS, table(100))
    calls = {
        "two": OverCall("count", None, True, rows=1), "near": OverCall("count", None, False, span=timedelta(seconds=5)),
        "all": OverCall("count", None, False), "before": OverCall("lag", "v", False),
    }  # fmt: skip
    node = Over({"ts": "time", **dict.fromkeys(calls, "int")}, source, ("k",), "ts", calls)
    found = interpret(
        Plan((source.table,), tuple(rows(("a", 9), ("a", 1), ("a", 4), ("a", 9))), {"out": node}), sql=True
    ).rows["out"]
    assert [(row["two"], row["near"], row["all"], row["before"]) for row in found] == [
        (1, 1, 1, None), (2, 2, 2, 1), (2, 3, 4, 1), (2, 3, 4, 1),
    ]  # fmt: skip


def test_averages_of_whole_numbers_are_cut_in_sql_only() -> None:
    source = Source(COLUMNS, table(0))
    node = Grouped({"m": "double"}, source, (), {"m": Aggregate("avg", "v")}, changes=True)
    arrivals = [Arrival("t", 0, {"k": "a", "v": value, "ts": at(0)}) for value in (-1, -2)]
    plan = Plan((source.table,), tuple(arrivals), {"out": node})
    assert interpret(plan).rows["out"] == [{"m": -1.5}]
    assert interpret(plan, sql=True).rows["out"] == [{"m": -1}]


def test_sessions_of_results_that_touch_are_one_in_sql() -> None:
    """The time of a result is the last millisecond of its window, so results of windows in a row are a window apart."""
    source = Source(COLUMNS, table(5))
    second = timedelta(seconds=1)
    times = {"window_start": "time", "window_end": "time", "window_time": "time"}
    inner = Windowed({**times, "n": "int"}, source, (), Window("tumbling", second, second, _NO, "ts"), COUNT)
    outer = Windowed({**times, "n": "int"}, inner, (), Window("session", second, second, _NO, "window_time"), COUNT)
    found = interpret(Plan((source.table,), tuple(rows(*(("a", n) for n in range(12)))), {"out": outer}), sql=True)
    assert [row["n"] for row in found.rows["out"]] == [12]


def test_the_queues_of_two_tables_meet_where_one_of_them_comes_on_two_ways() -> None:
    """Then it depends on the size of batches which of the two ways is quicker."""
    left, right = Source(COLUMNS, table(0)), Source(COLUMNS, table(0, name="u"))
    renamed = {name: f"r_{name}" for name in COLUMNS}
    both = {**COLUMNS, **{f"r_{name}": kind for name, kind in COLUMNS.items()}}
    second = timedelta(seconds=1)
    inner = WindowJoin(
        {**both, "window_start": "time"}, left, right, (("k", "k"),), "inner", renamed,
        window=Window("tumbling", 5 * second, 5 * second, _NO, "ts"),
    )  # fmt: skip
    pairs, times = (("k", "k"),), ("window_start", "ts")
    outer = IntervalJoin(COLUMNS, inner, right, pairs, "anti", {}, time=times, low=-second, high=second)
    came = [*rows(("a", 3), ("a", 20)), *rows(("a", 4), ("a", 20), name="u")]
    plan = Plan((left.table, right.table), tuple(came), {"out": outer})
    assert interpret(plan).fragile
