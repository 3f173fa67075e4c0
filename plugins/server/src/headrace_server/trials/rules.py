"""Says which rules a job has, and why one of them matches a message or not."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.foundation.errors import JobError
from headrace.plan.graph import OperatorNode


def list_rules(file: str, variables: Mapping[str, str], replaced: str | None) -> list[dict[str, Any]]:
    """Return the rules of a job: those of its file, or those that replaced them. Empty if the job has none."""
    return [
        {"id": rule.id, "expression": rule.expression, "severity": rule.severity, "labels": list(rule.labels)}
        for rule in _rules(file, variables, replaced)
    ]


def explain(file: str, variables: Mapping[str, str], replaced: str | None, rule: str, message: str) -> str:
    """Return what ``headrace rules explain`` prints for a rule and a message."""
    from headrace_rules import console

    if variables:
        raise JobError(
            "the job takes variables, with which rules cannot be explained yet", hint="use headrace rules explain"
        )
    with tempfile.TemporaryDirectory() as place:
        on = Path(place) / "message.json"
        on.write_text(" ".join(message.split("\n")), encoding="utf-8")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            console.explain(rule, on=on, rules=replaced, job=file, columns=None)
    return said.getvalue()


def _rules(file: str, variables: Mapping[str, str], replaced: str | None) -> list[Any]:
    from headrace_console.job_files import load_job
    from headrace_rules.loading import load_strictly
    from headrace_rules.verb import Rules

    if replaced is not None:
        return list(load_strictly(replaced))
    nodes = load_job(file, variables).plan().of_kind(OperatorNode).values()
    return [rule for node in nodes if isinstance(node.spec, Rules) for rule in node.spec.rules]
