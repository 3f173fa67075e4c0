"""Values of attributes as JSON: of messages of Protocol Buffers, and of the structs of OTLP's JSON."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headrace_otlp.json_messages import AnyValue

ValueOf = Callable[[Any], Any]
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|-?Infinity")


class NotAValueError(ValueError):
    """A text is no number, no Base64 or no id."""


def value_of_message(value: Any) -> Any:
    """Return an ``AnyValue`` of Protocol Buffers as what becomes JSON: bytes are Base64, numbers that JSON lacks are texts."""
    kind = value.WhichOneof("value")
    if kind in ("string_value", "bool_value", "int_value"):
        return getattr(value, kind)
    if kind == "double_value":
        return _double(value.double_value)
    if kind == "array_value":
        return [value_of_message(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return {each.key: value_of_message(each.value) for each in value.kvlist_value.values}
    return base64.b64encode(value.bytes_value).decode() if kind == "bytes_value" else None


def value_of_struct(value: AnyValue | None) -> Any:
    """Return a value of OTLP's JSON as ``value_of_message`` does. Raises NotAValueError."""
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return integer(value.int_value, -(2**63), 2**63 - 1)
    if value.double_value is not None:
        return _double(_number(value.double_value))
    if value.array_value is not None:
        return [value_of_struct(each) for each in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return {each.key or "": value_of_struct(each.value) for each in value.kvlist_value.values or ()}
    return None if value.bytes_value is None else _base64(value.bytes_value)


def attributes(pairs: Iterable[Any] | None, value_of: ValueOf) -> bytes:
    """Return attributes as a JSON object; of several with one name the last one counts."""
    return encode({pair.key or "": value_of(pair.value) for pair in pairs}) if pairs else b"{}"


def text_of(value: Any) -> str | None:
    """Return a value as text: a text as it is, another value as JSON."""
    return value if value is None or type(value) is str else encode(value).decode()


def integer(value: int | str | None, least: int, most: int) -> int:
    """Return a whole number of JSON, also one that is written as a text; 0 for None. Raises NotAValueError."""
    if value is None:
        return 0
    if type(value) is str and not _INTEGER.fullmatch(value):
        raise NotAValueError(f"expected a whole number, found {value[:60]!r}")
    number = int(value)
    if not least <= number <= most:
        raise NotAValueError(f"{number} is not between {least} and {most}")
    return number


def hexadecimal(value: str | None) -> str | None:
    """Return an id in small letters; None for an empty one. Raises NotAValueError."""
    try:
        return bytes.fromhex(value).hex() if value else None
    except ValueError:
        raise NotAValueError(f"expected an id in hexadecimal digits, found {(value or '')[:60]!r}") from None


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: float | str) -> float:
    if type(value) is str and not _NUMBER.fullmatch(value):
        raise NotAValueError(f"expected a number, found {value[:60]!r}")
    return float(value)


def _base64(text: str) -> str:
    """Return Base64 of either alphabet as the one with ``+`` and ``/``."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64encode(base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)).decode()
    except (binascii.Error, ValueError):
        raise NotAValueError(f"expected Base64, found {text[:60]!r}") from None
