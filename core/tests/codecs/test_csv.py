"""CSV bodies: the grammar of records, strict types, NULL, and that what is written is read back."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace.codecs.csv import CsvCodec, CsvSettings
from headrace.codecs.csv_records import Dialect, malformed_rows, split_record, without_carriage_returns
from headrace.flow.messages import ROW, Bodies, RawBatch, ReadPosition
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.codec import Decoder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.typed_values import PLAIN_COLUMNS

Outcomes = list[tuple[Any, ...] | str]
DecodeEveryWay = Callable[[Decoder, Sequence[bytes]], Outcomes]

UTC = dt.UTC
PLAIN = Dialect(",", '"', "")


def verdict(record: str, dialect: Dialect) -> tuple[str | None, ...] | str:
    """The values of one record, or what is wrong with it."""
    try:
        return tuple(field.value(dialect) for field in split_record(record, dialect))
    except DataError as error:
        return error.message


@pytest.mark.parametrize(
    ("record", "texts"),
    [
        ("a,b", ["a", "b"]),
        ("", [""]),
        (",", ["", ""]),
        ('"a,b",c', ["a,b", "c"]),
        ('"a""b",""""', ['a"b', '"']),
        ('"",x', ["", "x"]),
        ('"a\nb\r\n",c', ["a\nb\r\n", "c"]),
        (" a , b\r", [" a ", " b"]),
        ('a,"b"\r', ["a", "b"]),
        ("é,😀", ["é", "😀"]),
    ],
)
def test_fields_of_a_record(record: str, texts: list[str]) -> None:
    assert [field.text for field in split_record(record, PLAIN)] == texts


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('"a', "field 1: the closing quote is missing"),
        ('"a"b', "field 1: 'b' after the closing quote"),
        ('x,"a" ,b', "field 2: ' ' after the closing quote"),
        ('x,a"b', "field 2: a quote within a field that does not begin with one"),
        ('x, "a"', "field 2: a quote within a field that does not begin with one"),
        ("a\nb,c", "field 1: a line break outside quotes"),
        ("a\rb,c", "field 1: a line break outside quotes"),
        ("a,b\r\r", "field 2: a line break outside quotes"),
        ('"a""', "field 1: the closing quote is missing"),
        ('"a,b\r', "field 1: the closing quote is missing"),
    ],
)
def test_record_that_is_malformed(record: str, reason: str, outcomes: DecodeEveryWay) -> None:
    assert verdict(record, PLAIN) == reason
    decoder = CsvCodec().decoder(Schema.of({"x": "string", "y": "string"}))
    assert outcomes(decoder, [b"1,2", record.encode(), b'"3",4']) == [("1", "2"), reason, ("3", "4")]


@pytest.mark.parametrize("begin", ["x^", "x\x01", "xڀ"])
def test_first_record_that_begins_as_a_compressed_file_does(begin: str, outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec().decoder(Schema.of({"x": "string", "y": "string"}))
    assert outcomes(decoder, [f"{begin},1".encode(), b"a,2"]) == [(begin, "1"), ("a", "2")]


def test_byte_order_mark_is_bad_wherever_the_record_stands(outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec().decoder(Schema.of({"x": "string", "y": "string"}))
    reason = "the body begins with a byte order mark; texts are UTF-8 without one"
    bodies = [b"\xef\xbb\xbfa,1", b"b,\xef\xbb\xbf", b'\xef\xbb\xbf"c,3']
    assert outcomes(decoder, bodies) == [reason, ("b", "\ufeff"), reason]


RECORDS = st.lists(
    st.text('",\n\ra', max_size=7) | st.sampled_from(["a,b", '"a","b"', '"",', "x", "é,\x00"]), max_size=12
)


@given(RECORDS, st.integers(1, 3))
@example(['"', '"', "a"], 1)
@example(['"a,b', 'c",d'], 2)
@settings(max_examples=examples(500), deadline=None)
def test_records_together_are_refused_as_each_is_alone(records: list[str], width: int) -> None:
    bodies = Bodies.of([record.encode() for record in records])
    data = bodies.joined()
    ends, _ = without_carriage_returns(data, bodies.starts, bodies.ends)
    found = malformed_rows(data, bodies.starts, ends, PLAIN, width) if records else np.zeros(0, np.bool_)
    alone = [verdict(record, PLAIN) for record in records]
    assert found.tolist() == [isinstance(fields, str) or len(fields) != width for fields in alone]


@given(RECORDS)
@settings(max_examples=examples(300), deadline=None)
def test_records_mean_the_same_to_the_standard_library(records: list[str]) -> None:
    for record in records:
        fields = verdict(record, PLAIN)
        if not isinstance(fields, str) and record not in ("", "\r"):
            (read,) = csv.reader(io.StringIO(record.removesuffix("\r"), newline=""), strict=True)
            assert read == [field or "" for field in fields]


@given(RECORDS, st.sampled_from([1, 2]), st.sampled_from(["", "a", "é"]))
@example(["", "\r", '""', "a", '"a"'], 1, "")
@example(["a", '"a"', "", "a"], 1, "a")
@settings(max_examples=examples(300), deadline=None)
def test_fuzzed_records_are_judged_alone(
    outcomes: DecodeEveryWay, records: list[str], width: int, null_value: str
) -> None:
    dialect = Dialect(",", '"', null_value)
    decoder = CsvCodec(CsvSettings(null_value=null_value)).decoder(Schema.of(dict.fromkeys("xy"[:width], "string")))
    found = outcomes(decoder, [record.encode() for record in records])
    for record, outcome in zip(records, found, strict=True):
        expected = verdict(record, dialect)
        if not isinstance(expected, str) and len(expected) != width:
            expected = f"expected {width} fields, found {len(expected)}"
        assert outcome == expected


def test_many_records_with_quoted_line_breaks() -> None:
    texts = ["a\nb", 'say "a"', "plain", "", "x,y", "\n\n", '"', "é" * 50]
    rows = [[texts[(row * 7 + field) % len(texts)] for field in range(5)] for row in range(30_000)]
    bodies = []
    for row in rows:
        text = io.StringIO(newline="")
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(row)
        bodies.append(text.getvalue().encode())
    damaged = {row: bodies[row] + b'"' for row in range(0, len(bodies), 1000)}
    decoder = CsvCodec().decoder(Schema.of(dict.fromkeys("abcde", "string")))
    decoded = decoder.decode(Bodies.of([damaged.get(row, body) for row, body in enumerate(bodies)]))
    assert [bad.row for bad in decoded.bad] == list(damaged)
    assert decoded.frame.rows() == [tuple(row) for at, row in enumerate(rows) if at not in damaged]


GOOD: list[tuple[str, str, Any]] = [
    ("string", "x", "x"),
    ("string", " x ", " x "),
    ("boolean", "true", True),
    ("boolean", "FALSE", False),
    ("int64", "-12", -12),
    ("int64", "+12", 12),
    ("int64", "007", 7),
    ("int8", "127", 127),
    ("float64", "1.5e3", 1500.0),
    ("float64", ".5", 0.5),
    ("float64", "12", 12.0),
    ("float32", "0.5", 0.5),
    ("decimal(6, 2)", "12.5", Decimal("12.50")),
    ("decimal(6, 2)", "+0012.500", Decimal("12.50")),
    ("decimal(6, 2)", "1.2e1", Decimal("12.00")),
    ("date", "2024-02-29", dt.date(2024, 2, 29)),
    ("time", "23:59:59.5", dt.time(23, 59, 59, 500000)),
    ("timestamp", "2024-01-02 03:04:05+01:00", dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC)),
    ("timestamp", "1704164645123", dt.datetime(2024, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)),
    ("timestamp_ntz", "2024-01-02T03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5)),
    ("duration", "PT1.5S", dt.timedelta(seconds=1.5)),
    ("binary", "YWJj", b"abc"),
    ("array<int64>", '"[1, null]"', [1, None]),
    ("struct<a: array<date>>", '"{""a"": [""2024-01-02""]}"', {"a": [dt.date(2024, 1, 2)]}),
]


@pytest.mark.parametrize(("type_name", "field", "value"), GOOD)
def test_value_is_taken(type_name: str, field: str, value: Any, outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec().decoder(Schema.of({"x": type_name, "y": "int64"}))
    quoted = field if field.startswith('"') else f'"{field}"'
    bodies = [f"{field},1".encode(), b",2", f"{quoted},3".encode()]
    assert outcomes(decoder, bodies) == [(value, 1), (None, 2), (value, 3)]


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("boolean", "1"), ("boolean", "yes"), ("boolean", " true"), ("int64", "1.0"), ("int64", "1e3"), ("int64", " 1"),
        ("int64", "1 "), ("int64", "1_000"), ("int64", "0x10"), ("int64", "9223372036854775808"), ("int8", "128"),
        ("int64", "٣"), ("float64", "nan"), ("float64", "NaN"), ("float64", "inf"), ("float64", "-Infinity"),
        ("float64", "1e400"), ("float64", "1,5"), ("float64", "1.5f"), ("float32", "1e39"), ("decimal(4, 2)", "1.234"),
        ("decimal(4, 2)", "100"), ("decimal(4, 2)", "x"), ("decimal(4, 2)", "1e99999"), ("date", "02/01/2024"),
        ("time", "3pm"), ("timestamp", "2024-01-02"), ("timestamp", "1704164645.5"), ("timestamp", "9" * 18),
        ("timestamp", "9" * 30), ("timestamp_ntz", "2024-01-02T03:04:05Z"), ("duration", "90"), ("binary", "a"),
        ("array<int64>", "[1,"), ("array<int64>", "null"), ("array<int64>", "[" * 600), ("struct<a: int8>", "[]"),
    ],
)  # fmt: skip
def test_text_of_a_wrong_form_is_bad(type_name: str, text: str, outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec().decoder(Schema.of({"x": "string", "y": type_name}))
    written = '"' + text.replace('"', '""') + '"'
    found = outcomes(decoder, [b"a,", f"b,{written}".encode(), b"c,"])
    assert (found[0], found[2]) == (("a", None), ("c", None))
    assert isinstance(found[1], str)
    assert found[1].startswith("column 'y' (field 2): expected ")
    assert f'found "{text[:50]}' in found[1]


def test_faults_of_whole_bodies(outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec(CsvSettings(max_body_bytes=9)).decoder(Schema.of({"x": "string", "y": "int64"}))
    assert outcomes(decoder, [b"a,1", b"a", b"a,1,", b"", b"\xff,1", b"aaaaaaaa,1", "é,1".encode()]) == [
        ("a", 1), "expected 2 fields, found 1", "expected 2 fields, found 3", "expected 2 fields, found 1",
        "not valid UTF-8 at byte 0: invalid start byte", "the body has 10 bytes, more than max_body_bytes = 9", ("é", 1),
    ]  # fmt: skip


def test_fields_are_named_by_columns_and_the_rest_is_not_looked_at(outcomes: DecodeEveryWay) -> None:
    codec = CsvCodec(CsvSettings(columns=("a", "b", "c"), delimiter="\\t", quote="'", null_value="-"))
    schema = Schema.of({"c": "int64", "a": "string"})
    bodies = [b"x\t?\t1", b"-\t'\t'\t-", b"'-'\t\t'2'", b"\t\t3", b"x\t1", b'"\t-\t4']
    assert outcomes(codec.decoder(schema), bodies) == [
        (1, "x"), (None, None), (2, "-"), (3, ""), "expected 3 fields, found 2", (4, '"')
    ]  # fmt: skip
    assert outcomes(codec.decoder(schema, ["a"]), bodies[:2]) == [("x",), (None,)]
    none = codec.decoder(schema, [])
    assert outcomes(none, bodies) == [(), (), (), (), "expected 3 fields, found 2", ()]


def test_without_a_quote_character_nothing_is_quoted(outcomes: DecodeEveryWay) -> None:
    decoder = CsvCodec(CsvSettings(quote=None, null_value="\\N")).decoder(Schema.of({"x": "string", "y": "string"}))
    assert outcomes(decoder, [b'"a,b"', b"\\N,", b'"', b"a\nb,c"]) == [
        ('"a', 'b"'), (None, ""), "expected 2 fields, found 1", "field 1: a line break outside quotes"
    ]  # fmt: skip


def test_timestamp_options(outcomes: DecodeEveryWay) -> None:
    schema = Schema.of({"x": "timestamp"})
    moment = dt.datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)
    assert outcomes(CsvCodec(CsvSettings(timestamp_unit="s")).decoder(schema), [b"971211336"]) == [(moment,)]
    formatted = CsvCodec(CsvSettings(timestamp_format="%d.%m.%Y %H:%M:%S")).decoder(schema)
    found = outcomes(formatted, [b"10.10.2000 20:55:36", b"971211336", b""])
    wrong = "column 'x' (field 1): expected timestamp, found \"971211336\"; timestamp_format is '%d.%m.%Y %H:%M:%S'"
    assert found == [(moment,), wrong, (None,)]
    without_zone = CsvCodec(CsvSettings()).decoder(Schema.of({"x": "timestamp_ntz"}))
    assert outcomes(without_zone, [b"2000-10-10T20:55:36Z", b"soon"]) == [
        "column 'x' (field 1): expected timestamp_ntz, found \"2000-10-10T20:55:36Z\""
        "; it has a time zone: declare the column as timestamp (in SQL as TIMESTAMP_LTZ)",
        "column 'x' (field 1): expected timestamp_ntz, found \"soon\"",
    ]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"delimiter": ""}, "delimiter"), ({"delimiter": "::"}, "delimiter"), ({"delimiter": "\n"}, "delimiter"),
        ({"delimiter": "é"}, "delimiter"), ({"quote": "ab"}, "quote"), ({"quote": ","}, "quote"),
        ({"null_value": "a,b"}, "null_value"), ({"null_value": '"'}, "null_value"), ({"columns": ["a", "a"]}, "columns"),
    ],
)  # fmt: skip
def test_unusable_options_are_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        CsvSettings.of(options, plugin="csv")
    assert caught.value.option == option


def test_columns_that_do_not_fit_are_refused() -> None:
    codec = CsvCodec(CsvSettings(columns=("alpha", "beta")))
    with pytest.raises(OptionError, match=r"column 'beat' of the schema is not a field[\s\S]*did you mean 'beta'"):
        codec.decoder(Schema.of({"beat": "string"}))
    with pytest.raises(OptionError, match="cannot be read from text"):
        CsvCodec().decoder(Schema({"x": pl.Categorical()}))
    with pytest.raises(OptionError, match=r"there is no column 'beta'"):
        codec.encoder(Schema.of({"alpha": "string"}))
    with pytest.raises(OptionError, match=r"not known when the job is built[\s\S]*'columns'"):
        CsvCodec().encoder(None)


COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "string": ("string", st.text() | st.sampled_from(["", "NULL", 'a"b', "a,b", "a\nb", "a\rb", "\r", ";", "-"])),
    **PLAIN_COLUMNS,
    "duration": ("duration", st.timedeltas(dt.timedelta(days=-9), dt.timedelta(days=9))),
    "binary": ("binary", st.binary()),
    "array": ("array<string>", st.lists(st.none() | st.text())),
}
SCHEMA = Schema.of({name: type_name for name, (type_name, _) in COLUMNS.items()})
ROW_VALUES = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
ROWS = st.lists(ROW_VALUES.map(lambda row: {name: row[name] for name in COLUMNS}), max_size=6)


@given(ROWS, st.sampled_from([",", ";", "-", "1", "e", "|"]), st.sampled_from(["", "NULL", "0"]))
@settings(max_examples=examples(150), deadline=None)
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]], delimiter: str, null_value: str) -> None:
    codec = CsvCodec(CsvSettings(delimiter=delimiter, null_value=null_value))
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    encoder = codec.encoder(SCHEMA)
    bodies = encoder.encode(frame)
    decoded = codec.decoder(SCHEMA).decode(Bodies.of(bodies))
    assert not decoded.bad
    assert decoded.frame.equals(frame.with_columns(float64=pl.when(pl.col("float64").is_finite()).then("float64")))
    assert encoder.encode_lines(frame) == b"".join(body + b"\n" for body in bodies)
    dynamic = pl.DataFrame({ROW: pack_rows(rows)})
    assert encoder.encode(dynamic) == bodies


def test_form_of_records() -> None:
    frame = pl.DataFrame(
        {"s": ['a"b', "", None, "a,b\n"], "f": [1e16, math.nan, None, 0.1], "l": [[1], [], None, [None]]},
        schema_overrides={"l": pl.List(pl.Int64)},
    )
    schema = Schema(frame.schema)
    assert CsvCodec().encoder(schema).encode_lines(frame) == b'"a""b",1e+16,[1]\n"",,[]\n,,\n"a,b\n",0.1,[null]\n'
    chosen = CsvCodec(CsvSettings(columns=("l", "s"), null_value="NULL")).encoder(schema)
    assert chosen.encode(frame) == [b'[1],"a""b"', b"[],", b"NULL,NULL", b'[null],"a,b\n"']
    assert CsvCodec().encoder(schema).encode_lines(frame.clear()) == b""


def test_rows_that_have_no_form_are_refused() -> None:
    with pytest.raises(DataError, match="needs quotes"):
        CsvCodec(CsvSettings(quote=None)).encoder(Schema.of({"x": "string"})).encode(pl.DataFrame({"x": ["a,b"]}))
    with pytest.raises(DataError, match="has the column 'y'"):
        CsvCodec(CsvSettings(columns=("x",))).encoder(None).encode(pl.DataFrame({ROW: pack_rows([{"x": 1, "y": 2}])}))
    missing = CsvCodec(CsvSettings(columns=("x", "y"))).encoder(None)
    assert missing.encode(pl.DataFrame({ROW: pack_rows([{"y": True}, {}])})) == [b",true", b","]


@pytest.mark.parametrize("null_value", ["", "NULL"])
def test_fields_with_names_find_their_columns(null_value: str) -> None:
    schema = Schema.of({"s": "string", "n": "int64", "l": "array<int64>"})
    decoder = CsvCodec(CsvSettings(null_value=null_value)).decoder(schema, ["n", "s", "l"])

    def decode(fields: tuple[str, ...] | None, *bodies: bytes) -> tuple[list[tuple[Any, ...]], list[str]]:
        offsets = np.arange(len(bodies), dtype=np.int64)
        found = decoder.decode_records(RawBatch(offsets, ReadPosition(len(bodies)), Bodies.of(bodies), fields=fields))
        return found.frame.rows(), [bad.reason for bad in found.bad]

    assert decode(None, b"a,1,[2]") == ([(1, "a", [2])], [])
    assert decode(("x", "l", "n", "s"), b"0,[2],1,a", b"0,[2],y,a") == (
        [(1, "a", [2])],
        ["column 'n' (field 3): expected int64, found \"y\""],
    )
    assert decode(("n", "x"), b"1,0", b"2", b'"3",') == (
        [(1, None, None), (3, None, None)],
        ["expected 2 fields, found 1"],
    )
    assert decode(("x", "y"), b"1,0", b'"', b"") == (
        [(None, None, None)],
        ["field 1: the closing quote is missing", "expected 2 fields, found 1"],
    )
    assert decode(("x",), b"") == ([(None, None, None)], [])
    for number in range(200):  # more than are kept
        assert decode((f"c{number}", "n"), b"0,1") == ([(1, None, None)], [])
