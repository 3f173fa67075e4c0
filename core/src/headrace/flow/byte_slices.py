"""Pieces of one block of bytes as a column: what decoders of rows make texts of, without an object per value."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.foundation.errors import DataError

Integers = NDArray[np.int64]

_HAS_ARROW = find_spec("pyarrow") is not None
_INLINE = 12
#: Spare bytes that must lie after the last piece.
SPARE_BYTES = 16


def series_of_slices(
    raw: bytearray, starts: Integers, lengths: Integers, missing: NDArray[np.bool_], *, text: bool, plugin: str
) -> pl.Series:
    """Return pieces of ``raw`` as bytes, or as texts in UTF-8; missing pieces may have any content when pyarrow is installed.

    After the last piece ``raw`` has ``SPARE_BYTES``. Raises DataError for bytes that are not UTF-8.
    """
    if _HAS_ARROW and len(raw) < 2**31:
        return _by_arrow(raw, starts, lengths, text=text, plugin=plugin)
    values = []
    for start, length, absent in zip(starts.tolist(), lengths.tolist(), missing.tolist(), strict=True):
        values.append(None if absent else bytes(raw[start : start + length]))
    if not text:
        return pl.Series(values, dtype=pl.Binary)
    try:
        return pl.Series([None if value is None else value.decode() for value in values], dtype=pl.String)
    except UnicodeDecodeError as error:
        raise DataError(f"a text is not UTF-8: {error}", plugin=plugin) from error


def _by_arrow(raw: bytearray, starts: Integers, lengths: Integers, *, text: bool, plugin: str) -> pl.Series:
    import pyarrow as pa

    array = np.frombuffer(raw, dtype=np.uint8)
    views = np.zeros((len(starts), 4), dtype=np.int32)
    views[:, 0] = lengths
    inline = array[starts[:, None] + np.arange(_INLINE)]
    inline[np.arange(_INLINE) >= lengths[:, None]] = 0
    views[:, 1:] = inline.view(np.int32)
    long = np.flatnonzero(lengths > _INLINE)
    views[long, 2] = 0
    views[long, 3] = starts[long]
    buffers = [None, pa.py_buffer(views), pa.py_buffer(raw)]
    made = pa.Array.from_buffers(pa.string_view() if text else pa.binary_view(), len(starts), buffers)
    if text and not raw.isascii():
        try:
            made.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(f"a text is not UTF-8: {error}", plugin=plugin) from error
    # A copy: otherwise any text would keep the whole block in memory.
    return pl.Series(made.cast(pa.large_string() if text else pa.large_binary()))
