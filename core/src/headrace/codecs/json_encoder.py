"""Rows to JSON objects, one per line: frames by polars, column-wise; dynamic rows by msgspec, with the same texts."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from headrace.codecs.value_texts import text_forms, value_text
from headrace.flow.messages import ROW
from headrace.flow.rows import unpack_rows
from headrace.foundation.errors import DataError
from headrace.interfaces.codec import Encoder

#: From here on polars and Python write floating point numbers with an exponent, and msgspec writes it without a sign.
_EXPONENT_FROM = 1e16

_encode = msgspec.json.Encoder().encode


class JsonEncoder(Encoder):
    """Encodes each row as an object with all columns in order, NULL as null.

    ``json_columns`` hold JSON texts, which become the values that they say. Raises DataError for a row that has no form
    as JSON, such as one whose JSON text is none.
    """

    def __init__(self, json_columns: Iterable[str] = ()) -> None:
        self._json_columns = frozenset(json_columns)

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one object per row of ``frame``."""
        # No object holds a newline: within strings they are escaped, and none is written between values.
        return self.encode_lines(frame).split(b"\n")[:-1]

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Return all objects, each ended by a newline."""
        if ROW in frame.columns:
            return _lines(unpack_rows(frame[ROW]), self._json_columns)
        if not frame.width:
            return b"{}\n" * frame.height
        prepared = text_forms(frame)
        if not self._json_columns.isdisjoint(frame.columns):
            return _lines(_as_float64(prepared).iter_rows(named=True), self._json_columns)
        written = io.BytesIO()
        prepared.write_ndjson(written)
        return written.getvalue()


def _as_float64(frame: pl.DataFrame) -> pl.DataFrame:
    """Turn float32 into the float64 with the same shortest text, for polars writes that text."""
    narrow = [name for name, data_type in frame.schema.items() if data_type == pl.Float32]
    return frame.with_columns(pl.col(narrow).cast(pl.String).cast(pl.Float64)) if narrow else frame


def _lines(rows: Iterable[Mapping[str, Any]], json_columns: frozenset[str]) -> bytes:
    written = bytearray()
    for row in rows:
        written += _encode(
            {
                name: _json_text(name, value) if name in json_columns else _json_value(value)
                for name, value in row.items()
            }
        )
        written += b"\n"
    return bytes(written)


def _json_value(value: Any) -> Any:
    """Return what msgspec writes as the typed path writes the value."""
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if abs(value) < _EXPONENT_FROM or value_text(value) is None else msgspec.Raw(repr(value).encode())
    if isinstance(value, Mapping):
        return {key: _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    return value_text(value)


def json_text_of(value: Any) -> str:
    """Return a value of a dynamic row as JSON text."""
    return _encode(_json_value(value)).decode()


def _json_text(name: str, value: Any) -> Any:
    """Return the JSON value that a text says, without the blanks between its parts."""
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise TypeError("it is not a text")
        return msgspec.Raw(msgspec.json.format(value.encode(), indent=-1))
    except (msgspec.DecodeError, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise DataError(f"column {name!r} must contain JSON text: {error}: {value!r:.100}") from error
