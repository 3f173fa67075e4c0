"""Raw bodies: as they are, and cut by a pattern."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.codecs.raw import RawCodec, RawSettings
from headrace.flow.messages import ROW, Bodies
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.codec import Decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

Outcomes = list[tuple[Any, ...] | str]
DecodeEveryWay = Callable[[Decoder, Sequence[bytes]], Outcomes]

UTC = dt.UTC
ACCESS_LOG = (
    r'^(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<at>[^\]]+)\] "(?P<method>[A-Z]+) (?P<path>[^ "]+)[^"]*" '
    r'(?P<status>\d{3}) (?P<size>\S+)(?: "(?P<referrer>[^"]*)")?$'
)
LINE = '192.168.1.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /é HTTP/1.0" 200 2326 "http://x"'
ACCESS_SCHEMA = Schema.of(
    {"user": "string", "at": "timestamp", "status": "int16", "size": "int64", "referrer": "string"}
)
ACCESS = RawSettings(pattern=ACCESS_LOG, null_value="-", timestamp_format="%d/%b/%Y:%H:%M:%S %z")


def test_text_of_a_body(outcomes: DecodeEveryWay) -> None:
    codec = RawCodec()
    assert codec.default_schema() == Schema.of({"line": "string"})
    decoder = codec.decoder(codec.default_schema())
    assert outcomes(decoder, [b"a", b"", "é\n\x00".encode(), b"a\xff", b"\xed\xa0\x80"]) == [
        ("a",), ("",), ("é\n\x00",), "not valid UTF-8 at byte 1: invalid start byte",
        "not valid UTF-8 at byte 0: invalid continuation byte",
    ]  # fmt: skip
    assert outcomes(codec.decoder(codec.default_schema(), []), [b"a", b"\xff"])[0] == ()


def test_bytes_of_a_body(outcomes: DecodeEveryWay) -> None:
    codec = RawCodec(RawSettings(column="blob", type="binary", max_body_bytes=3))
    assert codec.default_schema() == Schema.of({"blob": "binary"})
    decoder = codec.decoder(codec.default_schema())
    found = outcomes(decoder, [b"\xff\x00", b"", b"abcd"])
    assert found == [(b"\xff\x00",), (b"",), "the body has 4 bytes, more than max_body_bytes = 3"]


def test_body_in_another_type(outcomes: DecodeEveryWay) -> None:
    decoder = RawCodec().decoder(Schema.of({"price": "decimal(5, 2)"}))
    found = outcomes(decoder, [b"1.5", b"x"])
    assert found == [(Decimal("1.50"),), "column 'price': expected decimal(5, 2), found \"x\""]


def test_groups_of_a_pattern_are_columns(outcomes: DecodeEveryWay) -> None:
    codec = RawCodec(ACCESS)
    names = ["host", "user", "at", "method", "path", "status", "size", "referrer"]
    assert codec.default_schema() == Schema.of(dict.fromkeys(names, "string"))
    bodies = [
        LINE, LINE.replace("2326", "-").replace(' "http://x"', ""), "junk", LINE.replace("Oct", "Xct"),
        LINE.replace("200 ", "999 ").replace("2326", "12a"), "prefix " + LINE, LINE + "\nsecond line",
    ]  # fmt: skip
    moment = dt.datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)
    assert outcomes(codec.decoder(ACCESS_SCHEMA), [body.encode() for body in bodies]) == [
        ("alice", moment, 200, 2326, "http://x"),
        ("alice", moment, 200, None, None),
        'the pattern is not found in "junk"',
        "column 'at': expected timestamp, found \"10/Xct/2000:13:55:36 -0700\"; timestamp_format is '%d/%b/%Y:%H:%M:%S %z'",
        "column 'size': expected int64, found \"12a\"",
        f'the pattern is not found in "{("prefix " + LINE)[:60]}…"',
        f'the pattern is not found in "{LINE[:60]}…"',
    ]
    assert outcomes(codec.decoder(ACCESS_SCHEMA, ["status"]), [b"junk", LINE.encode()])[1] == (200,)
    assert outcomes(codec.decoder(ACCESS_SCHEMA, []), [b"junk", LINE.encode()])[1] == ()


def test_body_that_does_not_match_can_be_a_row_of_nulls(outcomes: DecodeEveryWay) -> None:
    codec = RawCodec(RawSettings(pattern=r"(?P<n>\d+)?(?P<x>x)?!", no_match="null"))
    bodies = [b"ab1!", b"ab", b"!", b"\xff!", b""]
    schema = Schema.of({"n": "int64", "x": "string"})
    bad = "not valid UTF-8 at byte 0: invalid start byte"
    assert outcomes(codec.decoder(schema), bodies) == [(1, None), (None, None), (None, None), bad, (None, None)]
    strict = RawCodec(RawSettings(pattern=r"(?P<n>\d+)?(?P<x>x)?!"))
    found = outcomes(strict.decoder(schema), bodies)
    assert found[:3] == [(1, None), 'the pattern is not found in "ab"', (None, None)]


@given(st.lists(st.text("ab1 \né", max_size=6) | st.binary(max_size=4).map(lambda b: b.decode("latin-1"))))
@settings(max_examples=examples(200), deadline=None)
def test_fuzzed_bodies_are_cut_as_the_standard_library_does(outcomes: DecodeEveryWay, texts: list[str]) -> None:
    pattern = r"(?P<word>[ab]+)(?: (?P<digit>1))?"
    decoder = RawCodec(RawSettings(pattern=pattern)).decoder(Schema.of({"word": "string", "digit": "int8"}))
    for text, outcome in zip(texts, outcomes(decoder, [text.encode() for text in texts]), strict=True):
        found = re.search(pattern, text)
        if found is None:
            assert isinstance(outcome, str)
        else:
            assert outcome == (found["word"], None if found["digit"] is None else 1)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?<=a)(?P<x>b)", r"look-around[\s\S]*docs.rs/regex[\s\S]*no look-around"),
        (r"(?P<x>a)\1", r"backreferences are not supported[\s\S]*hint"),
        ("(?P<x>a", "unclosed group"),
        ("(?P<x>a)(?P<x>b)", "duplicate capture group name"),
        ("(a)", r"no named group[\s\S]*\(\?P<host>"),
        ("", "no named group"),
        ("(?P<__hr_x>a)", "reserved"),
        ("(?P<x>a{1000000000})", "unusable pattern"),
    ],
)
def test_pattern_that_cannot_be_used_is_refused_at_once(pattern: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        RawCodec(RawSettings(pattern=pattern))
    assert caught.value.option == "pattern"


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match="only in text, and the bodies are binary"):
        RawSettings.of({"pattern": "(?P<x>a)", "type": "binary"})
    with pytest.raises(OptionError, match="the schema has 2"):
        RawCodec().decoder(Schema.of({"a": "string", "b": "string"}))
    with pytest.raises(OptionError, match=r"column 'stat' of the schema is not a group[\s\S]*did you mean 'status'"):
        RawCodec(ACCESS).decoder(Schema.of({"stat": "string"}))
    with pytest.raises(OptionError, match=r"there is no column 'line'"):
        RawCodec().encoder(Schema.of({"a": "string", "b": "string"}))
    with pytest.raises(OptionError, match="neither string nor binary"):
        RawCodec().encoder(Schema.of({"line": "int64"}))


def test_one_column_is_written() -> None:
    encoder = RawCodec().encoder(Schema.of({"line": "string", "other": "int64"}))
    frame = pl.DataFrame({"line": ["a", None, "é"], "other": [1, 2, 3]})
    assert encoder.encode(frame) == [b"a", b"", "é".encode()]
    assert encoder.encode_lines(frame) == "a\n\né\n".encode()
    only = RawCodec().encoder(Schema.of({"blob": "binary"}))
    assert only.encode(pl.DataFrame({"blob": [b"\xff\n"]})) == [b"\xff\n"]
    with pytest.raises(DataError, match="line break"):
        only.encode_lines(pl.DataFrame({"blob": [b"\xff\n"]}))


def test_dynamic_rows_are_written() -> None:
    encoder = RawCodec().encoder(None)
    rows: list[dict[str, Any]] = [{"line": "a", "x": 1}, {"line": b"\xff"}, {}, {"line": None}]
    assert encoder.encode(pl.DataFrame({ROW: pack_rows(rows)})) == [b"a", b"\xff", b"", b""]
    with pytest.raises(DataError, match="is of type int"):
        encoder.encode(pl.DataFrame({ROW: pack_rows([{"line": 1}])}))


def test_what_is_written_is_read_back() -> None:
    codec = RawCodec(RawSettings(type="binary"))
    schema = codec.default_schema()
    frame = pl.DataFrame({"line": [bytes(range(256)), b"", b"\n"]})
    assert codec.decoder(schema).decode(Bodies.of(codec.encoder(schema).encode(frame))).frame.equals(frame)
