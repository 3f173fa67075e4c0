"""The formats of pairs: logfmt, CEF and LEEF, with lines of their descriptions, by the contract suite, and against a plain reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySource
from headrace_contract import CodecContract
from headrace_grok.pair_codecs import CefCodec, LeefCodec, LogfmtCodec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


def rows(
    format: str, lines: Sequence[str], schema: Mapping[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    source = MemorySource({"q": [line.encode() for line in lines]})
    found = hr.stream("tests", "pairs").from_(source, format=format, schema=schema, **options).collect()
    return [{name: value for name, value in row.items() if value is not None} for row in found.to_dicts()]


class PairContract(CodecContract):
    schema = {"id": "int64", "text": "string", "amount": "float64", "flag": "boolean"}
    encodes = False
    head = ""

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "text": None if number % 5 == 1 else f"text {number} = é",
            "amount": None if number % 3 == 2 else number / 8,
            "flag": None if number % 7 == 4 else number % 2 == 0,
        }

    def text_of(self, value: Any) -> str:
        return str(value)

    separator = " "

    def make_body(self, row: dict[str, Any]) -> bytes:
        pairs = [f"{name}={self.text_of(value)}" for name, value in row.items() if value is not None]
        return (self.head + self.separator.join(pairs)).encode()


class TestLogfmtCodec(PairContract):
    def make_codec(self) -> LogfmtCodec:
        return LogfmtCodec(LogfmtCodec.Settings.of({}))

    def text_of(self, value: Any) -> str:
        return f'"{value}"' if isinstance(value, str) else str(value)

    def bad_bodies(self) -> Sequence[bytes]:
        return [b'text="open', b"id=x", b"=1", b'text=a"b', b'text="a"b', b"\xff"]


class TestCefCodec(PairContract):
    head = "CEF:0|vendor|product|1.0|100|name|5|"

    def make_codec(self) -> CefCodec:
        return CefCodec(CefCodec.Settings.of({}))

    def text_of(self, value: Any) -> str:
        return str(value).replace("=", "\\=")

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"id=1", self.head.encode() + b"no key", self.head.encode() + b"id=x", b"CEF:0|a|b|c"]


class TestLeefCodec(PairContract):
    head = "LEEF:2.0|vendor|product|1.0|100|^|"
    separator = "^"

    def make_codec(self) -> LeefCodec:
        return LeefCodec(LeefCodec.Settings.of({}))

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"id=1", b"LEEF:1.0|a|b|c", self.head.encode() + b"id=x"]


def test_logfmt() -> None:
    """Of the description that https://brandur.org/logfmt gives."""
    line = 'at=info method=GET path=/ host=mutelight.org fwd="124.133.52.161" dyno=web.2 connect=4ms bytes=1653 tls error="a \\"b\\"\\n"'
    schema = {
        "method": "string",
        "fwd": "string",
        "bytes": "int32",
        "tls": "boolean",
        "error": "string",
        "nothing": "string",
    }
    assert rows("logfmt", [line], schema) == [
        {"method": "GET", "fwd": "124.133.52.161", "bytes": 1653, "tls": True, "error": 'a "b"\n'}
    ]


def test_a_key_within_a_value_is_no_key() -> None:
    lines = ['msg="level=error b" level=info', "xlevel=1 level=a level=b", "level=", 'level=""', ""]
    assert rows("logfmt", lines, {"level": "string"}) == [{"level": "info"}, {"level": "b"}, {}, {"level": ""}, {}]


def test_other_separators() -> None:
    lines = ["a: 1 2; b:x", 'b:"y;z" ;a:3']
    found = rows("logfmt", lines, {"a": "string", "b": "string"}, pair_separator=";", key_separator=":")
    assert found == [{"a": "1 2", "b": "x"}, {"a": "3", "b": "y;z"}]


@pytest.mark.parametrize(
    "options", [{"pair_separator": '"'}, {"key_separator": "\\"}, {"pair_separator": ";", "key_separator": ";"}]
)
def test_separators_that_divide_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(hr.OptionError, match="has a special meaning"):
        rows("logfmt", ["a=1"], {"a": "string"}, **options)


def test_cef() -> None:
    r"""Of ArcSight's description: blanks within values, \| in the head, \= and \n in the extension."""
    line = (
        r"Sep 19 08:26:10 host CEF:0|security|threat\|manager|1.0|100|detected a \\ in packet|10|"
        r"src=10.0.0.1 act=blocked a \\ dst=1.1.1.1 msg=Detected a threat.\n No action\=needed.  spt=1232 cs1="
    )
    schema = dict.fromkeys(("device_product", "name", "severity", "src", "act", "msg", "spt", "cs1", "host"), "string")
    assert rows("cef", [line], {**schema, "spt": "int64", "severity": "int64"}, line_column="host") == [
        {"device_product": "threat|manager", "name": "detected a \\ in packet", "severity": 10, "src": "10.0.0.1",
         "act": "blocked a \\", "msg": "Detected a threat.\n No action=needed.", "spt": 1232, "host": line}
    ]  # fmt: skip
    (plain,) = rows("cef", [line])
    assert plain["extension"].startswith("src=10.0.0.1 act=")


def test_leef() -> None:
    """Of QRadar's description: tabs in 1.0, any character in 2.0, also as its code."""
    lines = [
        "LEEF:1.0|Microsoft|MSExchange|4.0 SP1|15345|src=192.0.2.0\tdst=172.50.123.1\tsev=5\tmsg=two words",
        "LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=192.0.2.1^dst=172.50.123.1^sev=6",
        "LEEF:2.0|Lancope|StealthWatch|1.0|41|x7C|src=192.0.2.2|sev=7",
        "LEEF:2.0|Lancope|StealthWatch|1.0|41||src=192.0.2.3\tsev=8",
    ]
    schema = {"event_id": "string", "src": "string", "sev": "int8", "msg": "string"}
    assert rows("leef", lines, schema) == [
        {"event_id": "15345", "src": "192.0.2.0", "sev": 5, "msg": "two words"},
        {"event_id": "41", "src": "192.0.2.1", "sev": 6},
        {"event_id": "41", "src": "192.0.2.2", "sev": 7},
        {"event_id": "41", "src": "192.0.2.3", "sev": 8},
    ]


def read_logfmt(line: str) -> dict[str, str | None] | None:
    """Return the pairs of a line, read one after the other; None if it is not made of pairs."""
    found: dict[str, str | None] = {}
    at, pair = 0, re.compile(r'([^\s"=]+)(=(?:"((?:[^"\\]|\\.)*)"|([^\s"]*)))?(\s+|$)', re.ASCII)
    at = len(line) - len(line.lstrip(" \t\n\r\f\v"))
    while at < len(line):
        part = pair.match(line, at)
        if part is None:
            return None
        key, written, quoted, plain = part[1], part[2], part[3], part[4]
        if written is None:
            found[key] = "true"
        elif quoted is not None:
            found[key] = re.sub(r'\\(["\\n])', lambda each: {"n": "\n"}.get(each[1], each[1]), quoted)
        else:
            found[key] = plain or None
        at = part.end()
    return found


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.text('ab= "\\n', max_size=14), min_size=1, max_size=10))
def test_logfmt_is_as_a_plain_reader_has_it(lines: list[str]) -> None:
    codec = LogfmtCodec(LogfmtCodec.Settings.of({}))
    decoded = codec.decoder(hr.Schema.of({"a": "string", "b": "string"})).decode(
        hr.Bodies.of([line.encode() for line in lines])
    )
    wanted = [read_logfmt(line) for line in lines]
    assert [bad.row for bad in decoded.bad] == [row for row, pairs in enumerate(wanted) if pairs is None]
    good = [{"a": pairs.get("a"), "b": pairs.get("b")} for pairs in wanted if pairs is not None]
    assert decoded.frame.to_dicts() == good


def test_they_are_for_reading() -> None:
    with pytest.raises(hr.PlanError, match="'cef' can only be read"):
        CefCodec(CefCodec.Settings.of({})).encoder(None)
    with pytest.raises(hr.OptionError, match="needs a schema"):
        rows("logfmt", ["a=1"])
