"""Equal keys: an index over 64-bit hashes in buckets, with the keys themselves compared.

Rows are sorted by hash. The upper bits of a hash name a bucket, which knows where its rows begin; of the rest, 16 bits are
kept per row. A lookup compares those with all rows of its bucket (some five), for a whole batch at once, then the key
itself: a hash collision costs a comparison and never gives a wrong match. Beside the key's bytes that is 3 bytes a row,
and 4 for the end of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from headrace.errors import JobError
from numpy.typing import NDArray

from headrace_dimension.columns import Parts, compact, runs

_ROWS_PER_BUCKET = 8
#: Rows of buckets that are looked at together: bounds what a lookup takes where a bucket has very many rows.
_ROWS_AT_ONCE_MAX = 2_000_000
#: Keys of which a mapped index is tried, to be sure that this process hashes as the one that wrote it.
_TRIED_KEYS = 16

Matches = tuple[NDArray[np.int64], NDArray[np.int64]]


class ExactIndex:
    """Finds the rows of a table whose key columns equal those of other rows. NULL equals nothing, NaN equals NaN."""

    def __init__(
        self,
        types: Mapping[str, pl.DataType],
        keys: list[pa.Array],
        rests: NDArray[np.uint16],
        starts: NDArray[np.generic],
        bits: int,
    ) -> None:
        self._names = list(types)
        self._types = dict(types)
        self._keys = keys
        self._rests = rests
        self._starts = starts
        self._bits = bits

    @classmethod
    def of(cls, keys: pl.DataFrame) -> tuple[ExactIndex, NDArray[np.int64]]:
        """Return an index of rows by place, and how the table's rows are to be sorted for it (those with NULL left out)."""
        hashes = _hashes(keys)
        present = ~_any_null(keys)
        order = np.argsort(hashes, kind="stable")
        if not present.all():
            order = order[present[order]]
        count = len(order)
        hashes = hashes[order]
        bits = max(0, int(count // _ROWS_PER_BUCKET).bit_length())
        buckets = _bucket(hashes, bits)
        counts = np.bincount(buckets, minlength=1 << bits) if count else np.zeros(1 << bits, dtype=np.int64)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        stored = [compact(keys[name].gather(pl.Series(order))) for name in keys.columns]
        starts = starts.astype(np.uint32 if count < 2**32 else np.int64)
        index = cls(dict(keys.schema), stored, hashes.astype(np.uint16), starts, bits)
        return index, order

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return what the index is made of, for a file: arrays, and facts that JSON can hold."""
        keys = {f"key {number}": each for number, each in enumerate(self._keys)}
        arrays = {"rests": pa.array(self._rests), "starts": pa.array(self._starts), **keys}
        return arrays, {"bits": self._bits}

    @classmethod
    def of_parts(cls, parts: Parts, facts: Mapping[str, Any], types: Mapping[str, pl.DataType]) -> ExactIndex:
        """Return the index whose ``parts`` another process wrote. Raises JobError when this one hashes differently."""
        keys = [parts[f"key {number}"] for number in range(len(types))]
        index = cls(types, keys, parts["rests"].to_numpy(), parts["starts"].to_numpy(), facts["bits"])
        tried = pl.DataFrame([pl.Series(name, key[:_TRIED_KEYS]) for name, key in zip(types, keys, strict=True)])
        found = set(index.find(tried)[0].tolist())
        if len(found) != tried.height:
            raise JobError(
                "a table that another process wrote cannot be used here: polars hashes its keys differently",
                plugin="lookup_join",
                hint="install the same version of polars wherever the job runs",
            )
        return index

    def bytes(self) -> int:
        """Return how much memory index and keys take."""
        return self._rests.nbytes + self._starts.nbytes + sum(int(each.nbytes) for each in self._keys)

    def find(self, probes: pl.DataFrame) -> Matches:
        """Return (place in ``probes``, place in the sorted table) of every match, ordered by both."""
        probes = probes.rename(dict(zip(probes.columns, self._names, strict=True)))
        # A value that the key's type cannot hold becomes NULL, and equals nothing.
        probes = probes.cast(self._types, strict=False)  # type: ignore[arg-type]
        hashes = _hashes(probes)
        buckets = _bucket(hashes, self._bits)
        begins = self._starts[buckets].astype(np.int64)
        counts = self._starts[buckets + 1].astype(np.int64) - begins
        counts[_any_null(probes)] = 0
        rests = hashes.astype(np.uint16)
        sums = np.cumsum(counts)
        found: list[Matches] = []
        first = 0
        while first < len(counts):
            before = int(sums[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(sums, before + _ROWS_AT_ONCE_MAX, side="right")))
            part = slice(first, end)
            places = runs(begins[part], counts[part])
            hits = np.flatnonzero(self._rests[places] == np.repeat(rests[part], counts[part]))
            asked = np.repeat(np.arange(first, min(end, len(counts))), counts[part])[hits]
            found.append((asked, places[hits]))
            first = end
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        asked = np.concatenate([each for each, _ in found])
        places = np.concatenate([each for _, each in found])
        # Equal keys have equal hashes, and the rows were sorted stably: places are in the table's order.
        equal = self._equal(probes, asked, places)
        return asked[equal], places[equal]

    def _equal(
        self, probes: pl.DataFrame, probe_places: NDArray[np.int64], table_places: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        result = np.ones(len(probe_places), dtype=bool)
        for name, stored in zip(self._names, self._keys, strict=True):
            mine = compact(probes[name]).take(pa.array(probe_places))
            theirs = stored.take(pa.array(table_places))
            if mine.type != theirs.type:  # texts with longer ends, in a very large table
                mine = mine.cast(theirs.type)
            same = pc.equal(mine, theirs)
            if pa.types.is_floating(mine.type):
                same = pc.or_(same, pc.and_(pc.is_nan(mine), pc.is_nan(theirs)))
            result &= np.asarray(same.to_numpy(zero_copy_only=False) if isinstance(same, pa.Array) else same.to_numpy())
        return result


def _bucket(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    if not bits:
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def _hashes(keys: pl.DataFrame) -> NDArray[np.uint64]:
    """Hash: the same values in the same types have the same hash, in every process with the same polars."""
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
