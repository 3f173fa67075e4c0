"""The tables of a process: all lanes and jobs share one copy of each. A refresh loads a new table in a thread and replaces it.

If several processes of a machine run parts of one job (Spark's workers), they map one copy: see ``table_files``.
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
    """How a table is shared between processes: its files, and the columns and lookup needed to read them."""

    files: TableFiles
    schema: Mapping[str, pl.DataType]
    lookup: Lookup

    def table(self, found: TableFile) -> Table:
        """Return a mapped version as a table. Raises JobError when its index does not fit this process."""
        return Table.of_parts(found.parts, found.facts, self.schema, self.lookup)


@dataclass
class SharedTable:
    """A table that all lanes of a process use. ``current`` loads it at the first call and starts a refresh when it is old.

    ``load`` is passed with each call and not kept: it refers to the stream of the table, and a table must not keep its
    stream alive. ``sharing``: other processes of this machine use the same table, and one of them loads it for all.
    """

    name: str
    refresh: timedelta | None
    clock: Clock = field(default_factory=SystemClock)
    sharing: Sharing | None = None
    _table: Table | None = None
    _number: int = 0
    _loaded_seconds: float = 0.0
    #: Made by name: in a simulated world it is one of the world.
    _lock: threading.Lock = field(default_factory=lambda: threading.Lock())
    _refreshing: threading.Thread | None = None
    #: Whether lookups wait for the refresh that is under way.
    _awaited: bool = False

    def current(self, load: Load) -> Table:
        """Return the table. While a refresh loads a new one, this is the old one. Called for every batch, by any thread.

        Blocks during the first load, and during a refresh that starts when the table is as old as two intervals or older:
        then no lookup has come for a whole interval. Raises what the first load raises; a failed refresh is only logged.
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
        """Load the table again now and replace it. Raises what ``load`` raises; then the old one stays in use."""
        self._renew(load, at_once=True)

    @property
    def is_awaited(self) -> bool:
        """Whether lookups wait for the table that is loaded now: for the first one, or because theirs is too old."""
        return self._table is None or self._awaited

    def wait(self) -> None:
        """Wait until a refresh that is under way has ended."""
        thread = self._refreshing
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Free the table, and release its directory. A later ``current`` loads it again."""
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
                logger.warning(
                    "table %s cannot be shared with other processes, so this process keeps its own copy: %s",
                    self.name,
                    error,
                )
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
            under_way = self._refreshing is not None and self._refreshing.is_alive()
            # Another lane's refresh may have ended since this one found the table old.
            if not under_way and self._age() >= self.refresh.total_seconds():
                # Only a lookup starts a refresh. Without the wait, rows after a quiet time would be joined with a very old table.
                self._awaited = self._age() >= 2 * self.refresh.total_seconds()
                name = f"refresh {self.name}"
                self._refreshing = threading.Thread(target=self._try_renew, args=(load,), name=name, daemon=True)
                self._refreshing.start()
            return self._awaited

    def _try_renew(self, load: Load) -> None:
        try:
            self._renew(load)
        except Exception as error:  # any error of the source: the old table stays in use
            self._loaded_seconds = self.clock.monotonic()
            logger.warning("table %s could not be refreshed, the previous version is used: %s", self.name, error)


def _give_back_memory() -> None:
    """Return the free memory of Arrow's pool to the system: loading needs several times the memory of the table."""
    pa.default_memory_pool().release_unused()


_tables: WeakValueDictionary[str, SharedTable] = WeakValueDictionary()
_tables_lock = threading.Lock()


def table_of_another_process(token: str, make: Callable[[], SharedTable]) -> SharedTable:
    """Return this process's object for a table that several processes use. It is the same one as long as it is referred to."""
    with _tables_lock:
        found = _tables.get(token)
        if found is None:
            found = _tables[token] = make()
        return found


def sharing_for(token: str, schema: Mapping[str, pl.DataType], lookup: Lookup) -> Sharing | None:
    """Return how a table is shared with the other processes of this machine; None where the system has no file locks."""
    return Sharing(TableFiles(token), schema, lookup) if can_share() else None
