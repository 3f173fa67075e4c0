"""Sends the bodies of dead letters through a job again, into the job's own sinks."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.foundation.errors import JobError
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.jobs.job import PreparedJob, options_of
from headrace.plan.graph import OperatorNode, Plan, SourceNode, rebuilt
from headrace.testing import MemorySource


def replay(
    file: str, variables: Mapping[str, str], bodies: Mapping[str, Sequence[str]], name: str, checkpoint: str
) -> dict[str, Any]:
    """Run the job once over ``bodies`` (Base64, by the id of their source) instead of its sources.

    Raises JobError if that cannot be right.
    """
    from headrace_console.job_files import load_job

    job = load_job(file, variables)
    backend = default_registry().find("backend", "light")
    # Bodies that are bad again become dead letters of the replay, beside its checkpoint.
    options, settings = options_of(backend, "light", {"until": "end", "checkpoint": checkpoint})
    plan = job.plan(options)
    refuse_kinds(plan, bodies)
    changes: Any = {}
    for source_id, node in plan.sources.items():
        given = [base64.b64decode(each) for each in bodies.get(source_id, ())]
        # A queue of its own name: sinks that store positions do not take the rows for ones that they have.
        changes[node] = replace(node, source=MemorySource({name: given} if given else {}))
    plan = rebuilt(plan, changes)
    report = PreparedJob(plan.job_name, "light", plan, options, backend(settings)).start().wait()
    return {
        "records_read": report.records_read,
        "rows_written": dict(report.rows_written),
        "dead_letters": report.dead_letters,
    }


def check_replay(file: str, variables: Mapping[str, str], sources: Sequence[str]) -> None:
    """Raise JobError if a replay of bodies of these sources cannot be right. Nothing is read or written."""
    from headrace_console.job_files import load_job

    refuse_kinds(load_job(file, variables).plan(), sources)


def refuse_kinds(plan: Plan, sources: Iterable[str]) -> None:
    """Raise JobError where a run over some bodies alone gives other rows than the job would have."""
    stateful = [node_id for node_id, node in plan.of_kind(OperatorNode).items() if isinstance(node.spec, StatefulSpec)]
    if plan.shuffles or stateful:
        raise JobError(
            "the job keeps state ("
            + ", ".join([*plan.shuffles, *stateful])
            + "), and a replay outside the job does not have that state",
            hint="stop the job and reset its offsets, or send the bodies to its source again",
        )
    for source_id in sources:
        node = plan.sources.get(source_id)
        if node is None:
            raise JobError(f"the job has no source {source_id!r} any more")
        if isinstance(node, SourceNode) and node.metadata:
            raise JobError(
                f"source {source_id}: columns come from the record's header ({', '.join(node.metadata)}), which dead letters do not have",
                hint="send the bodies to the source again",
            )
        if node.codec is None:
            raise JobError(f"source {source_id} returns rows, not bodies, so dead letters of it cannot be replayed")
        if node.codec.header_fields:
            fields = ", ".join(sorted(node.codec.header_fields))
            raise JobError(
                f"source {source_id}: the format {node.format} reads the {fields} of records, which dead letters do not have",
                hint="send the bodies to the source again",
            )
