"""Types as Flink writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import OptionError
from headrace.interfaces.flink_types import flink_type, map_type


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("INT", pl.Int32()), ("integer NOT NULL", pl.Int32()), ("BIGINT", pl.Int64()), ("STRING", pl.String()),
        ("VARCHAR(10) NULL", pl.String()), ("DECIMAL(10, 2)", pl.Decimal(10, 2)), ("DECIMAL", pl.Decimal(10, 0)),
        ("DOUBLE PRECISION", pl.Float64()), ("TIMESTAMP(3)", pl.Datetime("us")), ("TIMESTAMP_LTZ(3)", pl.Datetime("us", "UTC")),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pl.Datetime("us", "UTC")), ("BYTES", pl.Binary()), ("BOOLEAN", pl.Boolean()),
        ("ARRAY<INT NOT NULL>", pl.List(pl.Int32())), ("MAP<STRING, ARRAY<BIGINT>>", map_type(pl.String(), pl.List(pl.Int64()))),
        ("ROW<a INT, `b c` DECIMAL(5, 1) NOT NULL>", pl.Struct({"a": pl.Int32(), "b c": pl.Decimal(5, 1)})),
        ("ROW<INT, STRING>", pl.Struct({"f0": pl.Int32(), "f1": pl.String()})),
        ("ROW(a ROW<b INT>, c MAP<INT, INT>)", pl.Struct({"a": pl.Struct({"b": pl.Int32()}), "c": map_type(pl.Int32(), pl.Int32())})),
    ],
)  # fmt: skip
def test_texts(text: str, wanted: pl.DataType) -> None:
    assert flink_type(text) == wanted


@pytest.mark.parametrize("declared", ["INTERVAL DAY", "FOO", "MAP<INT>", "", 5])
def test_what_is_none(declared: Any) -> None:
    with pytest.raises(OptionError):
        flink_type(declared)


def named(kind: str, /, **attributes: Any) -> Any:
    """Return an object of a class of this name, as PyFlink's DataTypes make."""
    return type(kind, (SimpleNamespace,), {})(**attributes)


def test_objects_of_pyflink() -> None:
    bigint, text = named("BigIntType"), named("VarCharType", length=5)
    fields = [named("RowField", name="a", data_type=bigint), named("RowField", name="b", data_type=text)]
    row = named("RowType", fields=fields)
    assert flink_type(bigint) == pl.Int64()
    assert flink_type(named("ArrayType", element_type=row)) == pl.List(pl.Struct({"a": pl.Int64(), "b": pl.String()}))
    assert flink_type(named("MapType", key_type=text, value_type=bigint)) == map_type(pl.String(), pl.Int64())
    assert flink_type(named("DecimalType", precision=7, scale=3)) == pl.Decimal(7, 3)
