"""A loaded table: rows in narrow columns and an index, in memory or in a file that several processes map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from headrace_dimension.columns import NarrowColumns, Parts
from headrace_dimension.exact_index import ExactIndex, Matches
from headrace_dimension.range_index import PrefixIndex, RangeIndex

#: How rows are looked up: "equal" on key columns, "range" between two columns, "prefix" of a network.
Lookup = tuple[str, tuple[str, ...]]
_COLUMN = "column "


class Table:
    """One version of a table: rows in narrow columns, and an index for its kind of lookup. Never changes."""

    def __init__(self, height: int, index: ExactIndex | RangeIndex | PrefixIndex, columns: NarrowColumns) -> None:
        self.height = height
        self._index = index
        self._columns = columns

    @classmethod
    def of(cls, frame: pl.DataFrame, lookup: Lookup) -> Table:
        """Return a table of these rows. Raises DataError for a network that cannot be read."""
        kind, columns = lookup
        index: ExactIndex | RangeIndex | PrefixIndex
        height, order = frame.height, None
        if kind == "equal":
            index, sorted_rows = ExactIndex.of(frame.select(columns))
            order = pl.Series(sorted_rows)
            frame = frame.drop(columns)
        elif kind == "range":
            index = RangeIndex.of(frame[columns[0]], frame[columns[1]])
        else:
            index = PrefixIndex.of(frame[columns[0]])
        # No reference to the frame is kept here, so that each column is freed as soon as it is narrowed.
        given = [frame]
        del frame
        return cls(height, index, NarrowColumns.of(given.pop(), order))

    def parts(self) -> tuple[Parts, Mapping[str, Any]]:
        """Return the parts of the table, to write them to a file: arrays by name, and values for JSON."""
        arrays, facts = self._index.parts()
        columns = {f"{_COLUMN}{name}": array for name, array in self._columns.parts().items()}
        return {**arrays, **columns}, {**facts, "height": self.height}

    @classmethod
    def of_parts(
        cls, parts: Parts, facts: Mapping[str, Any], schema: Mapping[str, pl.DataType], lookup: Lookup
    ) -> Table:
        """Return the table from ``parts`` that a process wrote. ``schema``: the columns that were loaded.

        Nothing is copied except the begins and ends of ranges. Raises JobError when the index does not fit this process.
        """
        kind, columns = lookup
        index: ExactIndex | RangeIndex | PrefixIndex
        if kind == "equal":
            index = ExactIndex.of_parts(parts, facts, {name: schema[name] for name in columns})
        elif kind == "range":
            index = RangeIndex.of_parts(parts, schema[columns[0]])
        else:
            index = PrefixIndex.of_parts(parts, facts)
        types = {name: type_ for name, type_ in schema.items() if kind != "equal" or name not in columns}
        narrow = NarrowColumns({name: parts[f"{_COLUMN}{name}"] for name in types}, types)
        return cls(facts["height"], index, narrow)

    def find(self, probes: pl.DataFrame) -> Matches:
        """Return (row of ``probes``, row number for ``take``) of every match."""
        if isinstance(self._index, ExactIndex):
            return self._index.find(probes)
        return self._index.find(probes.to_series())

    def take(self, places: pl.Series) -> pl.DataFrame:
        """Return rows of the table by number; NULL gives a row of NULLs. For "equal" the key columns are not among the columns."""
        return self._columns.take(places)

    def bytes(self) -> int:
        """Return the bytes of memory of the table with its index."""
        return self._columns.bytes() + self._index.bytes()


def places_for_all(count: int, matches: Matches) -> tuple[pl.Series, pl.Series]:
    """Return the matches, and one more pair (table row NULL) for each probe without a match: for left joins."""
    probes, places = matches
    missing = np.setdiff1d(np.arange(count, dtype=np.int64), probes, assume_unique=False)
    at = pl.concat([pl.Series("at", probes), pl.Series("at", missing)])
    to = pl.concat([pl.Series("to", places), pl.Series("to", [None], dtype=pl.Int64).new_from_index(0, len(missing))])
    rows = pl.DataFrame([at, to]).sort("at", maintain_order=True)
    return rows["at"], rows["to"]
