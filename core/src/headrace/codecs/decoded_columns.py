"""A column of texts that a format decodes, as it decodes the bodies of a source: the operator behind verbs that do so."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.flow.messages import Batch, Bodies
from headrace.interfaces.codec import Decoder
from headrace.interfaces.operator import Operator, RejectedRows


class DecodedColumn(Operator):
    """Adds the columns that a decoder makes of a column of texts. A NULL gives NULLs.

    A row whose text the decoder refuses goes to the dead letters with the decoder's reason. A column of the stream that has the name
    of a decoded column is replaced; where the decoder gives NULL, it keeps its value. The decoded texts themselves are replaced always.

    ``drops_empty``: a row whose text gives neither a row nor a bad body, such as the head of a file of logs, is dropped; otherwise it
    goes on with NULLs.
    """

    def __init__(self, on: str, decoder: Decoder, *, drops_empty: bool = False) -> None:
        self._on = on
        self._decoder = decoder
        self._drops_empty = drops_empty

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        present = np.flatnonzero(frame[self._on].is_not_null().to_numpy())
        decoded = self._decoder.decode(bodies_of(frame[self._on].drop_nulls()))
        bad = np.array([each.row for each in decoded.bad], dtype=np.int64)
        rows = decoded.rows if decoded.rows is not None else np.setdiff1d(np.arange(len(present)), bad)
        # For each row the place of its fields; rows without a text get the row of NULLs behind them.
        places = np.full(frame.height, decoded.frame.height, dtype=np.int64)
        places[present[rows]] = np.arange(len(rows))
        good = np.ones(frame.height, dtype=np.bool_)
        if self._drops_empty:
            good[present] = False
            good[present[rows]] = True
        good[present[bad]] = False
        kept = np.flatnonzero(good)
        rest = frame[kept]
        fields = [column.extend_constant(None, 1).gather(places[kept]) for column in decoded.frame]
        columns = [
            field.fill_null(rest[field.name]) if field.name in rest.columns and field.name != self._on else field
            for field in fields
        ]
        out: list[Batch | RejectedRows] = [batch.with_frame(rest.with_columns(columns))]
        if len(bad):
            out.append(RejectedRows(frame[present[bad]], [each.reason for each in decoded.bad]))
        return out


def bodies_of(texts: pl.Series) -> Bodies:
    """Return texts or bytes, none of which is NULL, as bodies in one buffer. No Python object is made for each text."""
    if texts.dtype != pl.String():
        return Bodies.of(texts.to_list())
    lengths: NDArray[np.int64] = texts.str.len_bytes().cast(pl.Int64).to_numpy()
    ends = np.cumsum(lengths + 1) - 1
    joined = texts.str.join("\n").item() if len(texts) else ""
    return Bodies(joined.encode(), ends - lengths, ends, newline_separated=True)
