"""Loads a table: reads all queues of its source to their ends, several at a time, through the operators of the table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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

_POLL_RECORDS = 50_000
_POLL_TIMEOUT = timedelta(seconds=30)


def load_table(plan: Plan, *, threads: int, title: str, show_progress: bool = False) -> pl.DataFrame:
    """Return all rows that the source of a table's plan has now, after the operators of the plan.

    Queues (files, ranges of a key) are read in parallel by at most ``threads`` threads. Raises DataError at a bad record,
    because a table must be complete, and what the source raises.
    """
    (source_node,) = plan.sources.values()
    (source_id,) = plan.sources
    source = source_node.source
    source.use_run(until="end")
    queues = sorted(replace(queue, source=source_id) for queue in source.queues())
    (end,) = plan.sinks.values()  # the sink is not found by its name, because the source may have the same name
    columns = end.schema
    assert columns is not None
    empty = pl.DataFrame(schema=dict(columns))
    with (
        ThreadPoolExecutor(max(1, min(threads, len(queues) or 1)), thread_name_prefix="load table") as pool,
        _progress(show_progress) as progress,
    ):
        task = progress.add_task(title, total=len(queues))
        frames: list[pl.DataFrame] = []
        for loaded in pool.map(lambda queue: list(_read(plan, queue)), queues):
            frames += loaded
            progress.advance(task)
    return pl.concat([empty, *frames])


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
                    f"the table ends at offset {end}, but the source returns no records from offset {reader.position.offset} on",
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
            "a table must come from one source, through verbs that process each row alone",
            plugin="lookup_join",
            hint="join streams with join(), or load what you need into one table first",
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
