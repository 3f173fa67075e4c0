"""Which differences are found between expected and found rows and dead letters, and how they are shown."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from headrace_pipeline.comparing import _pairs, row_differences


def test_order_does_not_count_and_numbers_do() -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": 1}]
    assert row_differences("s", rows, [{"a": 2}, {"a": 1}, {"a": 1}]) == []
    assert row_differences("s", rows, [{"a": 2}, {"a": 1}, {"a": 2}])[0] == "sink s: 1 row missing, 1 row not expected"


def test_values_of_other_types_differ() -> None:
    pairs: list[tuple[Any, Any]] = [(1, 1.0), (1, True), ("1", 1), (None, ""), (0.0, -0.0), (b"a", "a")]
    for one, other in pairs:
        assert row_differences("s", [{"a": one}], [{"a": other}]) != []
    assert row_differences("s", [{"a": float("nan")}], [{"a": float("nan")}]) == []


def test_all_types_are_shown() -> None:
    row = {"a": b"\xff", "b": Decimal("1.50"), "c": datetime(2026, 1, 1, tzinfo=UTC), "d": [{"e": None}]}
    shown = row_differences("s", [], [row])[1]
    assert '"b": "1.50", "c": "2026-01-01 00:00:00+00:00", "d": [{"e": null}]' in shown


def test_many_rows_are_counted() -> None:
    lines = row_differences("s", [], [{"a": n} for n in range(50)])
    assert len(lines) == 22
    assert lines[-1] == "  … and 30 more"


def test_as_many_letters_as_can_be_find_their_expectation() -> None:
    fits = {(0, 0), (0, 1), (1, 0), (2, 1), (2, 2)}
    assert _pairs(3, 3, lambda one, other: (one, other) in fits) == {0: 1, 1: 0, 2: 2}
    assert len(_pairs(3, 2, lambda one, other: (one, other) in fits)) == 2
