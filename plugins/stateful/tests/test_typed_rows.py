"""Rows that users' functions return: values of common types need no column to be checked, and come out as from a column."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from headrace.foundation.errors import DataError
from headrace_stateful.keys import typed_rows
from headrace_stateful.keys.typed_rows import RowTypes, frame_of

_AT = datetime(2026, 3, 29, 2, 30, 0, 123456)
_BERLIN = ZoneInfo("Europe/Berlin")
_TYPES: list[pl.DataType] = [
    pl.String(), pl.Binary(), pl.Boolean(), pl.Float32(), pl.Float64(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(),
    pl.Date(), pl.Time(), pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Datetime("ms"), pl.Datetime("us", "Europe/Berlin"),
    pl.Duration("us"), pl.Duration("ms"), pl.Decimal(10, 2), pl.List(pl.Int64()),
]  # fmt: skip
_VALUES: list[Any] = [
    "a", b"a", True, 1.5, float("inf"), 0, 127, 128, -128, -129, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, np.int64(3),
    date(2026, 1, 2), time(1, 2, 3, 4), _AT, _AT.replace(fold=1), _AT.replace(tzinfo=UTC), _AT.replace(tzinfo=UTC, fold=1),
    _AT.replace(tzinfo=ZoneInfo("UTC")), _AT.replace(tzinfo=_BERLIN), _AT.replace(tzinfo=_BERLIN, fold=1),
    _AT.replace(tzinfo=timezone(timedelta(hours=2))), datetime.min, datetime.max, timedelta(days=-3, microseconds=7),
    Decimal("1.25"), [1], None,
]  # fmt: skip


@pytest.mark.parametrize("kind", _TYPES, ids=str)
def test_values_are_those_that_a_column_gives_back(kind: pl.DataType) -> None:
    for value in _VALUES:
        try:
            expected = frame_of([{"v": value}], {"v": kind})["v"].to_list()[0]
        except (
            DataError,
            OverflowError,
            pl.exceptions.PanicException,
        ):  # the two last ones: whole numbers far outside of all times
            with pytest.raises(DataError):
                RowTypes({"v": kind}).checked({"v": value})
            continue
        found = RowTypes({"v": kind}).checked({"v": value})["v"]
        assert _seen(found) == _seen(expected), value


@pytest.mark.parametrize("value", [timedelta(microseconds=2**63 - 1), timedelta.max, timedelta.min])
def test_durations_that_are_too_long(value: timedelta) -> None:
    types = RowTypes({"v": pl.Duration("us")})
    if abs(value) < timedelta(microseconds=2**63):
        assert types.checked({"v": value}) == {"v": value}
    else:
        with pytest.raises(DataError):
            types.checked({"v": value})


def _seen(value: Any) -> tuple[Any, ...]:
    zone = str(value.tzinfo) if isinstance(value, datetime) else ""
    return type(value), repr(value) if isinstance(value, float) else value, zone, getattr(value, "fold", 0)


def test_common_values_need_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of one value takes a hundred times as long as a look at it."""

    def column(*_: object) -> pl.DataFrame:
        raise AssertionError("a column was made of one value")

    types = RowTypes({
        "text": pl.String(), "whole": pl.Int32(), "day": pl.Date(), "took": pl.Duration("us"), "at": pl.Datetime("us", "UTC"),
        "seen": pl.Datetime("us", "UTC"), "local": pl.Datetime("us"),
    })  # fmt: skip
    row = {
        "text": "a", "whole": 7, "day": date(2026, 1, 2), "took": timedelta(seconds=1), "at": _AT.replace(tzinfo=UTC),
        "seen": _AT.replace(tzinfo=ZoneInfo("UTC")), "local": _AT,
    }  # fmt: skip
    monkeypatch.setattr(typed_rows, "frame_of", column)
    assert types.checked(row) == row
