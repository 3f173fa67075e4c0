"""Distinct, deduplicate and Top-N against plain lists."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from headrace.flow.messages import ChangeKind, Tick
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, PlanError
from headrace.interfaces.operator import Changes, StatefulSpec
from headrace_stateful.aggregates.distinct import Distinct
from headrace_stateful.aggregates.top_n import Deduplicate, OrderTerm, TopN, order_terms
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import Row, Run, batch_of

SCHEMA = Schema.of({"k": "string", "a": "int64", "b": "float64"})
#: (row, taken back?, what happens before)
STEPS = st.lists(
    st.tuples(
        st.tuples(
            st.sampled_from([None, "x", "y"]), st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, 0.5, 1.0])
        ),
        st.booleans(),
        st.integers(0, 6),
    ),
    max_size=40,
)


def drive(spec: StatefulSpec, steps: list[Any], retracts: bool, check: Any) -> Run:
    """Give random rows, some taken back, cut at random, stored and restarted at random; call check after each batch."""
    spec.output_schema(SCHEMA)
    spec.changes(Changes(None) if retracts else None)
    run = Run(lambda: spec.open(SCHEMA))
    there: list[Row] = []
    waiting: list[tuple[Row, int]] = []

    def flush() -> None:
        if waiting:
            kinds = [kind for _, kind in waiting] if retracts else None
            run.give(batch_of([row for row, _ in waiting], dict(SCHEMA), kinds=kinds, watermarks=range(len(waiting))))
            waiting.clear()
        check(run, there)

    for row, back, what in steps:
        if what == 0:
            flush()
        elif what in (1, 2):
            flush()
            run.store(whole=what == 2)
            run.restart()
        if not back or not retracts:
            there.append(row)
            waiting.append((row, ChangeKind.INSERT))
        elif row in there:
            there.remove(row)
            waiting.append((row, ChangeKind.DELETE))
    flush()
    return run


def order_key(value: Any, descending: bool) -> Any:
    """NULL is the smallest value."""
    place = (0, 0) if value is None else (1, value)
    return (-place[0], -place[1]) if descending else place


def first_rows(there: list[Row], n: int, rank: bool, keep: str, ordered: bool = True) -> Counter[Row]:
    """By a descending, then b."""
    found: Counter[Row] = Counter()
    for key in (None, "x", "y"):
        rows = [row for row in there if row[0] == key]
        if keep == "last":
            rows.reverse()
        if ordered:
            rows.sort(key=lambda row: (order_key(row[1], True), order_key(row[2], False)))
        found.update((*row, place + 1) if rank else row for place, row in enumerate(rows[:n]))
    return found


@given(
    steps=STEPS, n=st.integers(1, 3), rank=st.booleans(), retracts=st.booleans(), keep=st.sampled_from(["first", "last"]),
    ordered=st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(150), deadline=None)
def test_top_n(
    steps: list[Any], n: int, rank: bool, retracts: bool, keep: Literal["first", "last"], ordered: bool
) -> None:
    spec = TopN(["k"], n, by="a desc, b" if ordered else (), rank="place" if rank else None, keep=keep)

    def check(run: Run, there: list[Row]) -> None:
        assert run.table() == first_rows(there, n, rank, keep, ordered)
        if not retracts:
            assert run.operator.state_rows() <= 3 * n

    drive(spec, steps, retracts, check)


@given(steps=STEPS, retracts=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_top_n_has_one_row_per_rank_at_any_time(steps: list[Any], retracts: bool) -> None:
    run = drive(TopN(["k"], 2, by="a desc, b", rank="place"), steps, retracts, lambda *_: None)
    table: dict[Row, Row] = {}
    for (_, row), kind in zip(run.rows, run.kinds, strict=True):
        key = (row[0], row[3])
        if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
            assert key not in table
            table[key] = row
        else:
            assert table.pop(key) == row


def test_top_n_without_key() -> None:
    spec = TopN([], 2, by="a")
    spec.output_schema(SCHEMA)
    run = Run(lambda: spec.open(SCHEMA))
    for value in (5, 3, 4, 1):
        run.give(batch_of([("x", value, None)], dict(SCHEMA)))
    assert run.table() == Counter([("x", 3, None), ("x", 1, None)])


def test_orders() -> None:
    assert order_terms('amount DESC, "odd name" asc nulls last , ts') == (
        OrderTerm("amount", True, True), OrderTerm("odd name", False, True), OrderTerm("ts", False, False),
    )  # fmt: skip
    with pytest.raises(OptionError, match="not a column with an order"):
        order_terms("a + b")
    with pytest.raises(PlanError, match="unknown column 'q'"):
        TopN(["k"], 1, by="q").output_schema(SCHEMA)


@pytest.mark.parametrize(
    ("keep", "by", "wanted"),
    [("first", None, 1.0), ("last", None, 4.0), ("first", "a", 2.0), ("last", "a", 4.0)],
)
def test_deduplicate(keep: Literal["first", "last"], by: str | None, wanted: float) -> None:
    spec = Deduplicate(["k"], keep=keep, by=by)
    assert spec.changes(None) == (None if keep == "first" and by is None else Changes(("k",)))
    run = Run(lambda: spec.open(SCHEMA))
    for row in [("x", 2, 1.0), ("x", 1, 2.0), ("x", 1, 3.0), ("x", 2, 4.0), ("x", None, 5.0)][: 4 if by is None else 5]:
        run.give(batch_of([row], dict(SCHEMA)))
    assert [row[2] for row in run.table()] == [wanted]


@given(steps=STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_distinct_keeps_the_first_row_in_order(steps: list[Any]) -> None:
    def check(run: Run, there: list[Row]) -> None:
        firsts: dict[Any, Row] = {}
        for row in there:
            firsts.setdefault(row[0], row)
        assert [row for _, row in run.rows] == list(firsts.values())
        assert set(run.kinds) <= {ChangeKind.INSERT}

    drive(Distinct(["k"]), steps, False, check)


@given(steps=STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_distinct_of_a_changelog_counts(steps: list[Any]) -> None:
    drive(Distinct(["k", "a", "b"]), steps, True, lambda run, there: _same(run.table(), Counter(set(there))))


def _same(found: Counter[Row], wanted: Counter[Row]) -> None:
    assert found == wanted


def test_distinct_refuses_changes_it_cannot_follow() -> None:
    spec = Distinct(["k"])
    spec.output_schema(SCHEMA)
    with pytest.raises(PlanError, match="first row of a key is not defined"):
        spec.changes(Changes(None))


def test_distinct_forgets() -> None:
    spec = Distinct(["k"], ttl="1 s")
    run = Run(lambda: spec.open(SCHEMA))
    for at in (0, 999_999, 1_000_000):
        run.tell(Tick(at))
        run.give(batch_of([("x", at, None)], dict(SCHEMA)))
    assert [row[1] for _, row in run.rows] == [0, 1_000_000]
