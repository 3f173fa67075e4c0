"""Ways of running one and the same query: none of them may change its rows.

Batches, shards and queues; the optimizer off; the tables behind views, with other names, orders and more columns; killed and
stopped at some place, then gone on from the checkpoint.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import headrace as hr
from headrace.flow.messages import Position, Queue
from headrace.foundation import faults
from headrace.foundation.errors import JobError, JobFailedError
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch, StaleWriterError, TransactionalSink
from headrace.plan.graph import Plan

from tests.differential.choices import Choices
from tests.differential.comparing import Row
from tests.differential.kinds import DOUBLE, STRING
from tests.differential.running import FoldingSink, Result, register
from tests.differential.tables import Table, TableColumn
from tests.eventually import eventually

#: Places at which a run is broken off in its own thread, as a kill would.
PLACES = ("shard.after_process", "lane.after_process", "reader.after_poll", "shard.after_save", "checkpoint.after_flush",
          "checkpoint.after_save")  # fmt: skip
DRESSINGS = ("plain", "view", "renamed", "reordered", "more columns")


@dataclass(frozen=True)
class Style:
    """How a query is run. The defaults are the plain way."""

    max_batch_records: int = 10_000
    shards: int = 1
    queues: int = 0
    dressing: str = "plain"
    optimized: bool = True
    #: Breaks: ``("kill", place, number)`` or ``("stop", records)``, one after the other; then the run goes to its end.
    breaks: tuple[tuple[Any, ...], ...] = ()

    def __str__(self) -> str:
        plain = Style()
        told = [
            f"{name}={getattr(self, name)!r}"
            for name in self.__dataclass_fields__
            if getattr(self, name) != getattr(plain, name)
        ]
        return "run: " + (", ".join(told) or "plainly")


def generate_style(choices: Choices) -> Style:
    """Return a way of running; the plain one is the simplest."""
    style = Style()
    if choices.chance(40):
        style = replace(style, max_batch_records=choices.pick([1, 7, 2, 3]))
    if choices.chance(30):
        style = replace(style, shards=choices.pick([2, 5]))
    if choices.chance(20):
        style = replace(style, queues=choices.integer(1, 4))
    if choices.chance(30):
        style = replace(style, dressing=choices.pick(DRESSINGS))
    if choices.chance(10):
        style = replace(style, optimized=False)
    if choices.chance(20):
        style = replace(style, breaks=generate_breaks(choices))
    return style


def generate_breaks(choices: Choices) -> tuple[tuple[Any, ...], ...]:
    """Return one or two breaks: kills at a place, or stops behind some records."""
    breaks: list[tuple[Any, ...]] = []
    for _ in choices.repeat(1, 2, 40):
        if choices.chance(15):
            breaks.append(("stop", choices.integer(0, 5)))
        else:
            breaks.append(("kill", choices.pick(PLACES), choices.integer(1, 4)))
    return tuple(breaks)


# ------------------------------------------------------------------------------------------------------- dressing


def dressed(tables: Sequence[Table], dressing: str) -> tuple[tuple[Table, ...], str]:
    """Return the tables in other clothes, and the views that give them back as they were."""
    if dressing == "plain":
        return tuple(tables), ""
    made, views = [], []
    for table in tables:
        names = {column.name: column.name for column in table.columns}
        order = list(range(len(table.columns)))
        more: tuple[TableColumn, ...] = ()
        if dressing == "renamed":
            names = {name: f"{name} of ä{at}" for at, name in enumerate(names)}
        elif dressing == "reordered":
            order.reverse()
        elif dressing == "more columns":
            more = (TableColumn("unused", STRING), TableColumn("k2", DOUBLE))
        columns = tuple(replace(table.columns[at], name=names[table.columns[at].name]) for at in order) + more
        rows = tuple((*(row[at] for at in order), *(("junk", -0.5)[: len(more)])) for row in table.rows)
        time = names.get(table.time, "")
        made.append(replace(table, name=f"raw_{table.name}", columns=columns, rows=rows, time=time))
        items = ", ".join(f"`{names[name]}` AS {name}" for name in names)
        views.append(f"CREATE VIEW {table.name} AS SELECT {items} FROM raw_{table.name};\n")
    return tuple(made), "".join(views)


# --------------------------------------------------------------------------------------------------------- running


class _StoredSink(FoldingSink, TransactionalSink):
    """Keeps rows together with their queue's greatest position, in memory that outlives it."""

    def __init__(self, table: Counter[Row], broken: list[str], stored: dict[Queue, Position]) -> None:
        super().__init__()
        self.table, self.faults, self.stored = table, broken, stored

    def batch_insert(self, batch: SinkBatch) -> None:
        if self.stored.get(batch.queue) != batch.after:
            raise StaleWriterError("another writer was here", queue=batch.queue.id)
        super().batch_insert(batch)
        self.stored[batch.queue] = batch.last

    def last_offset(self, queue: Queue) -> Position | None:
        return self.stored.get(queue)


class Broken(JobError):
    """The run was broken off on purpose."""


class _Break:
    """Breaks a run off when it passes a place for the n-th time."""

    def __init__(self, place: str, number: int) -> None:
        self._place, self._left = place, number

    def passed(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                raise Broken(f"broken off at {place}")


@contextmanager
def broken_at(place: str, number: int) -> Iterator[None]:
    """Within, a run is broken off when it passes the place for the n-th time."""
    before = faults._faults
    faults._faults = _Break(place, number)  # type: ignore[assignment]
    try:
        yield
    finally:
        faults._faults = before


@contextmanager
def not_optimized() -> Iterator[None]:
    """Within, plans run as they were written."""
    hooks = default_registry().load_all()
    found = [each for each in hooks.headrace_optimize.get_hookimpls() if "columnar" in each.plugin_name]
    with ExitStack() as patches:
        for each in found:
            patches.enter_context(mock.patch.object(each, "function", _as_it_is))
        yield


def _as_it_is(plan: Plan) -> None:
    return None


def run_styled(tables: Sequence[Table], text: str, style: Style, *, backend: str = "light", **options: Any) -> Result:
    """Run a text in a style and return its rows."""
    if style.queues:
        tables = [table.in_queues(style.queues) for table in tables]
    worn, views = dressed(tables, style.dressing)
    return run_job(lambda sink: _job(worn, views + text, sink), style, backend=backend, **options)


def run_job(made: Callable[[FoldingSink], hr.Job], style: Style, *, backend: str = "light", **options: Any) -> Result:
    """Run a job in a style and return its rows. ``made`` makes it anew for each sink; tables wear no dressing."""
    given = {"max_batch_records": style.max_batch_records, "shards": style.shards, "show_progress": False, **options}
    stored: dict[Queue, Position] = {}
    table: Counter[Row] = Counter()
    wrong: list[str] = []
    with nullcontext() if style.optimized else not_optimized():
        if style.breaks:
            run_with_breaks(lambda: made(_StoredSink(table, wrong, stored)), style.breaks, given)
            return Result(+table, (), tuple(wrong))
        sink = FoldingSink()
        made(sink).run(backend, **given)
    return Result(+sink.table, (), tuple(sink.faults))


def _job(tables: Sequence[Table], text: str, sink: FoldingSink) -> hr.Job:
    register(tables)
    job = hr.sql(text, pipeline="job")
    stream: hr.Stream = next(iter(job.script.relations().values())).stream
    return stream.to(sink, name="result")


def run_with_breaks(made: Callable[[], hr.Job], breaks: Sequence[tuple[Any, ...]], given: Mapping[str, Any]) -> None:
    """Run a job that is broken off and stopped, and goes on from its checkpoint each time, until it has come to its end.

    ``made`` makes it anew for each run; what it writes must be right where rows come once more behind a kill.
    """
    shared = Path("/dev/shm")  # a checkpoint waits for the disk
    place = tempfile.mkdtemp(prefix="headrace-differential-", dir=shared if shared.is_dir() else None)
    kept = {**given, "checkpoint": place, "checkpoint_interval": timedelta(microseconds=1)}
    try:
        for what, *details in [*breaks, ("end",)]:
            job = made()
            if what == "stop":
                _stop_after(job, details[0], kept)
                continue
            try:
                with broken_at(*details) if details else broken_at("nowhere", 0):
                    job.run("light", **kept)
            except JobFailedError as error:
                if not isinstance(error.__cause__, Broken):
                    raise
            except Broken:  # it was still being prepared
                continue
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _stop_after(job: hr.Job, records: int, given: Mapping[str, Any]) -> None:
    """Start a run without an end, stop it when it has read so many records, or all."""
    handle = job.start("light", **given)

    def is_so_far() -> bool:
        status = handle.status()
        lag = [queue.lag for queue in status.queues]
        return bool(status.records_read >= records or (lag and not any(lag)) or status.error)

    eventually(is_so_far, "it has read as much", shown=handle.status, pause_seconds=0.001)
    handle.stop()
    handle.wait()
