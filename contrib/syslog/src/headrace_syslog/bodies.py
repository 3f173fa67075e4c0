"""Converts bodies to a column of texts."""

from __future__ import annotations

import headrace as hr
import numpy as np
import polars as pl
import pyarrow as pa
from headrace.interfaces.format_parts import texts_of
from numpy.typing import NDArray

#: Characters that senders append to a message, in addition to the framing.
_ENDS = "\r\n\0"


def lines_of(
    bodies: hr.Bodies, max_body_bytes: int, *, latin_1: bool
) -> tuple[pl.Series, NDArray[np.int64] | None, list[hr.BadBody]]:
    """Return the texts of bodies without newlines at their ends, the numbers of these bodies (None: all), and the
    bodies that are not texts or too large.
    """
    if not len(bodies) or int((bodies.ends - bodies.starts).max()) <= max_body_bytes:
        try:
            return _ended(_together(bodies)), None, []
        except pl.exceptions.ComputeError:
            pass  # one of the bodies is not UTF-8: each is decoded by itself
    texts, rows, bad = texts_of(bodies, max_body_bytes, latin_1=latin_1)
    return _ended(texts), rows, bad


def _ended(texts: pl.Series) -> pl.Series:
    return texts.str.strip_chars_end(_ENDS)


def _together(bodies: hr.Bodies) -> pl.Series:
    """Return all bodies as texts, each with its newline, without a Python object for each. Raises ComputeError if one
    is not UTF-8.
    """
    if not len(bodies):
        return pl.Series(dtype=pl.String)
    if not bodies.newline_separated:
        bodies = hr.Bodies.of(list(bodies))
    area = bodies.joined() + b"\n"
    ends = np.append(bodies.starts - bodies.starts[0], len(area))
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(area)]
    return pl.Series(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bodies), buffers)).cast(pl.String)
