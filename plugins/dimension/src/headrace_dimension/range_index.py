"""Indexes for ranges and network prefixes: they find the rows of a table whose range or network contains a value."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

from headrace_dimension.columns import Parts, compact, runs
from headrace_dimension.exact_index import Matches

_NONE: Matches = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class RangeIndex:
    """Finds all rows with ``low <= value <= high``. Ranges may overlap; one with a NULL or with low > high contains nothing.

    The values are divided into pieces at each begin and end of a range. The index has for each piece the rows whose ranges
    contain it, so many overlapping ranges take much memory.
    """

    def __init__(self, points: pl.Series, owners: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        self._points = points
        self._owners = owners
        self._starts = starts

    @classmethod
    def of(cls, low: pl.Series, high: pl.Series) -> RangeIndex:
        """Return an index of ranges; ``low`` and ``high`` are columns of a table."""
        rows = np.flatnonzero((low.is_not_null() & high.is_not_null() & (low <= high).fill_null(False)).to_numpy())
        low, high = low.gather(pl.Series(rows)), high.gather(pl.Series(rows))
        # A piece is a point where a range begins or ends (even number), or the values between two such points (odd number).
        points = pl.concat([low, high]).unique().sort()
        begins = points.search_sorted(low, side="left").to_numpy().astype(np.int64) * 2
        ends = points.search_sorted(high, side="left").to_numpy().astype(np.int64) * 2 + 1
        counts = ends - begins
        pieces = runs(begins, counts)
        owners = np.repeat(rows, counts)
        order = np.lexsort((owners, pieces))
        starts = np.searchsorted(pieces[order], np.arange(2 * len(points) + 1)).astype(np.int64)
        return cls(points, owners[order].astype(np.int64), starts)

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return the parts of the index, to write them to a file: arrays by name, and values for JSON."""
        arrays = {"owners": pa.array(self._owners), "starts": pa.array(self._starts), "points": compact(self._points)}
        return arrays, {}

    @classmethod
    def of_parts(cls, parts: Parts, kind: pl.DataType) -> RangeIndex:
        """Return the index from ``parts`` that a process wrote."""
        points = pl.Series("points", parts["points"]).cast(kind)
        return cls(points, parts["owners"].to_numpy(), parts["starts"].to_numpy())

    def bytes(self) -> int:
        """Return the bytes of memory of the index."""
        return int(self._owners.nbytes + self._starts.nbytes + self._points.estimated_size())

    def find(self, values: pl.Series) -> Matches:
        """Return (row of ``values``, row of the table) of every match, ordered by both."""
        if not len(self._points):
            return _NONE
        values = values.cast(self._points.dtype, strict=False)
        known = np.flatnonzero(values.is_not_null().to_numpy())
        asked = values.gather(pl.Series(known))
        if asked.dtype.is_float():
            whole = np.flatnonzero(asked.is_not_nan().to_numpy())
            known, asked = known[whole], asked.gather(pl.Series(whole))
        left = self._points.search_sorted(asked, side="left").to_numpy().astype(np.int64)
        right = self._points.search_sorted(asked, side="right").to_numpy().astype(np.int64)
        # A value that is a point is in the piece of the point, any other value in the piece after the last point below it.
        pieces = np.where(right > left, 2 * left, 2 * left - 1)
        inside = pieces >= 0
        known, pieces = known[inside], pieces[inside]
        begins, counts = self._starts[pieces], self._starts[pieces + 1] - self._starts[pieces]
        return np.repeat(known, counts), self._owners[runs(begins, counts)]


class PrefixIndex:
    """Finds the row with the longest network prefix that contains an IPv4 or IPv6 address. Rows with equal prefixes all match."""

    def __init__(self, groups: Mapping[tuple[int, int], tuple[NDArray[np.bytes_], NDArray[np.int64]]]) -> None:
        #: Longest prefixes first: the first one that contains an address is the result.
        self._groups = dict(sorted(groups.items(), key=lambda each: -each[0][1]))

    @classmethod
    def of(cls, prefixes: pl.Series) -> PrefixIndex:
        """Return an index of networks. Raises DataError for a text that is not a network; NULLs match nothing."""
        groups: dict[tuple[int, int], list[tuple[bytes, int]]] = {}
        for row, text in enumerate(prefixes.to_list()):
            if text is None:
                continue
            try:
                network = ipaddress.ip_network(text.strip(), strict=False)
            except ValueError as error:
                raise DataError(f"row {row} of the table: {error}", hint="write prefixes as 10.0.0.0/8") from error
            packed = network.network_address.packed
            groups.setdefault((network.version, network.prefixlen), []).append((packed, row))
        made = {}
        for (version, length), members in groups.items():
            members.sort()
            width = 4 if version == 4 else 16
            keys = np.frombuffer(b"".join(packed for packed, _ in members), dtype=np.uint8).reshape(-1, width)
            made[version, length] = (_ordered(keys), np.array([row for _, row in members], dtype=np.int64))
        return cls(made)

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return the parts of the index, to write them to a file: arrays by name, and values for JSON."""
        arrays: dict[str, pa.Array] = {}
        for (version, length), (keys, rows) in self._groups.items():
            kind = pa.binary(keys.dtype.itemsize)
            arrays[f"keys {version} {length}"] = pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(keys)])
            arrays[f"rows {version} {length}"] = pa.array(rows)
        return arrays, {"groups": [list(group) for group in self._groups]}

    @classmethod
    def of_parts(cls, parts: Parts, facts: Mapping[str, Any]) -> PrefixIndex:
        """Return the index from ``parts`` that a process wrote."""
        made = {}
        for version, length in facts["groups"]:
            stored = parts[f"keys {version} {length}"]
            keys = np.frombuffer(stored.buffers()[1], dtype=f"S{stored.type.byte_width}", count=len(stored))
            made[version, length] = (keys, parts[f"rows {version} {length}"].to_numpy())
        return cls(made)

    def bytes(self) -> int:
        """Return the bytes of memory of the index."""
        return sum(keys.nbytes + rows.nbytes for keys, rows in self._groups.values())

    def find(self, addresses: pl.Series) -> Matches:
        """Return (row of ``addresses``, row of the table) of every match. A text that is not an address matches nothing."""
        found: list[Matches] = []
        unique = addresses.unique().drop_nulls()
        packed = {4: ([], []), 6: ([], [])}  # type: ignore[var-annotated]
        for text in unique.to_list():
            try:
                address = ipaddress.ip_address(text.strip())
            except ValueError:
                continue
            packed[address.version][0].append(text)
            packed[address.version][1].append(address.packed)
        rows_of: dict[str, NDArray[np.int64]] = {}
        for version, (texts, bodies) in packed.items():
            width = 4 if version == 4 else 16
            waiting = np.arange(len(texts))
            octets = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(-1, width)
            for (group_version, length), (keys, rows) in self._groups.items():
                if group_version != version or not len(waiting):
                    continue
                masked = _ordered(octets[waiting] & _mask(length, width))
                begins = np.searchsorted(keys, masked, side="left")
                ends = np.searchsorted(keys, masked, side="right")
                hit = begins < ends
                for place, begin, end in zip(waiting[hit].tolist(), begins[hit], ends[hit], strict=True):
                    rows_of[texts[place]] = np.sort(rows[begin:end])
                waiting = waiting[~hit]
        for place, text in enumerate(addresses.to_list()):
            rows = rows_of.get(text)  # type: ignore[assignment]
            if rows is not None:
                found.append((np.full(len(rows), place, dtype=np.int64), rows))
        if not found:
            return _NONE
        return np.concatenate([place for place, _ in found]), np.concatenate([row for _, row in found])


def _ordered(octets: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return each row of bytes as one value that sorts by its bytes. A byte 1 is appended, as numpy drops zeros at the end."""
    marked = np.concatenate([octets, np.ones((len(octets), 1), dtype=np.uint8)], axis=1)
    return np.ascontiguousarray(marked).view(f"S{marked.shape[1]}").ravel()


def _mask(length: int, width: int) -> NDArray[np.uint8]:
    bits = ((1 << length) - 1) << (8 * width - length)
    return np.frombuffer(bits.to_bytes(width, "big"), dtype=np.uint8)
