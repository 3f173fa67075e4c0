"""JSON bodies: which values each type takes, what is bad and why, and that neighbours never matter."""

from __future__ import annotations

import base64
import datetime as dt
import sys
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace.codecs.body_checks import NESTING_MAX
from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import Decoder

Outcomes = list[tuple[Any, ...] | str]
DecodeEveryWay = Callable[[Decoder, Sequence[bytes]], Outcomes]

UTC = dt.UTC
#: (type, JSON text of the value, the value)
GOOD: list[tuple[str, str, Any]] = [
    ("string", '"abc"', "abc"),
    ("string", '""', ""),
    ("string", '"12"', "12"),
    ("string", r'"\u00e9\ud83d\ude00\n\"\\\/\u0000"', 'é😀\n"\\/\x00'),
    ("string", '"é😀\u2028"', "é😀\u2028"),
    ("string", "null", None),
    ("boolean", "true", True),
    ("boolean", "false", False),
    ("int8", "-128", -128),
    ("int16", "32767", 32767),
    ("int32", "-2147483648", -2147483648),
    ("int64", "9223372036854775807", 2**63 - 1),
    ("int64", "-0", 0),
    ("float64", "1", 1.0),
    ("float64", "-1.5e3", -1500.0),
    ("float64", "9007199254740993", 9007199254740992.0),
    ("float64", "123456789012345678901234567890", 1.2345678901234568e29),
    ("float64", "1e-400", 0.0),
    ("float32", "0.5", 0.5),
    ("decimal(10, 2)", "12.5", Decimal("12.50")),
    ("decimal(10, 2)", '"12.50"', Decimal("12.50")),
    ("decimal(10, 2)", '"\\u0031.5"', Decimal("1.50")),
    ("decimal(10, 2)", "1.2300", Decimal("1.23")),
    ("decimal(10, 2)", "1.5e3", Decimal("1500.00")),
    ("decimal(10, 2)", "0e-9999", Decimal("0.00")),
    ("decimal(38, 0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38, 38)", "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
    ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
    ("time", '"23:59:59.123456789"', dt.time(23, 59, 59, 123456)),
    ("time", '"23:59"', dt.time(23, 59)),
    ("timestamp", '"2024-01-02T03:04:05Z"', dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamp", '"2024-01-02 03:04:05.123456789+02:00"', dt.datetime(2024, 1, 2, 1, 4, 5, 123456, tzinfo=UTC)),
    ("timestamp", '"2024-01-02T03:04:05"', dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamp", "1704164645123", dt.datetime(2024, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)),
    ("timestamp", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("timestamp", "null", None),
    ("timestamp_ntz", '"2024-01-02T03:04:05.5"', dt.datetime(2024, 1, 2, 3, 4, 5, 500000)),
    ("timestamp_ntz", "1704164645123", dt.datetime(2024, 1, 2, 3, 4, 5, 123000)),
    ("duration", '"PT1H30M"', dt.timedelta(minutes=90)),
    ("duration", '"-P1DT0.5S"', -dt.timedelta(days=1, seconds=0.5)),
    ("binary", '"YWJj"', b"abc"),
    ("binary", '""', b""),
    ("array<int64>", "[1, null, 3]", [1, None, 3]),
    ("array<int64>", "[]", []),
    ("array<int64>", "null", None),
    ("array<timestamp>", '["2024-01-02T03:04:05Z", 0]',
     [dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    ("array<array<string>>", '[["a"], [], null]', [["a"], [], None]),
    ("struct<a: int64, b: string>", '{"b": "x", "c": [1]}', {"a": None, "b": "x"}),
    ("struct<a: int64, b: string>", "{}", {"a": None, "b": None}),
    ("struct<a: int64, b: string>", "null", None),
    ("array<struct<a: decimal(4, 1), b: binary>>", '[{"a": 1.5}, null, {"b": "AA=="}]',
     [{"a": Decimal("1.5"), "b": None}, None, {"a": None, "b": b"\x00"}]),
    ("struct<at: struct<when: date>>", '{"at": {"when": "2024-01-02"}}', {"at": {"when": dt.date(2024, 1, 2)}}),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "text", "value"), GOOD)
def test_value_is_taken(type_name: str, text: str, value: Any, outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": type_name}))
    bodies = [f'{{"x": {text}}}'.encode(), b'{"x": null}', b'{"y": 1}']
    assert outcomes(decoder, bodies) == [(value,), (None,), (None,)]


#: (type, JSON text of the value, what the reason says after "expected")
WRONG: list[tuple[str, str, str]] = [
    ("string", "12", "string, found number 12"),
    ("string", "true", "string, found boolean true"),
    ("string", "[1]", "string, found an array"),
    ("string", '{"a": 1}', "string, found an object"),
    ("boolean", "1", "boolean, found number 1"),
    ("boolean", '"true"', 'boolean, found string "true"'),
    ("int64", '"abc"', 'int64, found string "abc"'),
    ("int64", '"12"', 'int64, found string "12"'),
    ("int64", "1.5", "int64, found number 1.5"),
    ("int64", "1.0", "int64, found number 1.0"),
    ("int64", "1e3", "int64, found number 1e3"),
    ("int64", "true", "int64, found boolean true"),
    ("int64", "9223372036854775808", "int64, found number 9223372036854775808"),
    ("int64", "[]", "int64, found an array"),
    ("int8", "128", "int8, found number 128"),
    ("int16", "-32769", "int16, found number -32769"),
    ("int32", "2147483648", "int32, found number 2147483648"),
    ("float64", '"1.5"', 'float64, found string "1.5"'),
    ("float64", "1e400", "float64, found number 1e400"),
    ("float64", "false", "float64, found boolean false"),
    ("float32", "1e39", "float32, found number 1e39"),
    ("decimal(4, 2)", "1.234", "decimal(4, 2), found number 1.234"),
    ("decimal(4, 2)", "100", "decimal(4, 2), found number 100"),
    ("decimal(4, 2)", "1e999999999", "decimal(4, 2), found number 1e999999999"),
    ("decimal(4, 2)", '"NaN"', 'decimal(4, 2), found string "NaN"'),
    ("decimal(4, 2)", '" 1"', 'decimal(4, 2), found string " 1"'),
    ("decimal(4, 2)", '"1_0"', 'decimal(4, 2), found string "1_0"'),
    ("decimal(4, 2)", '""', 'decimal(4, 2), found string ""'),
    ("decimal(4, 2)", "true", "decimal(4, 2), found boolean true"),
    ("decimal(4, 2)", "[1]", "decimal(4, 2), found an array"),
    ("date", '"2023-02-29"', 'date, found string "2023-02-29"'),
    ("date", '"2024-01-02T00:00:00Z"', 'date, found string "2024-01-02T00:00:00Z"'),
    ("date", "19724", "date, found number 19724"),
    ("time", '"25:00:00"', 'time, found string "25:00:00"'),
    ("timestamp", '"yesterday"', 'timestamp, found string "yesterday"'),
    ("timestamp", '"1704164645123"', 'timestamp, found string "1704164645123"'),
    ("timestamp", '"2024-01-02"', 'timestamp, found string "2024-01-02"'),
    ("timestamp", "1.5", "timestamp, found number 1.5"),
    ("timestamp", "253402300800000", "timestamp, found number 253402300800000"),
    ("timestamp", "9223372036854775808", "timestamp, found number 9223372036854775808"),
    ("timestamp", "true", "timestamp, found boolean true"),
    (
        "timestamp_ntz", '"2024-01-02T03:04:05Z"',
        'timestamp_ntz, found string "2024-01-02T03:04:05Z"; it has a time zone: declare the column as timestamp (in SQL as TIMESTAMP_LTZ)',
    ),
    ("duration", "5", "duration, found number 5"),
    ("duration", '"P1Y"', 'duration, found string "P1Y"'),
    ("duration", '"P106751992D"', 'duration, found string "P106751992D"'),
    ("duration", '"P99999999999999999999D"', 'duration, found string "P99999999999999999999D"'),
    ("binary", '"YWJ"', 'binary, found string "YWJ"'),
    ("binary", '"YW-_"', 'binary, found string "YW-_"'),
    ("binary", "7", "binary, found number 7"),
    ("array<int64>", "1", "array<int64>, found number 1"),
    ("array<timestamp>", '["2024-01-02T03:04:05Z", "x"]', "array<timestamp>, found an array"),
    ("struct<a: int64>", "[]", "struct<a: int64>, found an array"),
    ("struct<a: decimal(3, 1)>", '{"a": 1.25}', "struct<a: decimal(3, 1)>, found an object"),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "text", "expected"), WRONG)
def test_value_of_a_wrong_type_is_bad(type_name: str, text: str, expected: str, outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"before": "int64", "x": type_name}))
    bodies = [b'{"before": 1}', f'{{"before": 2, "x": {text}}}'.encode(), b'{"x": null, "before": 3}']
    assert outcomes(decoder, bodies) == [(1, None), f"column 'x': expected {expected}", (3, None)]


def test_place_of_a_wrong_type_within_a_nested_value_is_named(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "array<struct<a: array<int8>>>"}))
    reason = "column 'x' (type array<struct<a: array<int8>>>) at [1].a[0]: Expected int <= 127"
    assert outcomes(decoder, [b'{"x": [{"a": [1]}, {"a": [300]}]}']) == [reason]


SYNTAX: list[tuple[bytes, str]] = [
    (b"", "the body is empty"),
    (b" \n ", "the body is blank"),
    (b'{"x": "abc', "not valid JSON: ends too early, after 10 bytes"),
    (b'{"x": 1', "not valid JSON: ends too early, after 7 bytes"),
    (b"{", "not valid JSON: ends too early, after 1 bytes"),
    (b'{"x": 01}', "not valid JSON at byte 7: invalid number, found '1'"),
    (b'{"x": NaN}', "not valid JSON at byte 6: invalid character, found 'N'"),
    (b'{"x": 1,}', "not valid JSON at byte 8: trailing comma in object, found '}'"),
    (b'{"y": [1,]}', "not valid JSON at byte 9: trailing comma in array, found ']'"),
    (b"{'x': 1}", 'not valid JSON at byte 1: object keys must be strings, found "\'"'),
    (b'{"x": 1} {"x": 2}', "not valid JSON at byte 9: trailing characters, found '{'"),
    (b'{"x": 1}\x00', "not valid JSON at byte 8: trailing characters, found a NUL byte"),
    (b'{"x": "a\x00b"}', "not valid JSON at byte 8: invalid character, found a NUL byte"),
    (b'{"y": "a\x00b"}', "not valid JSON at byte 8: invalid character, found a NUL byte"),
    (b'{"x": "a\nb"}', "not valid JSON at byte 8: invalid character, found '\\n'"),
    (b'{"x": "\\q"}', "not valid JSON at byte 8: invalid escaped character, found 'q'"),
    (b'{"x": "\\ud800"}', "not valid JSON: lone surrogate in a \\u escape"),
    (b'{"y": "\\udc00 and more text"}', "not valid JSON at byte 13: lone surrogate in a \\u escape"),
    (b'{"\\ud800 and more text": 1}', "not valid JSON at byte 8: lone surrogate in a \\u escape"),
    (b'{"x": "\xff"}', "not valid UTF-8 at byte 7: invalid start byte"),
    (b'{"y": "\xff"}', "not valid UTF-8 at byte 7: invalid start byte"),
    (b'{"\xc3": 1}', "not valid UTF-8 at byte 2: invalid continuation byte"),
    (b'{"y": "\xed\xa0\x80"}', "not valid UTF-8 at byte 7: invalid continuation byte"),
    (b'{"x": "\xc3', "not valid UTF-8 at byte 7: unexpected end of data"),
    (b"\xef\xbb\xbf{}", "not valid JSON at byte 0: invalid character, found '\\ufeff'"),
    (b"[]", "expected an object at the top level, found array"),
    (b"12", "expected an object at the top level, found int"),
    (b'"x"', "expected an object at the top level, found str"),
    (b"null", "expected an object at the top level, found null"),
    (b'{"x": "a"}{', "not valid JSON at byte 10: trailing characters, found '{'"),
]


@pytest.mark.parametrize(("body", "reason"), SYNTAX)
def test_body_that_is_no_object_is_bad(body: bytes, reason: str, outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "string"}))
    good = '{"x": "é"}'.encode()
    assert outcomes(decoder, [good, body, body, good]) == [("é",), reason, reason, ("é",)]


def test_bodies_that_would_make_sense_only_together_are_bad(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "int64"}))
    found = outcomes(decoder, [b'{"x":', b"1}", b'{"x": 2}\n{"x": 3}', b'{"x"\n:\n4}\n'])
    assert [isinstance(outcome, str) for outcome in found] == [True, True, True, False]
    assert found[3] == (4,)


@pytest.mark.parametrize(
    "bodies",
    [
        # As many objects as bodies, but not one in each.
        [b'{"x":1}{"x":2}', b'{"y":[', b'{}],"x":3}'],
        [b'{"y":[{}', b'{"x":4}]}{"x":5}'],
        [b'{"y":[{}', b'],"x":4}{"x":5}'],
        [b'{"y":"}', b'{"}', b'{"x":1}{"x":2}'],
        [b'{"x":1}\n{"x":2}', b'{"y":{', b"}}"],
        [b"{", b"}{}"],
        [b'{"x":1} ', b' {"x":2}', b'{"x":3}\n\n{"x":4}', b""],
    ],
    ids=str,
)
def test_as_many_objects_as_bodies_are_not_one_in_each(bodies: list[bytes], outcomes: DecodeEveryWay) -> None:
    schema = Schema.of({"x": "int64"})
    expected = [outcomes(JsonCodec().decoder(schema), [body])[0] for body in bodies]
    assert any(isinstance(outcome, str) for outcome in expected)
    assert [repr(one) for one in outcomes(JsonCodec().decoder(schema), bodies)] == list(map(repr, expected))


def test_batches_with_and_without_bad_bodies_follow_one_another() -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "int64"}))
    good, bad = [b'{"x":%d}' % number for number in range(5)], [b'{"x":1}', b'{"x":"1"}', b'{"x":2}']
    for turn in range(40):
        decoded = decoder.decode(Bodies.of(bad if turn in (3, 4, 30) else good))
        expected = ([1, 2], [1]) if turn in (3, 4, 30) else ([0, 1, 2, 3, 4], [])
        assert (decoded.frame["x"].to_list(), [body.row for body in decoded.bad]) == expected


def test_last_of_repeated_keys_wins_but_json_types_of_all_have_to_fit(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "int64"}))
    found = outcomes(decoder, [b'{"x": 1, "x": 2}', b'{"x": 1, "x": null}', b'{"x": "a", "x": 2}'])
    assert found[:2] == [(2,), (None,)]
    assert (
        found[2] == "a key is repeated, and one of its values does not fit: Expected `int | null`, got `str` - at `$.x`"
    )
    decimal = JsonCodec().decoder(Schema.of({"x": "decimal(3, 1)"}))
    assert outcomes(decimal, [b'{"x": 1.25, "x": 1.5}', b'{"x": 1.5, "x": 1.25}']) == [
        (Decimal("1.5"),), "column 'x': expected decimal(3, 1), found number 1.25"
    ]  # fmt: skip


def test_keys_are_compared_after_unescaping_and_by_case(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "int64", "héllo wörld.1": "int64", "class": "int64"}))
    bodies = [rb'{"\u0078": 1}', '{"h\\u00e9llo wörld.1": 2}'.encode(), b'{"X": 3, "class": 4}']
    assert outcomes(decoder, bodies) == [(1, None, None), (None, 2, None), (None, None, 4)]


@pytest.mark.parametrize("where", ["x", "y"])
def test_nesting_is_limited_to_the_same_depth_everywhere(where: str, outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec(JsonSettings(json_columns=("x",))).decoder(Schema.of({"x": "string"}))

    def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
        return f'{{"{where}": {opening * (levels - 1)}1{closing * (levels - 1)}}}'.encode()

    value = "[" * (NESTING_MAX - 1) + "1" + "]" * (NESTING_MAX - 1) if where == "x" else None
    brackets_in_text = ('{"x": null, "y": "' + '[\\"{\\\\' * 1000 + '"}').encode()
    reason = f"nested {NESTING_MAX + 1} levels deep, more than {NESTING_MAX}"
    bodies = [nested(NESTING_MAX), nested(NESTING_MAX + 1), nested(NESTING_MAX + 1, '{"a":', "}"), brackets_in_text]
    bodies += [b"[" * 100_000, b'{"a":' * 100_000]
    assert outcomes(decoder, bodies) == [
        (value,), reason, reason, (None,),
        f"nested 100000 levels deep, more than {NESTING_MAX}", f"nested 100000 levels deep, more than {NESTING_MAX}",
    ]  # fmt: skip


def test_nesting_does_not_depend_on_the_callers_stack() -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "int64"}))
    levels = NESTING_MAX - 1
    deep = b'{"x": 1, "y": ' + b"[" * levels + b"]" * levels + b"}"
    wrong = b'{"y": ' + b"[" * levels + b"]" * levels + b', "x": "a"}'

    def decode_below(frames: int) -> Any:
        return decode_below(frames - 1) if frames else decoder.decode(Bodies.of([deep, b'{"x": 2}', wrong, deep]))

    decoded = decode_below(sys.getrecursionlimit() - 300)
    assert decoded.frame["x"].to_list() == [1, 2, 1]
    assert [bad.reason for bad in decoded.bad] == ["column 'x': expected int64, found string \"a\""]


def test_large_body_is_bad(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec(JsonSettings(max_body_bytes=20)).decoder(Schema.of({"x": "string"}))
    fits, beyond = b'{"x": "' + b"a" * 11 + b'"}', b'{"x": "' + b"a" * 12 + b'"}'
    reason = "the body has 21 bytes, more than max_body_bytes = 20"
    assert outcomes(decoder, [fits, beyond, b"\xff" * 21]) == [("a" * 11,), reason, reason]


@pytest.mark.parametrize(
    ("unit", "number", "microsecond"),
    [("s", 5, 0), ("ms", 5_001, 1000), ("us", 5_000_001, 1), ("ns", 5_000_001_999, 1)],
)
def test_timestamp_unit(unit: Any, number: int, microsecond: int, outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec(JsonSettings(timestamp_unit=unit)).decoder(Schema.of({"x": "timestamp"}))
    assert outcomes(decoder, [f'{{"x": {number}}}'.encode()]) == [
        (dt.datetime(1970, 1, 1, 0, 0, 5, microsecond, tzinfo=UTC),)
    ]


def test_timestamp_format(outcomes: DecodeEveryWay) -> None:
    codec = JsonCodec(JsonSettings(timestamp_format="%d/%b/%Y:%H:%M:%S %z"))
    decoder = codec.decoder(Schema.of({"x": "timestamp"}))
    bodies = [b'{"x": "10/Oct/2000:13:55:36 -0700"}', b'{"x": "2000-10-10T20:55:36Z"}', b'{"x": 971211336000}', b"{}"]
    moment = dt.datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)
    wrong = "column 'x': expected timestamp, found string \"2000-10-10T20:55:36Z\"; timestamp_format is '%d/%b/%Y:%H:%M:%S %z'"
    assert outcomes(decoder, bodies) == [(moment,), wrong, (moment,), (None,)]
    with pytest.raises(OptionError, match="has a time zone"):
        codec.decoder(Schema.of({"x": "timestamp_ntz"}))


def test_a_text_with_a_zone_in_a_column_without_one(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec(JsonSettings()).decoder(Schema.of({"x": "timestamp_ntz"}))
    expected = "column 'x': expected timestamp_ntz, found string "
    assert outcomes(decoder, [b'{"x": "2000-10-10 20:55:36+02:00"}', b'{"x": "soon"}', b'{"x": 1.5}']) == [
        f'{expected}"2000-10-10 20:55:36+02:00"; it has a time zone: declare the column as timestamp (in SQL as TIMESTAMP_LTZ)',
        expected + '"soon"',
        "column 'x': expected timestamp_ntz, found number 1.5",
    ]


@pytest.mark.parametrize("layout", ["%Q", "%", "%H:%M", "%b %d %H:%M:%S", "plain", ""])
def test_unusable_timestamp_format_is_refused_at_once(layout: str) -> None:
    with pytest.raises(OptionError, match="unusable time layout"):
        JsonCodec(JsonSettings(timestamp_format=layout))


def test_column_of_json_text_holds_any_value(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec(JsonSettings(json_columns=("x",))).decoder(Schema.of({"x": "json"}))
    bodies = [b'{"x": {"a": [1, 2.50, "\\u00e9"]}}', b'{"x": "s"}', b'{"x":1e400 }', b'{"x": null}', b"{}", b'{"x": [}']
    found = outcomes(decoder, bodies)
    assert found[:5] == [('{"a": [1, 2.50, "\\u00e9"]}',), ('"s"',), ("1e400",), (None,), (None,)]
    assert found[5] == "not valid JSON at byte 7: invalid character, found '}'"


def test_other_units_and_widths_of_polars_types(outcomes: DecodeEveryWay) -> None:
    types: dict[str, pl.DataType] = {
        "u8": pl.UInt8(), "u64": pl.UInt64(), "i128": pl.Int128(), "ms": pl.Datetime("ms", "Europe/Berlin"),
        "ns": pl.Datetime("ns", "UTC"), "span": pl.Duration("ns"),
    }  # fmt: skip
    decoder = JsonCodec().decoder(Schema(types))
    frame = decoder.decode(Bodies.of([
        b'{"u8": 255, "u64": 18446744073709551615, "i128": -170141183460469231731687303715884105728,'
        b' "ms": "2024-01-01T00:00:00.9999Z", "ns": "2262-01-01T00:00:00.123456789Z", "span": "PT1S"}'
    ])).frame  # fmt: skip
    assert dict(frame.schema) == types
    assert frame.select("u8", "u64", "i128").row(0) == (255, 2**64 - 1, -(2**127))
    assert frame.select(pl.col("ms", "ns").to_physical()).row(0) == (1704067200999, 9214646400123456789)
    bodies = [b'{"u8": -1}', b'{"u64": 18446744073709551616}', b'{"i128": 1' + b"0" * 40 + b"}",
              b'{"ns": "2300-01-01T00:00:00Z"}', b'{"span": "P300000D"}', b'{"i128": 1' + b"0" * 5000 + b"}"]  # fmt: skip
    found = outcomes(decoder, bodies)
    assert [str(outcome).partition(",")[0] for outcome in found] == [
        "column 'u8': expected uint8", "column 'u64': expected uint64", "column 'i128': expected int128",
        "column 'ns': expected timestamp", "column 'span': expected duration", "column 'i128': expected int128",
    ]  # fmt: skip


def test_only_wanted_columns_are_judged_and_come_in_the_wanted_order(outcomes: DecodeEveryWay) -> None:
    schema = Schema.of({"a": "int64", "b": "string", "c": "int64"})
    bodies = [b'{"a": 1, "b": "x", "c": 2}', b'{"a": 1, "b": 5, "c": 2}', b'{"a": 1, "b": "x", "c": "x"}']
    assert outcomes(JsonCodec().decoder(schema, ["c", "a"]), bodies) == [
        (2, 1), (2, 1), "column 'c': expected int64, found string \"x\""
    ]  # fmt: skip
    none = JsonCodec().decoder(schema, [])
    assert outcomes(none, [*bodies, b"[]"]) == [(), (), (), "expected an object at the top level, found array"]
    assert none.decode(Bodies.of(bodies)).frame.shape == (3, 0)


def test_types_and_rows_of_what_is_decoded() -> None:
    schema = Schema.of({name: type_name for name, (type_name, _, _) in zip("abcdefghij", GOOD[::6], strict=False)})
    decoder = JsonCodec().decoder(schema)
    empty = decoder.decode(Bodies.of([]))
    assert (dict(empty.frame.schema), empty.frame.height, empty.rows, len(empty.bad)) == (dict(schema), 0, None, 0)
    assert decoder.decode(Bodies.of([b"{}"])).rows is None
    decoded = decoder.decode(Bodies.of([b"{", b"{}", b"{", b"{}"]))
    assert decoded.rows is not None
    assert decoded.rows.dtype == np.int64
    assert decoded.rows.tolist() == [1, 3]
    assert dict(decoded.frame.schema) == dict(schema)
    only_bad = decoder.decode(Bodies.of([b"{"]))
    assert (dict(only_bad.frame.schema), only_bad.frame.height) == (dict(schema), 0)


def test_wrong_use_is_refused_when_a_decoder_is_made() -> None:
    schema = Schema.of({"alpha": "int64"})
    with pytest.raises(OptionError, match=r"'alpa' is not in the schema[\s\S]*did you mean 'alpha'"):
        JsonCodec().decoder(schema, ["alpa"])
    with pytest.raises(OptionError, match="json_columns"):
        JsonCodec(JsonSettings(json_columns=("beta",))).decoder(schema)
    with pytest.raises(OptionError, match="must contain JSON text"):
        JsonCodec(JsonSettings(json_columns=("alpha",))).decoder(schema)
    with pytest.raises(OptionError, match=r"column 'x\.y'.*cannot be read from JSON"):
        JsonCodec().decoder(Schema({"x": pl.Struct({"y": pl.Categorical()})}))
    with pytest.raises(OptionError, match="JSON key"):
        JsonCodec().decoder(Schema({'x"y': pl.Int64()}))


def test_binary_is_standard_base64(outcomes: DecodeEveryWay) -> None:
    decoder = JsonCodec().decoder(Schema.of({"x": "binary"}))
    values = [bytes(range(count)) for count in range(256)]
    bodies = [b'{"x": "' + base64.b64encode(value) + b'"}' for value in values]
    assert outcomes(decoder, bodies) == [(value,) for value in values]


def test_decoders_work_in_several_threads_each() -> None:
    schema = Schema.of({"x": "int64"})
    found: list[list[int]] = []

    def run() -> None:
        decoder = JsonCodec().decoder(schema)
        found.append(decoder.decode(Bodies.of([b'{"x": %d}' % number for number in range(2000)])).frame["x"].to_list())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(2000))] * 4
