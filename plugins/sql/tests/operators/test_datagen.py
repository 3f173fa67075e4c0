"""Made-up rows: what the options of fields say holds of each value, and reading in other pieces gives the same rows."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import HeadraceError, OptionError
from headrace_sql.operators.datagen import DatagenSettings, DatagenSource

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def source(columns: dict[str, str], **fields: str) -> DatagenSource:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in fields.items()}
    return DatagenSource(DatagenSettings(columns=columns, fields=named, rows_per_second=100))


def column(of: str, **fields: str) -> pl.Series:
    return source({"x": of}, **{f"x__{key}": text for key, text in fields.items()}).rows(0, 2000)["x"]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 100])
def test_texts_have_their_length(length: int) -> None:
    texts = column("string", length=str(length))
    assert set(texts.str.len_chars().to_list()) == {length}
    assert texts.n_unique() >= min(2000, 16**length)


def test_texts_of_any_length_up_to_one() -> None:
    lengths = column("string", length="20", var_len="true").str.len_chars()
    assert set(lengths.to_list()) == set(range(1, 21))


@pytest.mark.parametrize(
    "kind", ["string", "int64", "boolean", "timestamp", "float64", "date", "time", "decimal(10, 2)"]
)
def test_some_values_are_null(kind: str) -> None:
    assert 500 < column(kind, null_rate="0.3").null_count() < 700
    assert column(kind, null_rate="1").null_count() == 2000
    assert column(kind).null_count() == 0


def test_times_may_be_past() -> None:
    plain, past = column("timestamp"), column("timestamp", max_past="10 s")
    behind = (plain - past).dt.total_microseconds().to_list()
    assert plain[0] == EPOCH
    assert min(behind) >= 0
    assert 9_000_000 < max(behind) <= 10_000_000


def test_numbers_are_in_their_range() -> None:
    numbers = column("int32", min="-3", max="4")
    assert set(numbers.to_list()) == set(range(-3, 4))
    assert column("int64", kind="sequence", start="5", end="7").to_list()[:4] == [5, 6, 7, 5]


def test_rows_do_not_depend_on_how_they_are_read() -> None:
    made = source(
        {"a": "string", "b": "int64", "c": "timestamp", "d": "float32"},
        a__length="30", a__var_len="true", b__null_rate="0.5", c__max_past="1 h", d__null_rate="0.1",
    )  # fmt: skip
    assert pl.concat([made.rows(0, 7), made.rows(7, 8), made.rows(8, 300)]).equals(made.rows(0, 300))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x__lenth": "3"}, "unknown option fields.x.lenth"),
        ({"y__length": "3"}, "there is no column 'y'"),
        ({"x__length": "0"}, "'0' is not possible"),
        ({"x__length": "many"}, "'many' is not possible"),
        ({"x__kind": "randm"}, "'randm' is not possible"),
        ({"x__null_rate": "2"}, "'2' is not possible"),
        ({"x__max_past": "soon"}, "'soon' is not possible"),
    ],
)
def test_wrong_options_of_fields_are_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source({"x": "string"}, **fields)


def test_types_of_which_no_values_are_made_are_refused() -> None:
    text = "CREATE TABLE t (a ARRAY<INT>) WITH ('connector' = 'datagen'); SELECT * FROM t"
    with pytest.raises(HeadraceError, match="values of type array<int32> cannot be generated"):
        hr.sql(text)


def test_in_sql() -> None:
    options: Any = (
        "'number-of-rows' = '50', 'fields.k.length' = '3', 'fields.k.null-rate' = '0.5', 'fields.ts.max-past' = '1 h'"
    )
    text = f"CREATE TABLE t (k STRING, ts TIMESTAMP(3)) WITH ('connector' = 'datagen', {options}); SELECT k FROM t"
    found = hr.sql(text).collect()["k"]
    assert (len(found), found.drop_nulls().str.len_chars().unique().to_list()) == (50, [3])
    assert 10 < found.null_count() < 40
