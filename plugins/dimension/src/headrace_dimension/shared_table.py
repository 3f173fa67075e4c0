"""The tables of a process: one copy each for all lanes and jobs, refreshed behind the lookups and swapped.

Where several processes of a machine run parts of one job (Spark's workers), they map one copy, see ``table_files``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from weakref import WeakValueDictionary

import polars as pl
import pyarrow as pa
from headrace.foundation.clock import Clock, SystemClock

from headrace_dimension.table import Lookup, Table
from headrace_dimension.table_files import TableFile, TableFiles, can_share

logger = logging.getLogger(__name__)
Load = Callable[[], Table]


@dataclass(frozen=True)
class Sharing:
    """How a table is shared between processes: where its files are, and what they are read as."""

    files: TableFiles
    schema: Mapping[str, pl.DataType]
    lookup: Lookup

    def table(self, found: TableFile) -> Table:
        """Return a mapped state as a table."""
        return Table.of_parts(found.parts, found.facts, self.schema, self.lookup)


@dataclass
class SharedTable:
    """A table that all lanes of a process look at. ``current`` loads it at first and has it refreshed when it is old.

    ``load`` is given with each call, since what loads a table holds the stream that it comes from, and a table lives no
    longer than that stream. ``sharing``: other processes of this machine use the same table; one loads it for all.
    """

    name: str
    refresh: timedelta | None
    clock: Clock = field(default_factory=SystemClock)
    sharing: Sharing | None = None
    _table: Table | None = None
    _number: int = 0
    _loaded_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refreshing: threading.Thread | None = None
    #: Whether lookups wait for the refresh that is under way.
    _awaited: bool = False

    def current(self, load: Load) -> Table:
        """Return the newest table. An older one is used while a new one is loaded.

        Blocks for the first load, and for a refresh that is overdue by a whole interval: then no lookup has come for so long.
        """
        table = self._table
        if table is None:
            with self._lock:
                if self._table is None:
                    self._renew(load)
                table = self._table
            assert table is not None
        elif self.refresh is not None and self._age() >= self.refresh.total_seconds() and self._refresh_behind(load):
            self.wait()
            table = self._table or table
        return table

    def reload(self, load: Load) -> None:
        """Load the table anew now, and swap it when it is there. Raises what loading raises; the old one stays then."""
        self._renew(load, at_once=True)

    def wait(self) -> None:
        """Wait until a refresh that is under way has ended."""
        thread = self._refreshing
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Let the table go."""
        self._table, self._number = None, 0
        if self.sharing is not None:
            self.sharing.files.close()

    def _age(self) -> float:
        return self.clock.monotonic() - self._loaded_seconds

    def _renew(self, load: Load, *, at_once: bool = False) -> None:
        if self.sharing is None:
            self._store(load(), 0.0)
            _give_back_memory()
            return
        files = self.sharing.files
        with files.loading():
            newest = files.newest()
            if newest > self._number and not at_once:
                found = files.map(newest)
                age = max(0.0, self.clock.now() - found.made_at)
                if self.refresh is None or age < self.refresh.total_seconds():
                    self._store(self.sharing.table(found), age, newest)
                    return
            table = load()
            try:
                found = files.publish(*table.parts(), self.clock.now())
            except OSError as error:
                logger.warning("table %s cannot be shared, this process keeps a copy of its own: %s", self.name, error)
                self._store(table, 0.0, self._number)
                return
            del table
            self._store(self.sharing.table(found), 0.0, found.number)
        _give_back_memory()

    def _store(self, table: Table, age_seconds: float, number: int = 0) -> None:
        self._table, self._number = table, number
        self._loaded_seconds = self.clock.monotonic() - age_seconds
        logger.info("table %s: %d rows, %d bytes", self.name, table.height, table.bytes())

    def _refresh_behind(self, load: Load) -> bool:
        """Start a refresh unless one is under way. Return whether the lookup is to wait for it."""
        assert self.refresh is not None
        with self._lock:
            if self._refreshing is None or not self._refreshing.is_alive():
                # A lookup is what starts a refresh. After a quiet time the rows would be joined with a table of any age.
                self._awaited = self._age() >= 2 * self.refresh.total_seconds()
                name = f"refresh {self.name}"
                self._refreshing = threading.Thread(target=self._try_renew, args=(load,), name=name, daemon=True)
                self._refreshing.start()
            return self._awaited

    def _try_renew(self, load: Load) -> None:
        try:
            self._renew(load)
        except Exception as error:  # whatever the source raises: the table that is there goes on to serve
            self._loaded_seconds = self.clock.monotonic()
            logger.warning("table %s could not be refreshed, the previous one is used: %s", self.name, error)


def _give_back_memory() -> None:
    """Give the system what Arrow keeps of the rows that were loaded: several times what the table takes."""
    pa.default_memory_pool().release_unused()


_tables: WeakValueDictionary[str, SharedTable] = WeakValueDictionary()
_tables_lock = threading.Lock()


def table_of_another_process(token: str, make: Callable[[], SharedTable]) -> SharedTable:
    """Return this process's view of a table that several processes use; the same one while anybody holds it."""
    with _tables_lock:
        found = _tables.get(token)
        if found is None:
            found = _tables[token] = make()
        return found


def sharing_for(token: str, schema: Mapping[str, pl.DataType], lookup: Lookup) -> Sharing | None:
    """Return how a table is shared with the other processes of this machine; None where the system cannot."""
    return Sharing(TableFiles(token), schema, lookup) if can_share() else None
