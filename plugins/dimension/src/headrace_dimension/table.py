"""A loaded table, and the tables of a process: one copy each, refreshed behind the lookups and swapped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import polars as pl
from headrace.clock import Clock, SystemClock

from headrace_dimension.columns import NarrowColumns
from headrace_dimension.exact_index import ExactIndex, Matches
from headrace_dimension.range_index import PrefixIndex, RangeIndex

logger = logging.getLogger(__name__)
#: How rows are looked up: "equal" on key columns, "range" between two columns, "prefix" of a network.
Lookup = tuple[str, tuple[str, ...]]


class Table:
    """One state of a table: rows in narrow columns, and an index per way of looking up. Never changes."""

    def __init__(self, frame: pl.DataFrame, lookup: Lookup) -> None:
        kind, columns = lookup
        self.height = frame.height
        self._index: ExactIndex | RangeIndex | PrefixIndex
        if kind == "equal":
            self._index = ExactIndex(frame.select(columns))
            frame = frame.select(pl.exclude(columns)).select(pl.all().gather(pl.Series(self._index.order)))
        elif kind == "range":
            self._index = RangeIndex(frame[columns[0]], frame[columns[1]])
        else:
            self._index = PrefixIndex(frame[columns[0]])
        self._columns = NarrowColumns(frame)

    def find(self, probes: pl.DataFrame) -> Matches:
        """Return (place in ``probes``, place for ``take``) of every match."""
        if isinstance(self._index, ExactIndex):
            return self._index.find(probes)
        return self._index.find(probes.to_series())

    def take(self, places: pl.Series) -> pl.DataFrame:
        """Return the table's other columns at places; NULL gives NULLs."""
        return self._columns.take(places)

    def bytes(self) -> int:
        """Return how much memory the table takes, with its index."""
        return self._columns.bytes() + self._index.bytes()


@dataclass
class SharedTable:
    """A table that all lanes of a process look at. ``current`` loads it at first and has it refreshed when it is old."""

    name: str
    load: Callable[[], Table]
    refresh: timedelta | None
    clock: Clock = field(default_factory=SystemClock)
    _table: Table | None = None
    _loaded_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refreshing: threading.Thread | None = None

    def current(self) -> Table:
        """Return the newest table. Blocks only for the first load; an older one serves while a new one is loaded."""
        table = self._table
        if table is None:
            with self._lock:
                if self._table is None:
                    self._store(self.load())
                table = self._table
            assert table is not None
        elif self.refresh is not None and self._age() >= self.refresh.total_seconds():
            self._refresh_behind()
        return table

    def reload(self) -> None:
        """Load the table anew now, and swap it when it is there. Raises what loading raises; the old one stays then."""
        self._store(self.load())

    def wait(self) -> None:
        """Wait until a refresh that is under way has ended."""
        thread = self._refreshing
        if thread is not None:
            thread.join()

    def _age(self) -> float:
        return self.clock.monotonic() - self._loaded_seconds

    def _store(self, table: Table) -> None:
        self._table, self._loaded_seconds = table, self.clock.monotonic()
        logger.info("table %s: %d rows, %d bytes", self.name, table.height, table.bytes())

    def _refresh_behind(self) -> None:
        with self._lock:
            if self._refreshing is not None and self._refreshing.is_alive():
                return
            self._refreshing = threading.Thread(target=self._try_reload, name=f"refresh {self.name}", daemon=True)
            self._refreshing.start()

    def _try_reload(self) -> None:
        try:
            self.reload()
        except Exception as error:  # whatever the source raises: the table that is there goes on to serve
            self._loaded_seconds = self.clock.monotonic()
            logger.warning("table %s could not be refreshed, the one before it is used: %s", self.name, error)


_tables: dict[str, SharedTable] = {}
_tables_lock = threading.Lock()


def shared_table(token: str, make: Callable[[], SharedTable]) -> SharedTable:
    """Return the table of a token, made once per process."""
    with _tables_lock:
        found = _tables.get(token)
        if found is None:
            found = _tables[token] = make()
        return found


def places_for_all(count: int, matches: Matches) -> tuple[pl.Series, pl.Series]:
    """Return matches with a line more (place NULL) for each probe that matches nothing: for left joins."""
    probes, places = matches
    missing = np.setdiff1d(np.arange(count, dtype=np.int64), probes, assume_unique=False)
    at = pl.concat([pl.Series("at", probes), pl.Series("at", missing)])
    to = pl.concat([pl.Series("to", places), pl.Series("to", [None], dtype=pl.Int64).new_from_index(0, len(missing))])
    rows = pl.DataFrame([at, to]).sort("at", maintain_order=True)
    return rows["at"], rows["to"]
