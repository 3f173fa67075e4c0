"""Equal keys: an index over 64-bit hashes in buckets, with the keys themselves compared.

Rows are sorted by hash. The upper bits of a hash name a bucket, which knows where its rows begin; of the rest, 32 bits are
kept per row. A lookup compares those with the rows of its bucket (one on average), for a whole batch at once, then the key
itself: a hash collision costs a comparison and never gives a wrong match. Beside the key's bytes that is 12 bytes a row.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_ROWS_PER_BUCKET = 1
_CHUNK_BYTES_MAX = 2**31 - 2**20

Matches = tuple[NDArray[np.int64], NDArray[np.int64]]


class ExactIndex:
    """Finds the rows of a table whose key columns equal those of other rows. NULL equals nothing, NaN equals NaN."""

    def __init__(self, keys: pl.DataFrame) -> None:
        """Index the rows of ``keys`` by place. ``order`` is how the table's rows are to be sorted for it."""
        hashes = _hashes(keys)
        present = ~_any_null(keys)
        order = np.argsort(hashes, kind="stable")
        order = order[present[order]]
        self.order: NDArray[np.int64] = order
        count = len(order)
        hashes = hashes[order]
        self._bits = max(0, int(count // _ROWS_PER_BUCKET).bit_length())
        self._rests = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        buckets = self._bucket(hashes)
        starts = np.searchsorted(buckets, np.arange((1 << self._bits) + 1, dtype=np.int64))
        self._starts = starts.astype(np.uint32 if count < 2**32 else np.int64)
        self._longest = int(np.diff(starts).max()) if count else 0
        #: No two rows look equal before their keys are compared: then at most one row can match.
        self._single = not bool((hashes[1:] == hashes[:-1]).any()) and not self._twins(buckets)
        self._names = keys.columns
        self._types = dict(keys.schema)
        self._keys = [_compact(keys[name].gather(pl.Series(order))) for name in keys.columns]

    def bytes(self) -> int:
        """Return how much memory index and keys take."""
        return self._rests.nbytes + self._starts.nbytes + sum(int(each.nbytes) for each in self._keys)

    def find(self, probes: pl.DataFrame) -> Matches:
        """Return (place in ``probes``, place in the sorted table) of every match, ordered by both."""
        probes = probes.rename(dict(zip(probes.columns, self._names, strict=True)))
        # A value that the key's type cannot hold becomes NULL, and equals nothing.
        probes = probes.cast(self._types, strict=False)  # type: ignore[arg-type]
        hashes = _hashes(probes)
        buckets = self._bucket(hashes)
        begins = self._starts[buckets].astype(np.int64)
        ends = self._starts[buckets + 1].astype(np.int64)
        rests = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        candidates: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        at = np.flatnonzero((begins < ends) & ~_any_null(probes))
        for step in range(self._longest):
            places = begins[at] + step
            hit = self._rests[places] == rests[at]
            if hit.any():
                candidates.append((at[hit], places[hit]))
            more = places + 1 < ends[at]
            at = at[more & ~hit] if self._single else at[more]
            if not len(at):
                break
        if not candidates:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        probe_places = np.concatenate([probe for probe, _ in candidates])
        table_places = np.concatenate([place for _, place in candidates])
        equal = self._equal(probes, probe_places, table_places)
        probe_places, table_places = probe_places[equal], table_places[equal]
        if len(candidates) > 1 and self._single:
            found = np.full(probes.height, -1, dtype=np.int64)
            found[probe_places] = table_places
            probe_places = np.flatnonzero(found >= 0)
            table_places = found[probe_places]
        elif len(candidates) > 1:
            order = np.lexsort((self.order[table_places], probe_places))
            probe_places, table_places = probe_places[order], table_places[order]
        return probe_places, table_places

    def _equal(
        self, probes: pl.DataFrame, probe_places: NDArray[np.int64], table_places: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        result = np.ones(len(probe_places), dtype=bool)
        for name, stored in zip(self._names, self._keys, strict=True):
            mine = _compact(probes[name]).take(pa.array(probe_places))
            theirs = stored.take(pa.array(table_places))
            same = pc.equal(mine, theirs)
            if pa.types.is_floating(mine.type):
                same = pc.or_(same, pc.and_(pc.is_nan(mine), pc.is_nan(theirs)))
            result &= np.asarray(same.to_numpy(zero_copy_only=False) if isinstance(same, pa.Array) else same.to_numpy())
        return result

    def _twins(self, buckets: NDArray[np.int64]) -> bool:
        same = (buckets[1:] == buckets[:-1]) & (self._rests[1:] == self._rests[:-1])
        return bool(same.any())

    def _bucket(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not self._bits:
            return np.zeros(len(hashes), dtype=np.int64)
        return (hashes >> np.uint64(64 - self._bits)).astype(np.int64)


def _compact(column: pl.Series) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow, texts in one buffer with 32-bit ends where they fit."""
    array = column.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        small = pa.binary()
        if array.nbytes < _CHUNK_BYTES_MAX:
            return array.cast(pa.string() if pa.types.is_large_string(array.type) else small)
    return array


def _hashes(keys: pl.DataFrame) -> NDArray[np.uint64]:
    """Hash within this process: the same values in the same types have the same hash; nothing more is needed."""
    if keys.width == 1:
        column = keys.to_series()
        column = column + 0.0 if column.dtype.is_float() else column
        return column.hash(seed=17).to_numpy()
    return keys.hash_rows(seed=17).to_numpy()


def _any_null(keys: pl.DataFrame) -> NDArray[np.bool_]:
    result = np.zeros(keys.height, dtype=bool)
    for column in keys.iter_columns():
        if column.null_count():
            result |= column.is_null().to_numpy()
    return result
