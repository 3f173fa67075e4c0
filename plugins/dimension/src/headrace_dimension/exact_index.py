"""Equal keys: an index over 64-bit hashes in buckets, with the keys themselves compared.

Rows are sorted by hash. The upper bits of a hash name a bucket, which knows where its rows begin; of the rest, 32 bits are
kept per row. A lookup compares those with the rows of its bucket (one on average), for a whole batch at once, then the key
itself: a hash collision costs a comparison and never gives a wrong match. Beside the key's bytes that is 12 bytes a row.
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

from headrace_dimension.columns import Parts, compact

_ROWS_PER_BUCKET = 1
#: Keys of which a mapped index is tried, to be sure that this process hashes as the one that wrote it.
_TRIED_KEYS = 16

Matches = tuple[NDArray[np.int64], NDArray[np.int64]]


class ExactIndex:
    """Finds the rows of a table whose key columns equal those of other rows. NULL equals nothing, NaN equals NaN."""

    def __init__(
        self,
        types: Mapping[str, pl.DataType],
        keys: list[pa.Array],
        rests: NDArray[np.uint32],
        starts: NDArray[np.generic],
        *,
        bits: int,
        longest: int,
        single: bool,
    ) -> None:
        self._names = list(types)
        self._types = dict(types)
        self._keys = keys
        self._rests = rests
        self._starts = starts
        self._bits = bits
        self._longest = longest
        #: No two rows look equal before their keys are compared: then at most one row can match.
        self._single = single

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
        rests = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        buckets = _bucket(hashes, bits)
        counts = np.bincount(buckets, minlength=1 << bits) if count else np.zeros(1 << bits, dtype=np.int64)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        twins = (buckets[1:] == buckets[:-1]) & (rests[1:] == rests[:-1])
        index = cls(
            dict(keys.schema),
            [compact(keys[name].gather(pl.Series(order))) for name in keys.columns],
            rests,
            starts.astype(np.uint32 if count < 2**32 else np.int64),
            bits=bits,
            longest=int(counts.max()),
            single=not bool(twins.any()),
        )
        return index, order

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return what the index is made of, for a file: arrays, and facts that JSON can hold."""
        keys = {f"key {number}": each for number, each in enumerate(self._keys)}
        arrays = {"rests": pa.array(self._rests), "starts": pa.array(self._starts), **keys}
        return arrays, {"bits": self._bits, "longest": self._longest, "single": self._single}

    @classmethod
    def of_parts(cls, parts: Parts, facts: Mapping[str, Any], types: Mapping[str, pl.DataType]) -> ExactIndex:
        """Return the index whose ``parts`` another process wrote. Raises JobError when this one hashes differently."""
        keys = [parts[f"key {number}"] for number in range(len(types))]
        index = cls(types, keys, parts["rests"].to_numpy(), parts["starts"].to_numpy(), bits=facts["bits"],
                    longest=facts["longest"], single=facts["single"])  # fmt: skip
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
            # Equal keys have equal hashes, and the rows were sorted stably: their places are in the table's order.
            order = np.lexsort((table_places, probe_places))
            probe_places, table_places = probe_places[order], table_places[order]
        return probe_places, table_places

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
