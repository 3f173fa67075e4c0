"""Every documented function gives its known answer, on a constant and the page says so."""

from __future__ import annotations

import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace_sql import function_docs
from headrace_sql.function_cases import CASES, Case


def shown(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return None if value is None else str(value)


def same(got: str | None, wanted: str | None) -> bool:
    """Compare as Flink prints: booleans in any case, numbers by value, times with or without zeros behind the point."""
    if got is None or wanted is None or got.upper() == wanted.upper():
        return got is wanted or (got or "").upper() == (wanted or "").upper()
    try:
        return Decimal(got) == Decimal(wanted)
    except InvalidOperation:
        return _plain(got) == _plain(wanted)


def _plain(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def answers(cases: list[Case]) -> list[str | None]:
    """Return the answers of many expressions, computed by one job."""
    hr.register("one_row", pl.DataFrame({"x": [1]}))
    items = ", ".join(f"{case.sql} AS v{index}" for index, case in enumerate(cases))
    text = f"SELECT {items} FROM one_row"  # noqa: S608  # the expressions are our own
    return [shown(value) for value in hr.sql(text).collect().row(0)]


RUNNING = [case for case in CASES if not (case.answer or "").startswith("ERROR")]


@pytest.mark.parametrize("begin", range(0, len(RUNNING), 25))
def test_known_answers(begin: int) -> None:
    cases = RUNNING[begin : begin + 25]
    wrong = [
        (case.sql, got, case.answer)
        for case, got in zip(cases, answers(cases), strict=True)
        if not same(got, case.answer)
    ]
    assert wrong == []


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "sql-functions.md"
    assert page.read_text(encoding="utf-8") == function_docs.page(), "run python -m headrace_sql.function_docs"
