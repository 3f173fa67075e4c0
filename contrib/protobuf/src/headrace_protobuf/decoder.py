"""Decodes bodies to frames: Google's library in C parses each body, then columns are made from the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from headrace.flow.messages import Bodies
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.codec import BadBody, Decoded, Decoder
from headrace.interfaces.format_parts import too_large
from numpy.typing import NDArray

from headrace_protobuf.fields import TypeMismatchError, taker


class ProtobufDecoder(Decoder):
    """Decodes to the given columns. Raises OptionError for a column that is not a field, or to whose type its field
    cannot be converted.
    """

    def __init__(self, message: type[Message], columns: Mapping[str, pl.DataType], max_body_bytes: int) -> None:
        self._message = message
        self._parse = message.FromString
        self._checked = _has_required(message.DESCRIPTOR, set())
        self._max_body_bytes = max_body_bytes
        self._columns = dict(columns)
        fields: Mapping[str, FieldDescriptor] = message.DESCRIPTOR.fields_by_name
        self._takers = {}
        for name, kind in columns.items():
            if name not in fields:
                hint = did_you_mean(name, fields, known="fields")
                why = f"column {name!r} is not a field of {message.DESCRIPTOR.full_name}"
                raise OptionError(why, plugin="protobuf", option="schema", hint=hint)
            try:
                self._takers[name] = taker(fields[name], kind)
            except TypeMismatchError as error:
                raise OptionError(
                    str(error), plugin="protobuf", option="schema", hint="declare another type"
                ) from error

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        reasons: dict[int, str] = {}
        messages, rows = self._parsed(bodies, reasons)
        columns = self._taken(messages)
        if columns is None:
            good = [self._is_good(message, int(row), reasons) for message, row in zip(messages, rows, strict=True)]
            messages = [message for message, kept in zip(messages, good, strict=True) if kept]
            rows = rows[np.array(good, dtype=np.bool_)]
            columns = self._taken(messages)
            assert columns is not None
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        if len(rows) == len(bodies):
            return Decoded(frame)
        return Decoded(frame, rows, [BadBody(row, reasons[row]) for row in sorted(reasons)])

    def _parsed(self, bodies: Bodies, reasons: dict[int, str]) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the messages and their rows."""
        every = list(bodies)
        small = not len(bodies) or int((bodies.ends - bodies.starts).max()) <= self._max_body_bytes
        if small and not self._checked:
            try:
                return list(map(self._parse, every)), np.arange(len(every))
            except (DecodeError, UnicodeDecodeError):
                pass  # at least one body is not a message, so each is checked
        messages, rows = [], []
        for row, body in enumerate(every):
            found = self._single(body)
            if isinstance(found, str):
                reasons[row] = found
            else:
                messages.append(found)
                rows.append(row)
        return messages, np.array(rows, dtype=np.int64)

    def _single(self, body: bytes) -> Any:
        """Return the message of a body, or the reason why it is not a message."""
        if len(body) > self._max_body_bytes:
            return too_large(len(body), self._max_body_bytes)
        try:
            made = self._parse(body)
        except (DecodeError, UnicodeDecodeError):
            return f"the body is not a message {self._message.DESCRIPTOR.full_name}"
        if self._checked and not made.IsInitialized():
            return f"required fields are missing: {', '.join(made.FindInitializationErrors())}"
        return made

    def _taken(self, messages: list[Any]) -> list[pl.Series] | None:
        """Return the columns of messages; None if a value is outside the range of its column."""
        try:
            return [
                pl.Series(name, [take(message) for message in messages], dtype=self._columns[name])
                for name, take in self._takers.items()
            ]
        except ValueError:
            return None

    def _is_good(self, message: Any, row: int, reasons: dict[int, str]) -> bool:
        for name, take in self._takers.items():
            try:
                take(message)
            except UnicodeDecodeError:
                reasons[row] = f"column {name!r}: not valid UTF-8"
            except ValueError as error:
                reasons[row] = f"column {name!r}: {error}"
            if row in reasons:
                return False
        return True


def _has_required(message: Any, seen: set[str]) -> bool:
    """Return whether a message, or one within it, has required fields (of proto2)."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        each.is_required or (each.message_type is not None and _has_required(each.message_type, seen))
        for each in message.fields
    )
