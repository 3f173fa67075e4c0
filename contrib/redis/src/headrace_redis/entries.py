"""Entries of streams as bodies of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from headrace.flow.messages import Bodies
from headrace.foundation.errors import OptionError

from headrace_redis.settings import PLUGIN, RedisSourceSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

#: The fields of an entry.
Fields = Mapping[bytes, bytes]


class BodyReader:
    """Makes the body of each entry: one of its fields, or a JSON object of all of them."""

    def __init__(self, settings: RedisSourceSettings) -> None:
        self._field = settings.field.encode()
        self._is_table = settings.key_prefix is not None
        self._as_columns = settings.entry == "columns" or self._is_table
        self._json_names: frozenset[bytes] = frozenset()

    def use_format(self, format: str | None, schema: Schema | None) -> None:
        """Get how bodies are decoded. Raises OptionError if entries of columns are to be decoded by another format than json."""
        if not self._as_columns:
            return
        if format != "json":
            what, option = ("a table", "value") if self._is_table else ("entry='columns'", "entry")
            raise OptionError(
                f"{what} produces JSON objects, which the format {format!r} cannot read", plugin=PLUGIN, option=option,
                hint="format='json'",
            )  # fmt: skip
        if schema is not None:
            self._json_names = frozenset(
                name.encode()
                for name, kind in schema.items()
                if kind.is_integer()
                or kind.is_float()
                or kind.is_nested()
                or str(kind) == "Boolean"
                or name in schema.json_columns
            )

    def bodies(self, entries: Sequence[Fields]) -> Bodies:
        """Return one body for each entry. An entry without the field has an empty body."""
        if self._as_columns:
            return Bodies.of([self.object_of(fields) for fields in entries])
        field = self._field
        return Bodies.of([fields.get(field, b"") for fields in entries])

    def headers(self, entries: Sequence[Fields]) -> list[Mapping[str, bytes]]:
        """Return the fields of each entry that are not in its body."""
        if self._as_columns:
            return [{} for _ in entries]
        field = self._field
        return [
            {name.decode(errors="replace"): value for name, value in fields.items() if name != field}
            for fields in entries
        ]

    def object_of(self, fields: Fields) -> bytes:
        """Return fields as a JSON object. Bytes that are not UTF-8 are copied unchanged, so that the codec refuses the
        record with a reason.
        """
        return b"{" + b",".join(_text(name) + b":" + self._value(name, value) for name, value in fields.items()) + b"}"

    def _value(self, name: bytes, value: bytes) -> bytes:
        if name in self._json_names:
            try:
                msgspec.json.decode(value)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return _text(value)
            return value
        return _text(value)


_encode = msgspec.json.Encoder().encode


def _text(value: bytes) -> bytes:
    try:
        return _encode(value.decode())
    except UnicodeDecodeError:
        return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
