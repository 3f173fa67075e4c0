"""Converts rows to what Redis stores: JSON objects, or fields with texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import polars as pl
from headrace.flow.messages import ROW
from headrace.foundation.errors import DataError
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

from headrace_redis.settings import PLUGIN

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text_of = msgspec.json.Decoder(str).decode


class RowMaker:
    """Converts rows. ``None`` as the columns means that they are known only row by row."""

    def __init__(self, schema: Schema | None) -> None:
        codec = default_registry().find("codec", "json")
        self._encoder = codec(codec.Settings.of({}, plugin=PLUGIN)).encoder(schema)

    def objects(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return one JSON object for each row. Raises DataError for a row that JSON cannot hold."""
        frame = batch.frame.select(ROW) if batch.dynamic else batch.to_polars()
        if not frame.width:
            return [b"{}"] * len(batch)
        found: Sequence[bytes] = self._encoder.encode(frame)
        return found

    def fields(self, batch: SinkBatch) -> list[list[bytes]]:
        """Return field, value, field, value, … of each row. Texts are unchanged, other values are written as JSON, and
        NULLs are left out.
        """
        return [_flat(_fields_of(each)) for each in self.objects(batch)]


def _flat(fields: dict[str, msgspec.Raw]) -> list[bytes]:
    found = []
    for name, raw in fields.items():
        value = bytes(raw)
        if value != b"null":
            found += [name.encode(), _text_of(value).encode() if value.startswith(b'"') else value]
    return found


def keys_of(batch: SinkBatch, columns: Sequence[str], prefix: str) -> list[str]:
    """Return the key of each row. Values of several columns stand with ``:`` between them, and a ``:`` in them is written as ``%3A``.

    Raises DataError for a row whose key is NULL, or has a value that is not a text, an integer or a boolean.
    """
    if batch.dynamic:
        rows = batch.rows()
        parts = [[_key_text(row.get(name), name) for row in rows] for name in columns]
    else:
        parts = [_texts(batch.frame[name]) for name in columns]
    for name, values in zip(columns, parts, strict=True):
        if None in values:
            raise DataError(f"a row whose key is NULL: column {name!r}", plugin=PLUGIN, option="key")
    if len(parts) == 1:
        return [f"{prefix}{value}" for value in parts[0]]
    escaped = ([quote(str(value), safe=_PLAIN) for value in values] for values in parts)
    return [prefix + ":".join(values) for values in zip(*escaped, strict=True)]


#: All printable ASCII characters but ``:`` and ``%``.
_PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in ":%")


def _texts(column: pl.Series) -> list[str | None]:
    if column.dtype == pl.Binary:
        raise DataError(f"column {column.name!r} of the key is binary", plugin=PLUGIN, option="key")
    return column.cast(pl.String).to_list()


def _key_text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise DataError(
        f"a key of type {type(value).__name__} in column {name!r}, but must be str, int or bool",
        plugin=PLUGIN,
        option="key",
    )
