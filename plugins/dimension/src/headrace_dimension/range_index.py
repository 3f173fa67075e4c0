"""Ranges and network prefixes: which rows of a table hold a value between two others, or an address."""

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
    """Finds all rows with ``low <= value <= high``. Ranges may overlap; one with a NULL or with low > high holds nothing.

    The line of values is cut where a range begins or ends; each piece knows the ranges that cover it.
    """

    def __init__(self, points: pl.Series, owners: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        self._points = points
        self._owners = owners
        self._starts = starts

    @classmethod
    def of(cls, low: pl.Series, high: pl.Series) -> RangeIndex:
        """Return an index of the ranges that two columns of a table have."""
        rows = np.flatnonzero((low.is_not_null() & high.is_not_null() & (low <= high).fill_null(False)).to_numpy())
        low, high = low.gather(pl.Series(rows)), high.gather(pl.Series(rows))
        # A piece is a point where something begins or ends, or what lies between two such points.
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
        """Return what the index is made of, for a file: arrays, and facts that JSON can hold."""
        arrays = {"owners": pa.array(self._owners), "starts": pa.array(self._starts), "points": compact(self._points)}
        return arrays, {}

    @classmethod
    def of_parts(cls, parts: Parts, kind: pl.DataType) -> RangeIndex:
        """Return the index whose ``parts`` another process wrote."""
        points = pl.Series("points", parts["points"]).cast(kind)
        return cls(points, parts["owners"].to_numpy(), parts["starts"].to_numpy())

    def bytes(self) -> int:
        """Return how much memory the index takes."""
        return int(self._owners.nbytes + self._starts.nbytes + self._points.estimated_size())

    def find(self, values: pl.Series) -> Matches:
        """Return (place in ``values``, row of the table) of every match, ordered by both."""
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
        # On a point: its own piece. Between two: the piece behind the point before it.
        pieces = np.where(right > left, 2 * left, 2 * left - 1)
        inside = pieces >= 0
        known, pieces = known[inside], pieces[inside]
        begins, counts = self._starts[pieces], self._starts[pieces + 1] - self._starts[pieces]
        return np.repeat(known, counts), self._owners[runs(begins, counts)]


class PrefixIndex:
    """Finds the row with the longest network prefix that holds an address, IPv4 or IPv6. Rows with equal prefixes all match."""

    def __init__(self, groups: Mapping[tuple[int, int], tuple[NDArray[np.bytes_], NDArray[np.int64]]]) -> None:
        #: Longest prefixes first: the first that holds an address is the answer.
        self._groups = dict(sorted(groups.items(), key=lambda each: -each[0][1]))

    @classmethod
    def of(cls, prefixes: pl.Series) -> PrefixIndex:
        """Return an index of networks. Raises DataError for one that cannot be read."""
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
        """Return what the index is made of, for a file: arrays, and facts that JSON can hold."""
        arrays: dict[str, pa.Array] = {}
        for (version, length), (keys, rows) in self._groups.items():
            kind = pa.binary(keys.dtype.itemsize)
            arrays[f"keys {version} {length}"] = pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(keys)])
            arrays[f"rows {version} {length}"] = pa.array(rows)
        return arrays, {"groups": [list(group) for group in self._groups]}

    @classmethod
    def of_parts(cls, parts: Parts, facts: Mapping[str, Any]) -> PrefixIndex:
        """Return the index whose ``parts`` another process wrote."""
        made = {}
        for version, length in facts["groups"]:
            stored = parts[f"keys {version} {length}"]
            keys = np.frombuffer(stored.buffers()[1], dtype=f"S{stored.type.byte_width}", count=len(stored))
            made[version, length] = (keys, parts[f"rows {version} {length}"].to_numpy())
        return cls(made)

    def bytes(self) -> int:
        """Return how much memory the index takes."""
        return sum(keys.nbytes + rows.nbytes for keys, rows in self._groups.values())

    def find(self, addresses: pl.Series) -> Matches:
        """Return (place in ``addresses``, row of the table); what is no address matches nothing."""
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
    """Return rows of bytes as values that sort as bytes do: numpy drops zeros at the end, so a one is put behind."""
    marked = np.concatenate([octets, np.ones((len(octets), 1), dtype=np.uint8)], axis=1)
    return np.ascontiguousarray(marked).view(f"S{marked.shape[1]}").ravel()


def _mask(length: int, width: int) -> NDArray[np.uint8]:
    bits = ((1 << length) - 1) << (8 * width - length)
    return np.frombuffer(bits.to_bytes(width, "big"), dtype=np.uint8)
