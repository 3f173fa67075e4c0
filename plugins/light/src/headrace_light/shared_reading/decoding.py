"""Bodies that are decoded once for several jobs, which may want different columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.flow.messages import RawBatch, picked
from headrace.interfaces.codec import Codec, Decoded, Decoder, SharedDecoding

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class Decoders:
    """Decodes batches to the columns that several jobs want together. ``wanted`` returns these now. Thread-safe."""

    def __init__(self, codec: Codec, schema: Schema, wanted: Callable[[], Collection[str]]) -> None:
        self._codec = codec
        self._schema = schema
        self._wanted = wanted
        self._lock = threading.Lock()
        self._made: tuple[list[str], Decoder] | None = None
        #: How many batches were decoded for all.
        self.batches = 0

    def decode(self, raw: RawBatch) -> tuple[frozenset[str], Decoded]:
        """Return the columns to which a batch was decoded, and what came out."""
        wanted = self._wanted()
        columns = [name for name in self._schema if name in wanted]
        with self._lock:
            if self._made is None or self._made[0] != columns:
                self._made = columns, self._codec.record_decoder(self._schema, columns)
            self.batches += 1
            return frozenset(columns), self._made[1].decode_records(raw)


class BatchDecoding(SharedDecoding):
    """The decoded rows of one batch. Each job asks for its own columns. Thread-safe.

    Whether a body is bad depends on the columns that a job wants. So bodies that are bad for all columns together are decoded again for
    each job.
    """

    def __init__(self, decoders: Decoders) -> None:
        self._decoders = decoders
        self._lock = threading.Lock()
        self._found: tuple[frozenset[str], Decoded] | None = None

    def decoded(self, raw: RawBatch, columns: Sequence[str], own: Decoder) -> Decoded:
        with self._lock:
            if self._found is None:
                self._found = self._decoders.decode(raw)
            known, found = self._found
        if not columns or not known.issuperset(columns):  # of a job that has come since
            return own.decode_records(raw)
        good = Decoded(picked(found.frame, columns), found.rows)
        return good if not found.bad else _with_others(good, raw, [each.row for each in found.bad], own)


def _with_others(good: Decoded, raw: RawBatch, rows: Sequence[int], own: Decoder) -> Decoded:
    """Return what a job's decoder makes of some bodies, together with the rows of the others."""
    import numpy as np
    import polars as pl

    left = np.array(rows, dtype=np.int64)
    more = own.decode_records(raw.of_rows(left))
    bad = [replace(each, row=int(left[each.row])) for each in more.bad]
    good_rows = np.setdiff1d(np.arange(len(raw), dtype=np.int64), left) if good.rows is None else good.rows
    more_rows = left if more.rows is None else left[more.rows]
    every = np.concatenate([good_rows, more_rows])
    order = np.argsort(every, kind="stable")
    frame = pl.concat([good.frame, more.frame])
    return Decoded(frame[order] if len(order) else frame, every[order], bad)
