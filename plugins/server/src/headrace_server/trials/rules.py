"""Says which rules a job has, and why one of them matches a message or not."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.foundation.errors import JobError
from headrace.jobs.job import Job
from headrace.plan.graph import OperatorNode, Plan, rebuilt

from headrace_server.trials.rule_hits import hits_of_rules


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


def try_rules(
    file: str, variables: Mapping[str, str], replaced: str | None, rules: str, node: str | None, records: int
) -> dict[str, Any]:
    """Run a job over the last records with its present rules and with others, into memory; return the hits of each rule.

    ``replaced``: the file of the rules that were put last, if any. Raises RulesError for rules that are wrong, JobError.
    """
    from headrace.testing import MemorySink
    from headrace_console.job_files import load_job

    from headrace_server.trials.over_last_records import run_over_last

    def run(given: str | None, ranges: Any) -> tuple[dict[str, float], int, Any]:
        job = load_job(file, variables)
        sinks: dict[str, MemorySink] = {}
        handle, read = run_over_last(_with_rules(job, given, node), records, ranges=ranges, sinks=sinks)
        return hits_of_rules(handle.metrics()), handle.wait().dead_letters, read

    before, bad_before, read = run(replaced, None)
    after, bad_after, _ = run(rules, read)
    return {
        "records": sum(end - first for first, end in read.values()),
        "before": before,
        "after": after,
        "dead_letters_before": bad_before,
        "dead_letters_after": bad_after,
    }


def _with_rules(job: Job, rules: str | None, node: str | None) -> Job:
    """Return the job with the rules of a file instead of its own; None: as it is. Raises JobError that names its verbs."""
    from headrace_rules.verb import Rules

    plan = Plan(job.namespace, job.pipeline, job.sink_nodes)
    verbs = {node_id: found for node_id, found in plan.of_kind(OperatorNode).items() if isinstance(found.spec, Rules)}
    if node is None and len(verbs) == 1:
        [node] = verbs
    if node not in verbs:
        named = ", ".join(verbs) or "none"
        raise JobError(
            f"the option node must name a verb rules() of the job; these are: {named}", option="node", hint="name one"
        )
    if rules is None:
        return job
    old = verbs[node].spec
    assert isinstance(old, Rules)
    new = Rules(
        rules, output=old.output, raw_scan=old.raw_scan, verdict_cache=old.options.verdict_cache_entries,
        scanner=old.options.scanner, functions=old.functions,
    )  # fmt: skip
    changed = rebuilt(plan, {verbs[node]: replace(verbs[node], spec=new)})
    return Job(job.stream, tuple(changed.sinks.values()))


def _rules(file: str, variables: Mapping[str, str], replaced: str | None) -> list[Any]:
    from headrace_console.job_files import load_job
    from headrace_rules.loading import load_strictly
    from headrace_rules.verb import Rules

    if replaced is not None:
        return list(load_strictly(replaced))
    nodes = load_job(file, variables).plan().of_kind(OperatorNode).values()
    return [rule for node in nodes if isinstance(node.spec, Rules) for rule in node.spec.rules]
