"""Encodes frames to bodies: each row becomes a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import EncodeError, Message
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, OptionError, did_you_mean
from headrace.interfaces.codec import Encoder

from headrace_protobuf.fields import TypeMismatchError, putter


class ProtobufEncoder(Encoder):
    """Encodes rows. Raises DataError for a row that cannot be a message, OptionError for columns that are not fields."""

    def __init__(self, message: type[Message], schema: Schema, *, null_as_default: bool) -> None:
        self._message = message
        self._null_as_default = null_as_default
        fields: Mapping[str, FieldDescriptor] = message.DESCRIPTOR.fields_by_name
        self._putters = {}
        for name, kind in schema.items():
            if name not in fields:
                hint = did_you_mean(name, fields, known="fields")
                why = f"column {name!r} is not a field of {message.DESCRIPTOR.full_name}"
                raise OptionError(why, plugin="protobuf", option="message", hint=hint)
            try:
                self._putters[name] = (fields[name], putter(fields[name], kind))
            except TypeMismatchError as error:
                hint = "convert it by an expression"
                raise OptionError(str(error), plugin="protobuf", option="message", hint=hint) from error
        for name, each in fields.items():
            if each.is_required and name not in schema:
                raise OptionError(
                    f"there is no column for the required field {name!r}", plugin="protobuf", option="message"
                )

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one body per row of ``frame``."""
        return [self._body(row) for row in frame.select(list(self._putters)).iter_rows(named=True)]

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Raise OptionError: messages may contain any byte, so they cannot be lines of a file."""
        raise OptionError(
            "messages of Protocol Buffers are binary and cannot be written as lines of a file",
            plugin="protobuf",
            option="format",
            hint="write another format, such as format='json'",
        )

    def _body(self, row: Mapping[str, Any]) -> bytes:
        values: dict[str, Any] = {}
        for name, (field, put) in self._putters.items():
            value = row[name]
            if value is not None:
                try:
                    values[name] = put(value)
                except ValueError as error:
                    raise DataError(f"column {name!r}: {error}", plugin="protobuf") from error
            elif not field.has_presence and not self._null_as_default:
                raise DataError(
                    f"column {name!r} is NULL, but its field must have a value",
                    plugin="protobuf",
                    hint="declare the field optional, or set null_as_default=True to write its default",
                )
        try:
            # The order of fields is fixed, so that the same row gives the same bytes.
            return bytes(self._message(**values).SerializeToString(deterministic=True))
        except (EncodeError, ValueError, TypeError) as error:
            raise DataError(f"the row is not a message: {error}", plugin="protobuf") from error
