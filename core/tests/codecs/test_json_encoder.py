"""Rows as JSON: the form of every type, and that dynamic rows give the same texts as columns."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.codecs.value_texts import duration_text
from headrace.flow.messages import ROW, Bodies
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.typed_values import PLAIN_COLUMNS

UTC = dt.UTC
ENCODER = JsonCodec().encoder(None)


def dynamic(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame({ROW: pack_rows(rows)})


#: (type, value, JSON text of the value)
FORMS: list[tuple[str, Any, str]] = [
    ("string", 'é😀"\\\n\x00\u2028/', r'"é😀\"\\\n\u0000' + '\u2028/"'),
    ("string", "", '""'),
    ("boolean", True, "true"),
    ("int64", -(2**63), "-9223372036854775808"),
    ("float64", 1.0, "1.0"),
    ("float64", -0.0, "-0.0"),
    ("float64", 0.1, "0.1"),
    ("float64", 1e16, "1e+16"),
    ("float64", 1.5e300, "1.5e+300"),
    ("float64", 5e-324, "5e-324"),
    ("float64", math.nan, "null"),
    ("float64", -math.inf, "null"),
    ("decimal(10, 2)", Decimal("12.50"), '"12.50"'),
    ("decimal(38, 0)", Decimal("9" * 38), f'"{"9" * 38}"'),
    ("date", dt.date(1, 2, 3), '"0001-02-03"'),
    ("time", dt.time(1, 2, 3), '"01:02:03.000000"'),
    ("timestamp", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), '"2024-01-02T03:04:05.000000Z"'),
    ("timestamp", dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000001Z"'),
    ("timestamp_ntz", dt.datetime(2024, 1, 2, 3, 4, 5, 600), '"2024-01-02T03:04:05.000600"'),
    ("duration", -dt.timedelta(days=1, hours=2, microseconds=5), '"-P1DT2H0.000005S"'),
    ("duration", dt.timedelta(0), '"PT0S"'),
    ("binary", b"\x00\xffa", '"AP9h"'),
    ("array<int64>", [1, None], "[1,null]"),
    ("array<int64>", [], "[]"),
    ("array<timestamp>", [dt.datetime(2024, 1, 2, tzinfo=UTC), None], '["2024-01-02T00:00:00.000000Z",null]'),
    ("struct<a: binary, b: float64>", {"a": b"a", "b": math.nan}, '{"a":"YQ==","b":null}'),
    ("array<struct<t: array<time>>>", [{"t": [dt.time(1)]}, {"t": None}, None],
     '[{"t":["01:00:00.000000"]},{"t":null},null]'),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "value", "text"), FORMS)
def test_form_of_a_value(type_name: str, value: Any, text: str) -> None:
    frame = pl.DataFrame({"x": [value, None]}, schema=dict(Schema.of({"x": type_name})))
    expected = f'{{"x":{text}}}\n{{"x":null}}\n'.encode()
    assert ENCODER.encode_lines(frame) == expected
    assert ENCODER.encode_lines(dynamic([{"x": value}, {"x": None}])) == expected
    assert list(ENCODER.encode(frame)) == expected.splitlines()
    assert list(ENCODER.encode(dynamic([{"x": value}, {"x": None}]))) == expected.splitlines()


@pytest.mark.parametrize(("type_name", "value", "text"), FORMS)
def test_what_is_written_is_read_back(type_name: str, value: Any, text: str) -> None:
    schema = Schema.of({"x": type_name})
    frame = pl.DataFrame({"x": [value, None]}, schema=dict(schema))
    decoded = JsonCodec().decoder(schema).decode(Bodies.of(ENCODER.encode(frame)))
    assert not decoded.bad
    assert decoded.frame.equals(pl.DataFrame({"x": [read_back(value), None]}, schema=dict(schema)))


def read_back(value: Any) -> Any:
    """Return a value as it is read from JSON, where a float that is not a number is NULL."""
    if isinstance(value, dict):
        return {name: read_back(each) for name, each in value.items()}
    if isinstance(value, list):
        return [read_back(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "string": ("string", st.text()),
    **PLAIN_COLUMNS,
    "timestamp_ntz": ("timestamp_ntz", st.datetimes()),
    "duration": ("duration", st.timedeltas(dt.timedelta(days=-(10**8)), dt.timedelta(days=10**8))),
    "binary": ("binary", st.binary()),
    'é"\\ key\n': ("array<float64>", st.lists(st.none() | st.floats())),
    "struct": ("struct<a: timestamp, b: array<duration>>", st.builds(
        lambda a, b: {"a": a, "b": b},
        st.none() | st.datetimes(timezones=st.just(UTC)),
        st.none() | st.lists(st.timedeltas(dt.timedelta(days=-9), dt.timedelta(days=9))),
    )),
}  # fmt: skip
SCHEMA = Schema.of({name: type_name for name, (type_name, _) in COLUMNS.items()})
ROW_VALUES = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
ROWS = st.lists(ROW_VALUES.map(lambda row: {name: row[name] for name in COLUMNS}), max_size=8)


@given(ROWS)
@example(
    [dict.fromkeys(COLUMNS) | {"float64": value} for value in (1e15, 1e16, 1e17, 123456789012345680.0, 1e-5, 1e-7)]
)
@settings(max_examples=examples(150), deadline=None)
def test_dynamic_rows_give_the_same_texts_as_columns(rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    lines = ENCODER.encode_lines(frame)
    assert ENCODER.encode_lines(dynamic(rows)) == lines
    parsed = [json.loads(line) for line in ENCODER.encode(frame)]
    assert [list(row) for row in parsed] == [list(SCHEMA)] * len(rows)


@given(ROWS)
@settings(max_examples=examples(100), deadline=None)
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    schema = Schema({name: data_type for name, data_type in SCHEMA.items() if '"' not in name})
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row").select(list(schema))
    decoded = JsonCodec().decoder(schema).decode(Bodies.of(ENCODER.encode(frame)))
    finite = pl.when(pl.col("float64").is_finite()).then("float64")
    assert not decoded.bad
    assert decoded.frame.equals(frame.with_columns(float64=finite))


@given(st.timedeltas(dt.timedelta(microseconds=-(2**63) + 1), dt.timedelta(microseconds=2**63 - 1)))
@example(dt.timedelta(microseconds=-1))
@settings(deadline=None)
def test_durations_are_written_as_polars_writes_them(value: dt.timedelta) -> None:
    assert duration_text(value) == pl.Series([value], dtype=pl.Duration("us")).dt.to_string("iso")[0]


def test_json_text_is_written_as_the_value_it_says() -> None:
    encoder = JsonCodec(JsonSettings(json_columns=("x",))).encoder(None)
    texts = ['{"a": [1, 2.50, "x\\ny"],\n "b": 1e400}', '"s"', "12", None]
    frame = pl.DataFrame({"x": texts, "y": pl.Series([0.1, 1e17, math.nan, 2.0], dtype=pl.Float32)})
    expected = (
        b'{"x":{"a":[1,2.50,"x\\ny"],"b":1e400},"y":0.1}\n{"x":"s","y":1e+17}\n{"x":12,"y":null}\n{"x":null,"y":2.0}\n'
    )
    assert encoder.encode_lines(frame) == expected
    rows = [{"x": text, "y": value} for text, value in zip(texts, [0.1, 1e17, math.nan, 2.0], strict=True)]
    assert encoder.encode_lines(dynamic(rows)) == expected


@pytest.mark.parametrize("text", ["", "{", "nul", "1 2", '"\\ud800"', "[" * 5000])
def test_column_that_is_no_json_text_is_refused(text: str) -> None:
    encoder = JsonCodec(JsonSettings(json_columns=("x",))).encoder(None)
    with pytest.raises(DataError, match="column 'x' must contain JSON text"):
        encoder.encode_lines(pl.DataFrame({"x": [text]}))


def test_dynamic_rows_keep_their_own_keys_in_their_order() -> None:
    rows: list[dict[str, Any]] = [
        {"b": 1, "a": {"t": dt.datetime(2024, 1, 1), "k": [Decimal("1E+2"), b"a"]}},
        {},
        {"c": Decimal("NaN")},
    ]
    assert ENCODER.encode_lines(dynamic(rows)) == (
        b'{"b":1,"a":{"t":"2024-01-01T00:00:00.000000","k":["100","YQ=="]}}\n{}\n{"c":null}\n'
    )


def test_frames_without_rows_or_columns() -> None:
    assert ENCODER.encode_lines(pl.DataFrame(schema={"x": pl.Int64})) == b""
    assert list(ENCODER.encode(pl.DataFrame(schema={"x": pl.Int64}))) == []
    assert ENCODER.encode_lines(pl.DataFrame(height=2)) == b"{}\n{}\n"


def test_other_polars_types() -> None:
    frame = pl.DataFrame(
        {
            "u": pl.Series([2**64 - 1], dtype=pl.UInt64),
            "f": pl.Series([0.1], dtype=pl.Float32),
            "c": pl.Series(["a"], dtype=pl.Categorical),
            "n": pl.Series([None]),
            "ns": pl.Series([1], dtype=pl.Datetime("ns", "Europe/Berlin")),
            "array": pl.Series([[b"a", b"b"]], dtype=pl.Array(pl.Binary, 2)),
        }
    )
    assert ENCODER.encode_lines(frame) == (
        b'{"u":18446744073709551615,"f":0.1,"c":"a","n":null,"ns":"1970-01-01T00:00:00.000000001Z","array":["YQ==","Yg=="]}\n'
    )
    with pytest.raises(DataError, match="column 'o'"):
        ENCODER.encode_lines(pl.DataFrame({"o": [object()]}))
