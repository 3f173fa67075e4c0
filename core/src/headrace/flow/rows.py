"""Rows of a stream whose columns are known only from the rows themselves. Each row is packed, with its own types.

A row-wise function without a declared result returns such rows. Packing keeps each row exactly as the function
returned it, so a result never depends on which rows are in the same batch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.foundation.errors import DataError

if TYPE_CHECKING:
    import polars as pl

#: Lists and dicts within one another; what reads rows is recursive, and a list may hold itself.
DEPTH_MAX = 100

_DECIMAL, _DATE, _TIME, _DURATION, _NAIVE = 1, 2, 3, 4, 5


def _to_extension(value: Any) -> Any:
    if hasattr(value, "item") and callable(value.item):  # numpy scalars
        return value.item()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise DataError(f"a row holds a value of type {type(value).__name__}, which cannot be stored: {value!r:.100}")


def _wrap(value: Any, depth: int = 1) -> Any:
    """Replace what MessagePack would turn into text by an extension, so that types come back as they were."""
    if isinstance(value, str | bytes | bool | int | float | None):
        return value
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else msgspec.msgpack.Ext(_NAIVE, value.isoformat().encode())
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, dt.date):
        return msgspec.msgpack.Ext(_DATE, value.isoformat().encode())
    if isinstance(value, dt.time):
        return msgspec.msgpack.Ext(_TIME, value.isoformat().encode())
    if isinstance(value, dt.timedelta):
        return msgspec.msgpack.Ext(_DURATION, str(value // dt.timedelta(microseconds=1)).encode())
    if isinstance(value, Mapping | list | tuple):
        if depth > DEPTH_MAX:
            raise DataError(f"a row holds a value that is nested more than {DEPTH_MAX} deep")
        if isinstance(value, Mapping):
            return {key: _wrap(inner, depth + 1) for key, inner in value.items()}
        return [_wrap(inner, depth + 1) for inner in value]
    return value


def _from_extension(code: int, data: memoryview) -> Any:
    text = bytes(data).decode()
    if code == _DECIMAL:
        return Decimal(text)
    if code == _DATE:
        return dt.date.fromisoformat(text)
    if code == _TIME:
        return dt.time.fromisoformat(text)
    if code == _DURATION:
        return dt.timedelta(microseconds=int(text))
    if code == _NAIVE:
        return dt.datetime.fromisoformat(text)
    raise DataError(f"a stored row holds the unknown extension type {code}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_extension)
_decoder = msgspec.msgpack.Decoder(ext_hook=_from_extension)


def pack_row(row: Mapping[str, Any]) -> bytes:
    """Pack one row. Raises DataError when it holds a value that cannot be stored or a key that is not a text, or is
    nested more than ``DEPTH_MAX`` deep."""
    wrapped = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise DataError(f"a row has the key {name!r}, which is not a text")
        wrapped[name] = _wrap(value)
    try:
        return _encoder.encode(wrapped)
    except (OverflowError, UnicodeEncodeError, TypeError) as error:
        raise DataError(f"a row holds a value that cannot be stored: {error}") from error


def pack_rows(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Pack many rows; see ``pack_row``."""
    return [pack_row(row) for row in rows]


def unpack_rows(packed: pl.Series | Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the rows as they were packed."""
    decode = _decoder.decode
    return [decode(row) for row in packed]
