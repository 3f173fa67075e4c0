"""Loads a table: reads all queues of its source to their ends, several at a time, through the operators of the table."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, Queue
from headrace.foundation.errors import DataError, JobError
from headrace.plan.graph import Plan, SinkNode
from headrace.runtime.lane import Lane
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace_dimension.parted_rows import PartedRows, can_part
from headrace_dimension.table import Lookup, Table

logger = logging.getLogger(__name__)
_POLL_RECORDS = 50_000
_POLL_TIMEOUT = timedelta(seconds=30)


#: Rows that take more memory than this are loaded in parts.
PARTED_BYTES = 32 << 20


def load_table(plan: Plan, lookup: Lookup, *, threads: int, title: str, show_progress: bool = False) -> Table:
    """Return a table of all rows that the source of a table's plan has now, after the operators of the plan.

    Queues (files, ranges of a key) are read in parallel by at most ``threads`` threads. Raises DataError at a bad record,
    because a table must be complete, JobError when there is no room for its rows on the disk, and what the source raises.
    """
    (source_node,) = plan.sources.values()
    (source_id,) = plan.sources
    source = source_node.source
    source.use_run(until="end")
    queues = sorted(replace(queue, source=source_id) for queue in source.queues())
    (end,) = plan.sinks.values()  # the sink is not found by its name, because the source may have the same name
    columns = end.schema
    assert columns is not None
    rows = _LoadedRows(dict(columns), lookup)

    def load(numbered: tuple[int, Queue]) -> None:
        number, queue = numbered
        for frame in _read(plan, queue):
            rows.add(number, frame)

    try:
        with (
            ThreadPoolExecutor(max(1, min(threads, len(queues) or 1)), thread_name_prefix="load table") as pool,
            _progress(show_progress) as progress,
        ):
            task = progress.add_task(title, total=len(queues))
            for _ in pool.map(load, enumerate(queues)):
                progress.advance(task)
        return rows.table()
    finally:
        rows.close()


class _LoadedRows:
    """Rows of a table by queue: in memory as long as they are few, then in parts on the disk. ``add`` is called by several threads."""

    def __init__(self, columns: Mapping[str, pl.DataType], lookup: Lookup) -> None:
        self._columns = columns
        self._lookup = lookup
        self._frames: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self._size = 0
        self._may_part = lookup[0] == "equal" and can_part(columns)
        self._parted: PartedRows | None = None
        self._lock = threading.Lock()

    def add(self, queue: int, frame: pl.DataFrame) -> None:
        with self._lock:
            if self._parted is None:
                self._frames[queue].append(frame)
                self._size += int(frame.estimated_size())
                if self._may_part and self._size > PARTED_BYTES:
                    self._part()
                return
        self._stored(self._parted, queue, frame)

    def table(self) -> Table:
        if self._parted is None:
            frames = [each for queue in sorted(self._frames) for each in self._frames.pop(queue)]
            # No reference to the rows is kept, so that they can be freed column by column.
            return Table.of(pl.concat([pl.DataFrame(schema=dict(self._columns)), *_drained(frames)]), self._lookup)
        try:
            return Table(*self._parted.table_parts())
        except OSError as error:
            raise _no_room(error) from error

    def close(self) -> None:
        if self._parted is not None:
            self._parted.close()

    def _part(self) -> None:
        """Store what is in memory: from now on all is stored."""
        try:
            parted = PartedRows(self._columns, self._lookup[1], tempfile.TemporaryFile)
        except OSError as error:
            logger.warning("a large table is loaded in memory: no file can be created for its rows: %s", error)
            self._may_part = False
            return
        try:
            for queue in sorted(self._frames):
                for frame in _drained(self._frames.pop(queue)):
                    self._stored(parted, queue, frame)
        except BaseException:
            parted.close()
            raise
        self._parted = parted

    @staticmethod
    def _stored(parted: PartedRows, queue: int, frame: pl.DataFrame) -> None:
        try:
            parted.add(queue, frame)
        except OSError as error:
            raise _no_room(error) from error


def _drained(frames: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames and forget each."""
    frames.reverse()
    while frames:
        yield frames.pop()


def _no_room(error: OSError) -> JobError:
    return JobError(
        f"the rows of a large table cannot be stored in {tempfile.gettempdir()} while it is loaded: {error}",
        plugin="lookup_join",
        hint="set TMPDIR to a directory with free space for two to three times the table",
    )


def _read(plan: Plan, queue: Queue) -> Iterator[pl.DataFrame]:
    node = plan.sources[queue.source]
    reader = node.source.open(queue, node.source.start)
    try:
        end = reader.latest
        lane = Lane(plan, node, queue)
        while reader.position.offset < end:
            raw = reader.poll(_POLL_RECORDS, _POLL_TIMEOUT)
            if raw is None:
                raise DataError(
                    f"the table ends at offset {end}, but the source returns no more records from offset {reader.position.offset} on",
                    queue=queue.id,
                    offset=reader.position.offset,
                )
            for delivery in lane.process(raw):
                yield delivery.batch.frame.drop(HEADER_COLUMNS, strict=False)
        lane.close()
    finally:
        reader.close()


def table_plan(plan_nodes: SinkNode, name: str) -> Plan:
    """Return the plan that loads a table. Raises JobError when it needs more than one source or keeps state."""
    plan = Plan("tables", name, [plan_nodes])
    if len(plan.sources) != 1 or plan.shuffles:
        raise JobError(
            "a table must have one source, and only verbs that process each row by itself",
            plugin="lookup_join",
            hint="join the streams with join(), or prepare the table's rows beforehand",
        )
    return plan


def _progress(shown: bool) -> Progress:
    # On standard error: rows that a job prints are alone on standard output, and older versions of rich end a bar that is not
    # shown with an empty line.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, quiet=not shown),
        disable=not (shown and sys.stderr.isatty()),
        transient=True,
    )
