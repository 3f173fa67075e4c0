"""Runs a job over the last records of its sources, into memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.flow.messages import ChangeKind
from headrace.interfaces.backend import JobHandle
from headrace.interfaces.registry import default_registry
from headrace.jobs.job import Job, PreparedJob, options_of
from headrace.plan.graph import Node, SinkNode, rebuilt
from headrace.testing import MemorySink

from headrace_server.trials.last_records import LastRecords, Ranges

_ADDED = (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)


def run_over_last(
    job: Job, records: int, *, ranges: Ranges | None = None, sinks: dict[str, MemorySink] | None = None
) -> tuple[JobHandle, dict[str, tuple[int, int]]]:
    """Run a job in this process over the last records of its sources, without a checkpoint.

    Returns its handle after it has ended, and what it has read.

    With ``sinks`` a MemorySink stands for each sink of the job, and is put there under the id of its node.
    """
    backend = default_registry().find("backend", "light")
    options, settings = options_of(backend, "light", {"until": "end", "metrics": True})
    plan = job.plan(options)
    sources = {node: LastRecords(node.source, records, ranges=ranges) for node in plan.sources.values()}
    changes: dict[Node, Node] = {node: replace(node, source=source) for node, source in sources.items()}
    if sinks is not None:
        for node_id, node in plan.of_kind(SinkNode).items():
            sinks[node_id] = MemorySink()
            changes[node] = replace(node, sink=sinks[node_id])
    plan = rebuilt(plan, changes)
    handle = PreparedJob(plan.job_name, "light", plan, options, backend(settings)).start()
    handle.wait()
    return handle, {queue: places for source in sources.values() for queue, places in source.read.items()}


def shadow(file: str, variables: Mapping[str, str], records: int, ranges: Ranges | None, output: str) -> dict[str, Any]:
    """Run a version of a job over the last records, or over ``ranges``; write what each sink would have into a file of ``output``.

    A file has one line per row: how often it is there after all changes, and the row as JSON. Returns what was read.
    """
    from headrace_console.job_files import load_job

    given = None if ranges is None else {queue: (int(first), int(end)) for queue, (first, end) in ranges.items()}
    sinks: dict[str, MemorySink] = {}
    handle, read = run_over_last(load_job(file, variables), records, ranges=given, sinks=sinks)
    report = handle.wait()
    for number, sink in enumerate(sinks.values()):
        (Path(output) / f"{number}.ndjson").write_text(_rows_of(sink), encoding="utf-8")
    return {
        "ranges": read,
        "records": report.records_read,
        "dead_letters": report.dead_letters,
        "files": {node_id: f"{number}.ndjson" for number, node_id in enumerate(sinks)},
    }


def _rows_of(sink: MemorySink) -> str:
    counts: Counter[str] = Counter()
    for row, kind in zip(sink.rows, sink.kinds, strict=True):
        text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=_as_json)
        counts[text] += 1 if kind in _ADDED else -1
    return "".join(f"{count} {text}\n" for text, count in sorted(counts.items()) if count)


def _as_json(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
