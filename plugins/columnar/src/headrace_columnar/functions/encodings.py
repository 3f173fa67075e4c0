"""Functions that convert text to bytes, numbers or codes and back, and that test which characters a text has."""

from __future__ import annotations

import base64
import binascii
import codecs
import functools

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_values


@function(
    "ascii",
    signature="text string -> int64",
    summary="The code point of the first character, 0 for empty text.",
    examples=[("ascii('a')", 97), ("ascii('')", 0)],
)
def ascii_(call: Call) -> pl.Expr:
    return map_values(call[0], _code, pl.Int64())


def _code(text: str) -> int:
    return ord(text[0]) if text else 0


@function(
    "chr",
    "char",
    signature="code integer -> string",
    summary="The character with a code point (modulo 256, as in Spark and Flink); empty for negative ones.",
    examples=[("chr(97)", "a"), ("chr(255)", "ÿ"), ("chr(353)", "a")],
)
def chr_(call: Call) -> pl.Expr:
    return map_values(call[0], _character, pl.String())


def _character(code: int) -> str:
    return chr(code % 256) if code >= 0 else ""


@function(
    "to_base64",
    "base64",
    signature="data bytes -> string",
    summary="The bytes in base 64.",
    examples=[("to_base64('Hi')", "SGk=")],
)
def to_base64(call: Call) -> pl.Expr:
    return call[0].bin.encode("base64")


@function(
    "from_base64",
    signature="text string -> string",
    summary="The text that base 64 encodes; NULL if the argument is not base 64 (as in Flink). See unbase64 for bytes.",
    examples=[("from_base64('SGk=')", "Hi"), ("from_base64('!')", None)],
)
def from_base64(call: Call) -> pl.Expr:
    return map_values(call[0], _text_from_base64, pl.String())


def _text_from_base64(text: str) -> str | None:
    data = _bytes_from_base64(text)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


@function(
    "unbase64",
    signature="text string -> binary",
    summary="The bytes that base 64 encodes; NULL if the argument is not base 64.",
    examples=[("unbase64('SGk=')", b"Hi")],
)
def unbase64(call: Call) -> pl.Expr:
    return map_values(call[0], _bytes_from_base64, pl.Binary())


def _bytes_from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


@function(
    "hex",
    signature=["number integer -> string", "data bytes -> string"],
    summary="A whole number, or bytes, in hexadecimal digits (capitals).",
    examples=[("hex(255)", "FF"), ("hex('Spark SQL')", "537061726B2053514C"), ("hex(-1)", "FFFFFFFFFFFFFFFF")],
)
def hex_(call: Call) -> pl.Expr:
    if call.arguments[0].data_type.is_integer():
        return map_values(call[0], _hex_number, pl.String())
    return call[0].bin.encode("hex").str.to_uppercase()


def _hex_number(number: int) -> str:
    return f"{number % 2**64:X}"


@function(
    "unhex",
    signature="text string -> binary",
    summary="The bytes that hexadecimal digits encode; NULL if the text has other characters.",
    examples=[("unhex('4D7953514C')", b"MySQL"), ("unhex('x')", None)],
)
def unhex(call: Call) -> pl.Expr:
    return map_values(call[0], _from_hex, pl.Binary())


def _from_hex(text: str) -> bytes | None:
    try:
        return binascii.unhexlify(text if len(text) % 2 == 0 else "0" + text)
    except (binascii.Error, ValueError):
        return None


@function(
    "decode",
    signature="data bytes, charset constant string -> string",
    summary="The text that bytes mean in a character set (utf-8, iso-8859-1, us-ascii, utf-16, …); NULL if they mean none.",
    examples=[("decode(X'C3A9', 'utf-8')", "é"), ("decode(X'E9', 'iso-8859-1')", "é")],
)
def decode(call: Call) -> pl.Expr:
    charset = _charset(call)
    return map_values(call[0], functools.partial(_decoded, charset), pl.String())


def _charset(call: Call) -> str:
    try:
        return codecs.lookup(str(call.constant(1))).name
    except LookupError:
        raise call.error(1, f"unknown character set {call.constant(1)!r}") from None


def _decoded(charset: str, data: bytes) -> str | None:
    try:
        return data.decode(charset)
    except UnicodeError:
        return None


@function(
    "encode",
    signature="text string, charset constant string -> binary",
    summary="The bytes of a text in a character set; NULL if it has no such bytes.",
    examples=[("encode('é', 'iso-8859-1')", b"\xe9")],
)
def encode(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_encoded, _charset(call)), pl.Binary())


def _encoded(charset: str, text: str) -> bytes | None:
    try:
        return text.encode(charset)
    except UnicodeError:
        return None


def _test(call: Call, pattern: str) -> pl.Expr:
    return call[0].str.contains(pattern).fill_null(False)


@function(
    "is_alpha",
    signature="text string -> boolean",
    summary="Whether the text has letters only, and is not empty; false for NULL.",
    examples=[("is_alpha('asd')", True), ("is_alpha('a1')", False), ("is_alpha(NULL)", False)],
    answers_null=True,
)
def is_alpha(call: Call) -> pl.Expr:
    return _test(call, r"^\p{L}+$")


@function(
    "is_digit",
    signature="text string -> boolean",
    summary="Whether the text has decimal digits only, and is not empty; false for NULL.",
    examples=[("is_digit('3')", True), ("is_digit('3a')", False), ("is_digit(NULL)", False)],
    answers_null=True,
)
def is_digit(call: Call) -> pl.Expr:
    return _test(call, r"^\p{Nd}+$")


@function(
    "is_decimal",
    signature="text string -> boolean",
    summary="Whether the text is a number; false for NULL.",
    examples=[
        ("is_decimal('11.4445')", True),
        ("is_decimal('1e5')", True),
        ("is_decimal('x')", False),
        ("is_decimal(NULL)", False),
    ],
    answers_null=True,
)
def is_decimal(call: Call) -> pl.Expr:
    return _test(call, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
