"""Checks a SQL text, and runs it over the last records into memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from headrace.foundation.errors import PlanError
from headrace.testing import MemorySink

from headrace_server.trials.over_last_records import run_over_last

_VALUE_LENGTH_MAX = 200
_COLUMNS_MAX = 50


def lint(text: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return notices and the plan's picture. Raises JobError with the place in the text."""
    job = _job(text, variables)
    if not job.sink_nodes:
        return {"notices": list(job.notices), "picture": None, "plan": None}
    from headrace.plan.explain import plan_as_text
    from headrace_console.picture import plan_as_svg

    plan = job.plan()
    return {"notices": list(job.notices), "picture": plan_as_svg(plan), "plan": plan_as_text(plan)}


def sample(text: str, variables: Mapping[str, str], records: int, rows: int) -> dict[str, Any]:
    """Run the text over the last ``records`` of each queue; return the last ``rows`` of each table that it writes. Nothing is written."""
    # A name of its own: a broker must not take the trial for a member of a job's group.
    job = _job(text, variables, pipeline=uuid.uuid4().hex[:12])
    relations = job.script.relations()
    if not relations:
        raise PlanError("the text has no INSERT INTO and no SELECT, so there is nothing to run")
    sinks = {name: MemorySink() for name in relations}
    bad = MemorySink()
    jobs = [
        relation.stream.to(sinks[name], name=f"sample_{index}")
        for index, (name, relation) in enumerate(relations.items())
    ]
    whole = jobs[0].also(*jobs[1:])
    dead = whole.stream.dead_letters().to(bad, name="sample_dead_letters")
    handle, _ = run_over_last(whole.also(dead), records)
    report = handle.wait()
    return {
        "tables": {name: _shown(sink, list(relations[name].schema), rows) for name, sink in sinks.items()},
        "records": report.records_read,
        "dead_letters": [
            {"reason": row["reason"], "origin": row["origin"], "preview": row["preview"]} for row in bad.rows[:rows]
        ],
    }


def _job(text: str, variables: Mapping[str, str], pipeline: str = "job") -> Any:
    from headrace_sql.api import sql

    # Never taken for the name of a file: that would read any text file of this machine.
    text = f"{text}\n;" if text.strip().endswith(".sql") else text
    return sql(text, variables=variables, namespace="headrace-trial", pipeline=pipeline)


def _shown(sink: MemorySink, columns: list[str], rows: int) -> dict[str, Any]:
    table = sink.table()
    names = (
        [name for name in columns if not name.startswith("_")][:_COLUMNS_MAX] or list(table[0])[:_COLUMNS_MAX]
        if table
        else columns
    )
    return {
        "columns": names,
        "rows": [[_text(row.get(name)) for name in names] for row in table[-rows:]],
        "count": len(table),
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 1] + "…"
