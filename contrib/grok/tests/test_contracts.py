"""Runs the contract suites on the verb and the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract, OperatorContract
from headrace_grok.codec import GrokCodec
from headrace_grok.operator import Grok

PATTERNS = (
    "%{IP:client} %{WORD:method} %{NOTSPACE:path} %{INT:status:int}",
    "(?<method>[A-Z]+) failed: %{GREEDYDATA:why}",
)


def line_of(number: int) -> str | None:
    """Return a line, some of which no pattern fits; NULL now and then."""
    return (
        f"10.0.0.{number % 250} GET /page/{number}?q=é {200 + number}",
        f"POST failed: time-out after {number} s",
        None,
        f"10.0.0.{number % 250} GET ",
        "",
        f"10.0.0.{number % 250} PUT /x {number} more\nthan one line",
    )[number % 6]


class TestGrok(OperatorContract):
    schema = {"message": "string", "host": "string"}
    rows_out = "one"

    def make_spec(self) -> Grok:
        return Grok(PATTERNS)

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        return [{"message": line_of(number), "host": f"h{number % 7}"} for number in range(first, first + count)]

    def bad_row(self) -> dict[str, Any]:
        return {"message": "10.0.0.1 GET", "host": "h"}

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"message": "int64"}


class TestGrokWithAllPatternsThatFit(TestGrok):
    def make_spec(self) -> Grok:
        patterns = (*PATTERNS, "^%{IPV4:host}")
        return Grok(patterns, break_on_match=False, no_match="null", overwrite="host", engine="polars")

    def bad_row(self) -> dict[str, Any]:
        return {"message": "10.0.0.1 GET / 99999999999999999999", "host": "h"}


class TestGrokThatNeedsPython(TestGrok):
    """A pattern with look-around, which Rust's engine does not run."""

    def make_spec(self) -> Grok:
        return Grok([r"(?<!\d)%{IP:client} (?>%{WORD:method}) (?!x)%{NOTSPACE:path} %{INT:status:int}", PATTERNS[1]])


class GrokCodecContract(CodecContract):
    schema = {"id": "int64", "text": "string", "amount": "float64", "flag": "boolean"}
    encodes = False
    pattern = (
        r"^id=%{INT:id:int} amount=(?:-|%{NUMBER:amount:float}) flag=(?:-|%{WORD:flag:bool}) text=(?:-|<%{DATA:text}>)$"
    )

    def make_codec(self) -> GrokCodec:
        return GrokCodec(GrokCodec.Settings.of({"pattern": self.pattern, "pattern_definitions": {"UNUSED": "x"}}))

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "text": None if number % 5 == 1 else f"text {number} é",
            "amount": None if number % 3 == 2 else number / 8,
            "flag": None if number % 7 == 4 else number % 2 == 0,
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        amount = "-" if row["amount"] is None else repr(row["amount"])
        flag = "-" if row["flag"] is None else str(row["flag"])
        text = "-" if row["text"] is None else f"<{row['text']}>"
        return f"id={row['id']} amount={amount} flag={flag} text={text}".encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"",
            b"id= amount=- flag=- text=-",
            b"id=1 amount=- flag=perhaps text=-",
            b"id=99999999999999999999 amount=- flag=- text=-",
            b"id=1 amount=- flag=- text=<\xff>",
        ]


class TestGrokCodec(GrokCodecContract):
    pass


class TestGrokCodecWithoutHyperscan(GrokCodecContract):
    def make_codec(self) -> GrokCodec:
        return GrokCodec(GrokCodec.Settings.of({"patterns": [self.pattern, "^never$"], "engine": "polars"}))


def test_both_are_found_by_their_name() -> None:
    assert default_registry().find("operator", "grok") is Grok
    assert default_registry().find("codec", "grok") is GrokCodec
    assert isinstance(Grok(PATTERNS), hr.OperatorSpec)
