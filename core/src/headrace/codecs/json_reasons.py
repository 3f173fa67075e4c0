"""Why a JSON body is bad, in words. Only called for bodies that were found bad, one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.codecs.body_checks import NESTING_MAX, REFUSALS, is_too_deep, nesting, on_fresh_stack
from headrace.codecs.json_columns import JsonColumn, build_columns
from headrace.codecs.text_columns import UNEXPLAINED
from headrace.flow.schema import type_name
from headrace.interfaces.format_parts import not_utf8, too_large

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN_LENGTH_MAX = 60

_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class JsonReasons:
    """Finds the reason why a body does not fit the given columns."""

    def __init__(
        self, columns: Mapping[str, JsonColumn], decode: Callable[[bytes], msgspec.Struct], max_body_bytes: int
    ) -> None:
        self._columns = columns
        self._decode = decode
        self._max_body_bytes = max_body_bytes

    @cached_property
    def _decoders(self) -> dict[str, msgspec.json.Decoder[Any]]:
        """Made when the first body is bad: most queues have none, and there may be very many queues."""
        return {name: msgspec.json.Decoder(column.annotation) for name, column in self._columns.items()}

    def reason(self, body: bytes, column: str | None = None) -> str:
        """Return the first fault of a bad body: size, encoding, nesting, syntax, then columns in their order.

        ``column``: the body was read, and the value of this column is to blame.
        """
        if column is not None:
            with suppress(RecursionError):
                return self._mismatch(column, self._columns[column], bytes(_values.decode(body)[column]))
        if len(body) > self._max_body_bytes:
            return too_large(len(body), self._max_body_bytes)
        if not body.strip():
            return "the body is empty" if not body else "the body is blank"
        try:
            body.decode()
        except UnicodeDecodeError as error:
            return not_utf8(error)
        if is_too_deep(body, 0, len(body)):
            return f"nested {nesting(body)} levels deep, more than {NESTING_MAX}"
        try:
            return self._fault(body)
        except RecursionError:
            return on_fresh_stack(self._fault, body)

    def _fault(self, body: bytes) -> str:
        try:
            values = _values.decode(body)
        except msgspec.ValidationError as error:
            found = re.search(r"got `(\w+)`", str(error))
            return f"expected an object at the top level, found {found[1] if found else 'something else'}"
        except msgspec.DecodeError as error:
            return syntax_fault(body, str(error))
        for name, column in self._columns.items():
            if name in values:
                fault = self._column_fault(name, column, bytes(values[name]))
                if fault is not None:
                    return fault
        # The last value of every key is good: an earlier value of a repeated key is not.
        try:
            self._decode(body)
        except REFUSALS as error:
            return f"a key is repeated, and one of its values does not fit: {error}"
        return UNEXPLAINED

    def _column_fault(self, name: str, column: JsonColumn, raw: bytes) -> str | None:
        try:
            value = self._decoders[name].decode(raw)
        except REFUSALS as error:
            inner = re.fullmatch(r"(.*) - at `\$(.+)`", str(error))
            if inner is not None:
                return (
                    f"column {name!r} (type {type_name(column.data_type)}) at {inner[2]}: {inner[1].replace('`', '')}"
                )
            return self._mismatch(name, column, raw)
        _, bad = build_columns({name: column}, [value])
        return self._mismatch(name, column, raw) if bad is not None else None

    @staticmethod
    def _mismatch(name: str, column: JsonColumn, raw: bytes) -> str:
        return f"column {name!r}: expected {type_name(column.data_type)}, found {described(raw)}{column.advice(raw)}"


def syntax_fault(body: bytes, message: str) -> str:
    """Put msgspec's message about syntax in our words, with the place in the body."""
    if "surrogate" in message or "hex escape" in message:
        found = re.search(r"\(byte (\d+)\)", message)
        return "not valid JSON" + (f" at byte {found[1]}" if found else "") + r": lone surrogate in a \u escape"
    if "truncated" in message:
        if b"\\u" in body:
            # Also said of a lone surrogate just before the end, which the standard library takes.
            with suppress(ValueError):
                json.loads(body)
                return r"not valid JSON: lone surrogate in a \u escape"
        return f"not valid JSON: ends too early, after {len(body)} bytes"
    found = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", message)
    if found is None:
        return f"not valid JSON: {message}"
    # msgspec has read the first character after the object when it counts.
    at = int(found[2]) - (found[1] == "trailing characters")
    character = "" if at >= len(body) else f", found {_named(body[at:])}"
    return f"not valid JSON at byte {at}: {found[1]}{character}"


def _named(rest: bytes) -> str:
    character = rest[:4].decode("utf-8", "ignore")[:1]
    if character == "\x00":
        return "a NUL byte"
    return repr(character) if character else f"byte 0x{rest[0]:02x}"


def described(raw: bytes) -> str:
    """Return the kind of a JSON value, with its text if that is short: ``string "abc"``, ``number 1.5``, ``an object``."""
    text = raw.decode("utf-8", "replace")
    kind = {'"': "string ", "[": "an array", "{": "an object", "t": "boolean ", "f": "boolean ", "n": ""}.get(
        text[:1], "number "
    )
    if kind.startswith("an "):
        return kind
    return kind + (text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…")
