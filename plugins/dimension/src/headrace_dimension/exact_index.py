"""Index for equal keys: 64-bit hashes in buckets. The keys themselves are compared, too.

Rows are sorted by hash. The upper bits of a hash are the number of a bucket, for which the index has the number of its
first row. Of each row the 16 lowest bits of the hash are stored (``rests``). A lookup compares these bits with those of all
rows of its bucket (about five), four rows at a time as the lanes of one 64-bit word, for a whole batch at once. Where they
are equal it compares the keys: a hash collision costs a comparison and never gives a wrong match. The index takes 3 bytes a
row in addition to the bytes of the keys, and 4 for the end of a text.

Most of the time of a lookup is spent waiting for memory. A lookup reads one place in the buckets and one in the bits of the
hashes. If the bits are equal, it also reads one place in the ends of the texts and one or two in the texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from headrace.foundation.errors import JobError
from numpy.typing import NDArray

from headrace_dimension.columns import Parts, compact, runs

_ROWS_PER_BUCKET = 8
#: So many words of a bucket are compared one after the other; a bucket with more words probably has rows with equal keys.
_WORDS_MAX = 8
#: Unused entries after the last row, so that the words of an empty last bucket exist.
SPARE_RESTS = 8
#: The factor that copies 16 bits into each lane of a word, and the top bits of all lanes. Lane 0 is the lowest (little-endian).
_LANES = np.uint64(0x0001_0001_0001_0001)
_TOPS = np.uint64(0x8000_8000_8000_8000)
#: Rows of long buckets that are compared in one step: limits the memory of a lookup if a bucket has very many rows.
_ROWS_AT_ONCE_MAX = 2_000_000
#: So many keys of a mapped index are looked up, to check that this process makes the same hashes as the one that wrote it.
_TRIED_KEYS = 16

Matches = tuple[NDArray[np.int64], NDArray[np.int64]]


class ExactIndex:
    """Finds the rows of a table whose key columns equal those of given rows. NULL equals nothing, NaN equals NaN."""

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
        self._words = rests.view(np.uint64)
        self._starts = starts
        self._bits = bits

    @classmethod
    def of(cls, keys: pl.DataFrame) -> tuple[ExactIndex, NDArray[np.int64]]:
        """Return the index of rows with these keys, and the row numbers in its order. Rows with a NULL in a key are left out."""
        hashes = hashes_of(keys)
        missing = any_null(keys)
        order = np.argsort(hashes, kind="stable")
        if missing is not None:
            order = order[~missing[order]]
        count = len(order)
        hashes = hashes[order]
        del missing
        bits = bucket_bits(count)
        buckets = buckets_of(hashes, bits)
        counts = np.bincount(buckets, minlength=1 << bits) if count else np.zeros(1 << bits, dtype=np.int64)
        del buckets
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        starts = starts.astype(np.uint32 if count < 2**32 else np.int64)
        rests = np.zeros(count + -count % 4 + SPARE_RESTS, dtype=np.uint16)
        rests[:count] = hashes.astype(np.uint16)
        del hashes
        stored = [compact(keys[name].gather(pl.Series(order))) for name in keys.columns]
        index = cls(dict(keys.schema), stored, rests, starts, bits)
        return index, order

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return the parts of the index, to write them to a file: arrays by name, and values for JSON."""
        keys = {f"key {number}": each for number, each in enumerate(self._keys)}
        arrays = {"rests": pa.array(self._rests), "starts": pa.array(self._starts), **keys}
        return arrays, {"bits": self._bits}

    @classmethod
    def of_parts(cls, parts: Parts, facts: Mapping[str, Any], types: Mapping[str, pl.DataType]) -> ExactIndex:
        """Return the index from ``parts`` that a process wrote. Raises JobError when this process makes other hashes."""
        keys = [parts[f"key {number}"] for number in range(len(types))]
        index = cls(types, keys, parts["rests"].to_numpy(), parts["starts"].to_numpy(), facts["bits"])
        tried = pl.DataFrame([pl.Series(name, key[:_TRIED_KEYS]) for name, key in zip(types, keys, strict=True)])
        found = set(index.find(tried)[0].tolist())
        if len(found) != tried.height:
            raise JobError(
                "a shared table of another process cannot be used: this process has another version of polars, which hashes keys "
                "differently",
                plugin="lookup_join",
                hint="install the same version of polars on all machines and in all environments of the job",
            )
        return index

    def bytes(self) -> int:
        """Return the bytes of memory of the index with its keys."""
        return self._rests.nbytes + self._starts.nbytes + sum(int(each.nbytes) for each in self._keys)

    def find(self, probes: pl.DataFrame) -> Matches:
        """Return (row of ``probes``, row in the order of the index) of every match, ordered by both."""
        # In their order, too: a column of the stream may be called as another column of the key.
        if list(probes.schema.items()) != list(self._types.items()):
            probes = probes.rename(dict(zip(probes.columns, self._names, strict=True)))
            # A value that the key's type cannot hold becomes NULL, and equals nothing.
            probes = probes.cast(self._types, strict=False)  # type: ignore[arg-type]
        hashes = hashes_of(probes)
        buckets = buckets_of(hashes, self._bits)
        begins = self._starts[buckets].astype(np.int64)
        ends = self._starts[buckets + 1].astype(np.int64)
        missing = any_null(probes)
        if missing is not None:
            ends[missing] = begins[missing]
        asked, places = self._candidates(hashes.astype(np.uint16), begins, ends)
        # Equal keys have equal hashes, and the sort was stable: rows with equal keys are in the order of the table.
        equal = self._equal(probes, asked, places)
        return asked[equal], places[equal]

    def _candidates(self, rests: NDArray[np.uint16], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Matches:
        """Return (row of the probes, row of the index) where the 16 bits of the hashes are equal, ordered by both."""
        asked = np.arange(len(rests))
        patterns = rests.astype(np.uint64) * _LANES
        words, last_words = begins >> 2, (ends - 1) >> 2
        found: list[Matches] = []
        for _ in range(_WORDS_MAX):
            differences = self._words.take(words, mode="clip")
            differences ^= patterns
            # The top bit of each lane that is zero. A lane above a zero lane may be marked wrongly: ``same`` excludes it below.
            zeros = (differences - _LANES) & ~differences
            zeros &= _TOPS
            hits = np.flatnonzero(zeros)
            found += _lanes(zeros[hits], asked[hits], words[hits])
            left = np.flatnonzero(last_words > words)
            asked, words, last_words, patterns = asked[left], words[left] + 1, last_words[left], patterns[left]
            if not len(asked):
                break
        all_asked = np.concatenate([each for each, _ in found])
        all_places = np.concatenate([each for _, each in found])
        same = self._rests[all_places] == rests[all_asked]
        same &= (all_places >= begins[all_asked]) & (all_places < ends[all_asked])
        found = [(all_asked[same], all_places[same])]
        if len(asked):
            found += self._in_long_buckets(asked, rests[asked], 4 * words, ends[asked] - 4 * words)
        return _ordered(found, len(rests))

    def _in_long_buckets(
        self, asked: NDArray[np.int64], rests: NDArray[np.uint16], begins: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> list[Matches]:
        """Return the same as ``_candidates`` for the rest of long buckets. ``begins`` and ``counts``: their rows."""
        sums = np.cumsum(counts)
        found: list[Matches] = []
        first = 0
        while first < len(counts):
            before = int(sums[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(sums, before + _ROWS_AT_ONCE_MAX, side="right")))
            part = slice(first, end)
            places = runs(begins[part], counts[part])
            hits = np.flatnonzero(self._rests[places] == np.repeat(rests[part], counts[part]))
            found.append((np.repeat(asked[part], counts[part])[hits], places[hits]))
            first = end
        return found

    def _equal(
        self, probes: pl.DataFrame, probe_places: NDArray[np.int64], table_places: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        result = np.ones(len(probe_places), dtype=bool)
        for name, stored in zip(self._names, self._keys, strict=True):
            mine = compact(probes[name]).take(pa.array(probe_places))
            theirs = stored.take(pa.array(table_places))
            if mine.type != theirs.type:  # texts with 64-bit ends, in a very large table
                mine = mine.cast(theirs.type)
            same = pc.equal(mine, theirs)
            if pa.types.is_floating(mine.type):
                same = pc.or_(same, pc.and_(pc.is_nan(mine), pc.is_nan(theirs)))
            result &= np.asarray(same.to_numpy(zero_copy_only=False) if isinstance(same, pa.Array) else same.to_numpy())
        return result


def bucket_bits(count: int) -> int:
    """Return how many upper bits of a hash are the number of its bucket."""
    return max(0, int(count // _ROWS_PER_BUCKET).bit_length())


def buckets_of(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Return the number of each hash's bucket."""
    if not bits:
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def hashes_of(keys: pl.DataFrame) -> NDArray[np.uint64]:
    """Return hashes: equal values of the same type have the same hash in every process with the same version of polars."""
    if keys.width == 1:
        column = keys.to_series()
        column = column + 0.0 if column.dtype.is_float() else column
        return column.hash(seed=17).to_numpy()
    return keys.hash_rows(seed=17).to_numpy()


def _lanes(zeros: NDArray[np.uint64], asked: NDArray[np.int64], words: NDArray[np.int64]) -> list[Matches]:
    """Return (row of the probes, row of the index) for each lane whose top bit is set in ``zeros``, lowest lanes first."""
    found: list[Matches] = []
    while len(zeros):
        lowest = zeros & (~zeros + np.uint64(1))
        # The top bit of a lane is 15 above its lowest bit.
        found.append((asked, 4 * words + (np.bitwise_count(lowest - np.uint64(1)) >> 4)))
        zeros = zeros ^ lowest
        more = np.flatnonzero(zeros)
        zeros, asked, words = zeros[more], asked[more], words[more]
    return found or [(asked, words)]


def _ordered(found: list[Matches], probes: int) -> Matches:
    """Return the matches ordered by probe; those of one probe keep their order."""
    asked = np.concatenate([each for each, _ in found])
    places = np.concatenate([each for _, each in found])
    # numpy sorts 16-bit numbers in linear time.
    order = np.argsort(asked.astype(np.uint16) if probes <= 1 << 16 else asked, kind="stable")
    return asked[order], places[order]


def any_null(keys: pl.DataFrame) -> NDArray[np.bool_] | None:
    """Return the rows in which a key is NULL; None when there is no such row."""
    columns = [column for column in keys.iter_columns() if column.null_count()]
    if not columns:
        return None
    missing: NDArray[np.bool_] = np.logical_or.reduce([column.is_null().to_numpy() for column in columns])
    return missing
