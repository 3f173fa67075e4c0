"""Annotations of functions against the types of a call, and named arguments."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import FunctionError
from headrace.interfaces.function_arguments import Default, misfit, placed


@pytest.mark.parametrize(
    ("annotation", "taken", "refused"),
    [
        (str, [pl.String(), pl.Null()], [pl.Int64(), pl.Binary()]),
        (int, [pl.Int64(), pl.UInt8()], [pl.Float64(), pl.String(), pl.Boolean()]),
        (float, [pl.Float32(), pl.Int64()], [pl.String(), pl.Decimal(5, 2)]),
        (bool, [pl.Boolean()], [pl.Int64()]),
        (bytes, [pl.Binary()], [pl.String()]),
        (Decimal, [pl.Decimal(5, 2), pl.Int64()], [pl.Float64()]),
        (datetime.datetime, [pl.Datetime("us"), pl.Datetime("us", "UTC")], [pl.Date(), pl.String()]),
        (datetime.date, [pl.Date(), pl.Datetime("us")], [pl.String()]),
        (list[str], [pl.List(pl.String())], [pl.List(pl.Int64()), pl.String()]),
        (list[Any], [pl.List(pl.Int64())], [pl.String()]),
        (dict[str, Any], [pl.Struct({"a": pl.Int64()})], [pl.String()]),
        (str | None, [pl.String()], [pl.Int64()]),
        (int | str, [pl.String(), pl.Int64()], [pl.Date()]),
        (Any, [pl.String(), pl.Date()], []),
        (object, [pl.String()], []),
    ],
)
def test_annotations(annotation: Any, taken: list[pl.DataType], refused: list[pl.DataType]) -> None:
    def function(value: Any) -> int:
        return 1

    function.__annotations__["value"] = annotation
    assert [misfit(function, [kind]) for kind in taken] == [None] * len(taken)
    assert all(misfit(function, [kind]) is not None for kind in refused)


def test_every_argument_of_many_is_looked_at() -> None:
    def joined(first: int, *others: str) -> str:
        return ""

    assert misfit(joined, [pl.Int64(), pl.String(), pl.String()]) is None
    assert misfit(joined, [pl.Int64(), pl.String(), pl.Date()]) == (2, "str")
    assert misfit(len, [pl.Int64()]) is None


def rounded(value: float, digits: int = 2, mark: str | None = None, *, other: int = 0) -> str:
    return ""


def shown(found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, ("default", value.value) if isinstance(value, Default) else value) for name, value in found]


def test_named_arguments_are_placed() -> None:
    assert shown(placed(rounded, {"mark": "m"}, 1)) == [("digits", ("default", 2)), ("mark", "m")]
    assert shown(placed(rounded, {"VALUE": 1}, 0)) == [("value", 1)]
    assert shown(placed(rounded, {"digits": 3, "value": 1}, 0)) == [("value", 1), ("digits", 3)]


@pytest.mark.parametrize(
    ("named", "given", "message"),
    [
        ({"nothing": 1}, 1, "no argument 'nothing'"),
        ({"other": 1}, 1, "no argument 'other'"),
        ({"value": 1}, 1, "given twice"),
        ({"mark": 1}, 0, "'value' is missing"),
    ],
)
def test_mistakes_of_named_arguments(named: dict[str, Any], given: int, message: str) -> None:
    with pytest.raises(FunctionError, match=message):
        placed(rounded, named, given)


def test_annotations_that_cannot_be_read_are_not_compared() -> None:
    def function(value: int) -> int:
        return value

    function.__annotations__["value"] = "Missing"
    assert misfit(function, [pl.String()]) is None
