"""Running aggregates against plain Python over the rows that are there."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from headrace.flow.messages import ChangeKind, Tick
from headrace.flow.schema import Schema
from headrace_stateful.aggregates import distinct_values
from headrace_stateful.aggregates.aggregate import Aggregate
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import Row, Run, batch_of, plain

SCHEMA = Schema.of({"k": "string", "v": "int64", "f": "float64", "d": "decimal(10, 2)"})
BY_SIGN = {
    "n": "count(*)",
    "m": "count(v)",
    "total": "sum(v)",
    "mean": "avg(v)",
    "exact": "sum(d)",
    "twice": "sum(v) * 2",
}
BY_VALUES = {
    **BY_SIGN,
    "least": "min(v)",
    "most": "max(d)",
    "different": "count(DISTINCT v)",
    "one": "first(v)",
    "end": "last(v)",
    "all": "collect(v)",
}


def results(rows: list[Row], values: bool) -> Row:
    v = [row[1] for row in rows if row[1] is not None]
    d = [row[3] for row in rows if row[3] is not None]
    found: Row = (
        len(rows),
        len(v),
        sum(v) if v else None,
        sum(v) / len(v) if v else None,
        sum(d) if d else None,
        2 * sum(v) if v else None,
    )
    if values:
        found += (
            min(v, default=None),
            max(d, default=None),
            len(set(v)),
            v[0] if v else None,
            v[-1] if v else None,
            tuple(v),
        )
    return found


#: (key, value, taken back?, what happens before)
STEP = st.tuples(
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([None, 0, 1, 2, -7]),
    st.booleans(),
    st.integers(0, 6),
)


def row_of(key: Any, value: Any) -> Row:
    decimal = None if value is None else Decimal(value) / 4
    return (key, value, None if value is None else value / 8, decimal)


@example(
    steps=[("a", 0, False, 0), (None, 1, False, 0), (None, 0, False, 0), (None, 0, True, 0)],
    values=True, keyed=False, retracts=True,
)  # fmt: skip
@given(steps=st.lists(STEP, max_size=50), values=st.booleans(), keyed=st.booleans(), retracts=st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_aggregates_are_those_of_the_rows_that_are_there(
    steps: list[Any], values: bool, keyed: bool, retracts: bool
) -> None:
    keys = ["k"] if keyed else []
    spec = Aggregate(keys, BY_VALUES if values else BY_SIGN)
    spec.changes(spec.changes(None) if retracts else None)
    columns = spec.output_schema(SCHEMA)
    assert columns is not None
    run = Run(lambda: spec.open(SCHEMA))
    groups: dict[Any, list[Row]] = {}
    waiting: list[tuple[Row, int]] = []

    def flush() -> None:
        if waiting:
            kinds = [kind for _, kind in waiting] if retracts else None
            run.give(batch_of([row for row, _ in waiting], dict(SCHEMA), kinds=kinds, watermarks=[None] * len(waiting)))
            waiting.clear()
        wanted = {(*((key,) if keyed else ()), *results(rows, values)) for key, rows in groups.items() if rows}
        found = {tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in table_of(run)}
        assert found == wanted

    for key, value, back, what in steps:
        if what == 0:
            flush()
        elif what == 1:
            flush()
            run.store(whole=value == 0)
            run.restart()
        elif what == 2:
            flush()
            run.store()
        row = row_of(key, value)
        rows = groups.setdefault(key if keyed else None, [])
        if not back or not retracts:
            rows.append(row)
            waiting.append((row, ChangeKind.INSERT))
        elif row in rows:
            # The oldest of those that are equal in what the aggregates read, as in Flink.
            rows.remove(next(each for each in rows if each[1:] == row[1:]))
            waiting.append((row, ChangeKind.DELETE))
    flush()


def table_of(run: Run) -> list[Row]:
    """The rows after all changes; each change fits what was there."""
    table: list[Row] = []
    for (_, row), kind in zip(run.rows, run.kinds, strict=True):
        if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
            table.append(plain(row))
        else:
            table.remove(plain(row))
    return table


def test_kinds_and_silence() -> None:
    spec = Aggregate(["k"], {"most": "max(v)", "n": "count(*) > 1"})
    run = Run(lambda: spec.open(SCHEMA))
    run.give(batch_of([row_of("a", 2)], dict(SCHEMA), watermarks=[7]))
    run.give(batch_of([row_of("a", 1), row_of("b", 1)], dict(SCHEMA), watermarks=[8, 9]))
    run.give(batch_of([row_of("a", 1)], dict(SCHEMA), watermarks=[10]))
    assert list(zip([row for _, row in run.rows], run.kinds, run.watermarks, strict=True)) == [
        (("a", 2, False), ChangeKind.INSERT, 7),
        (("a", 2, False), ChangeKind.UPDATE_BEFORE, 8),
        (("a", 2, True), ChangeKind.UPDATE_AFTER, 8),
        (("b", 1, False), ChangeKind.INSERT, 9),
    ]
    run.store()
    assert run.operator.delta() == b""


def test_odd_keys() -> None:
    schema = Schema.of({"k": "float64"})
    spec = Aggregate(["k"], {"n": "count(*)"})
    run = Run(lambda: spec.open(schema))
    for _ in range(2):
        run.give(batch_of([(math.nan,), (0.0,), (None,), (-0.0,), (math.nan,)], dict(schema)))
    assert sorted(map(repr, (plain(row) for row in run.table()))) == ["('NaN', 4)", "(0.0, 4)", "(None, 2)"]


def test_keys_are_forgotten_after_their_time() -> None:
    spec = Aggregate(["k"], {"n": "count(*)"}, ttl="1 s")
    run = Run(lambda: spec.open(SCHEMA))
    for at in (0, 999_999, 1_999_999, 2_500_000):
        run.tell(Tick(at))
        run.give(batch_of([row_of("a", 1)], dict(SCHEMA)))
    assert [row[1] for _, row in run.rows] == [1, 1, 2, 1, 1, 2]


def test_result_that_fails_rejects_the_row() -> None:
    spec = Aggregate(["k"], {"one": "CAST(last(k) AS INT)", "n": "count(*)"})
    run = Run(lambda: spec.open(SCHEMA))
    run.give(batch_of([row_of("5", 1), row_of("five", 1)], dict(SCHEMA)))
    assert len(run.rejected) == 1
    assert "five" in run.rejected[0]
    assert [row for _, row in run.rows] == [("5", 5, 1)]


@pytest.mark.parametrize("stored", [False, True])
def test_group_whose_result_fails_has_no_row_until_it_succeeds_again(stored: bool) -> None:
    spec = Aggregate(["k"], {"one": "CAST(last(k2) AS INT)", "n": "count(*)"})
    schema = Schema.of({"k": "string", "k2": "string"})
    run = Run(lambda: spec.open(schema))
    for rows in ([("a", "5")], [("a", "x"), ("b", "1")], [("a", "y")], [("a", "7")]):
        run.give(batch_of(rows, dict(schema)))
        if stored:
            run.store()
            run.restart()
    assert [(row, kind) for (_, row), kind in zip(run.rows, run.kinds, strict=True)] == [
        (("a", 5, 1), ChangeKind.INSERT),
        (("a", 5, 1), ChangeKind.DELETE),
        (("b", 1, 1), ChangeKind.INSERT),
        (("a", 7, 4), ChangeKind.INSERT),
    ]
    assert ["'x'" in run.rejected[0], "'y'" in run.rejected[1]] == [True, True]


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 9)), max_size=120),
    size=st.integers(1, 12),
)
@settings(max_examples=examples(60), deadline=None)
def test_groups_with_many_different_values(steps: list[tuple[str, int, int]], size: int) -> None:
    """Their values are looked up in those that are known; also after a restart, and of a slot that another key had before."""
    spec = Aggregate(
        ["k"], {"n": "count(DISTINCT v)", "few": "count(DISTINCT v) FILTER (WHERE v < 5)", "all": "array_agg(DISTINCT v)"}, ttl="9 s",
    )  # fmt: skip
    run = Run(lambda: spec.open(SCHEMA))
    seen: dict[str, dict[int, None]] = {}
    last: dict[str, int] = {}
    now = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct_values, "_MANY", 3)
        for begin in range(0, len(steps), size):
            rows = steps[begin : begin + size]
            now += rows[0][2]
            run.tell(Tick(now * 1_000_000))
            for key in [each for each, at in last.items() if now - at >= 9]:
                del seen[key], last[key]
            if rows[0][2] == 1:
                run.store(whole=rows[0][1] < 9)
                run.restart()
                run.tell(Tick(now * 1_000_000))
            run.give(batch_of([row_of(key, value) for key, value, _ in rows], dict(SCHEMA)))
            for key, value, _ in rows:
                seen.setdefault(key, {})[value] = None
                last[key] = now
            given = {
                row[0]: row
                for (_, row), kind in zip(run.rows, run.kinds, strict=True)
                if kind != ChangeKind.UPDATE_BEFORE
            }
            for key in {each for each, _, _ in rows}:
                few = sum(value < 5 for value in seen[key])
                assert given[key] == (key, len(seen[key]), few, list(seen[key]))


def test_unknown_key_is_told() -> None:
    with pytest.raises(Exception, match="unknown column 'q'"):
        Aggregate(["q"], {"n": "count(*)"}).output_schema(SCHEMA)
