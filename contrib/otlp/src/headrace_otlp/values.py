"""Converts values of attributes to JSON, both from messages of Protocol Buffers and from the structs of OTLP's JSON."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace_otlp.json_messages import AnyValue

ValueOf = Callable[[Any], Any]
INT32_MAX, INT64_MAX, UINT32_MAX, UINT64_MAX = 2**31 - 1, 2**63 - 1, 2**32 - 1, 2**64 - 1
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|-?Infinity")


class NotAValueError(ValueError):
    """A text is not the number, Base64 or id that it should be."""


def value_of_message(value: Any) -> Any:
    """Return an ``AnyValue`` of Protocol Buffers as a value that JSON can hold: bytes become Base64, NaN and infinities
    become texts.
    """
    kind = value.WhichOneof("value")
    if kind in ("string_value", "bool_value", "int_value"):
        return getattr(value, kind)
    if kind == "double_value":
        return json_number(value.double_value)
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
        return json_number(_number(value.double_value))
    if value.array_value is not None:
        return [value_of_struct(each) for each in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return {each.key or "": value_of_struct(each.value) for each in value.kvlist_value.values or ()}
    return None if value.bytes_value is None else _base64(value.bytes_value)


def attributes(pairs: Iterable[Any] | None, value_of: ValueOf) -> bytes:
    """Return attributes as a JSON object. If several have one name, the last one counts."""
    return encode({pair.key or "": value_of(pair.value) for pair in pairs}) if pairs else b"{}"


def attributes_of(pairs: Iterable[Any] | None, value_of: ValueOf) -> dict[str, Any]:
    """Return attributes as a dict that JSON can hold. If several have one name, the last one counts."""
    return {pair.key or "": value_of(pair.value) for pair in pairs or ()}


def text_of(value: Any) -> str | None:
    """Return a value as text: a text as it is, another value as JSON."""
    return value if value is None or type(value) is str else encode(value).decode()


def integer(value: int | str | None, least: int, most: int) -> int:
    """Return an integer of JSON, which may be written as a text; 0 for None. Raises NotAValueError."""
    if value is None:
        return 0
    if type(value) is str and not _INTEGER.fullmatch(value):
        raise NotAValueError(f"expected a whole number, found {value[:60]!r}")
    number = int(value)
    if not least <= number <= most:
        raise NotAValueError(f"{number} is not between {least} and {most}")
    return number


def hexadecimal(value: str | None) -> str | None:
    """Return an id in lower case; None for an empty one. Raises NotAValueError."""
    try:
        return bytes.fromhex(value).hex() if value else None
    except ValueError:
        raise NotAValueError(f"expected an id in hexadecimal digits, found {(value or '')[:60]!r}") from None


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON writes it: NaN and infinities become texts."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: float | str | None) -> float:
    if value is None:
        return 0.0
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


@dataclass(frozen=True, slots=True)
class Forms:
    """Functions that convert fields of messages, or of structs, to values. Those for structs raise NotAValueError."""

    value: ValueOf
    int32: Callable[[Any], int]
    int64: Callable[[Any], int]
    uint32: Callable[[Any], int]
    uint64: Callable[[Any], int]
    double: Callable[[Any], float]
    #: An id in hexadecimal digits; None for an empty one.
    identifier: Callable[[Any], str | None]
    #: Tells whether an optional field is set.
    has: Callable[[Any, str], bool]
    #: Tells which field of a oneof is set. Arguments: the message, the name of the oneof, the names of its fields.
    which: Callable[[Any, str, Sequence[str]], str | None]


def _as_it_is(value: Any) -> Any:
    return value


MESSAGES = Forms(
    value_of_message,
    _as_it_is,
    _as_it_is,
    _as_it_is,
    _as_it_is,
    _as_it_is,
    lambda value: value.hex() or None,
    lambda holder, name: bool(holder.HasField(name)),
    lambda holder, choice, names: holder.WhichOneof(choice),
)
STRUCTS = Forms(
    value_of_struct,
    lambda value: integer(value, -INT32_MAX - 1, INT32_MAX),
    lambda value: integer(value, -INT64_MAX - 1, INT64_MAX),
    lambda value: integer(value, 0, UINT32_MAX),
    lambda value: integer(value, 0, UINT64_MAX),
    _number,
    hexadecimal,
    lambda holder, name: getattr(holder, name) is not None,
    lambda holder, choice, names: next((name for name in names if getattr(holder, name) is not None), None),
)
