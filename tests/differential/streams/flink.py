"""Generated queries on PyFlink and on headrace: ``make fuzz-flink SEEDS=300``.

    python -m tests.differential.streams.flink SEEDS [--environments DIRECTORY]

PyFlink runs in an environment of its own, which is made when it is missing (see benchmarks.peers), all queries in one process. Exit
code 1 when a query differs, or is refused by headrace only. What Flink refuses is counted. Where docs/sql.md says that the two differ, the
interpreter knows both results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.peers.run import environment
from tests.differential.choices import Choices
from tests.differential.fuzz import seeds_of
from tests.differential.streams import sql
from tests.differential.streams.interpreter import interpret
from tests.differential.streams.plan import Plan, Row
from tests.differential.streams.running import differences, run_sql
from tests.differential.streams.sql_generator import make_sql_plan

_HERE = Path(__file__).parent


def queries_of(plans: dict[int, Plan], directory: Path) -> Iterator[dict[str, Any]]:
    """Write the input of plans below a directory, and return their statements."""
    for seed, plan in plans.items():
        tables = []
        for table in plan.tables:
            path = directory / f"{seed}-{table.name}.json"
            rows = [each.row for each in plan.arrivals if each.table == table.name]
            path.write_text("".join(json.dumps(_json(row)) + "\n" for row in rows), encoding="utf-8")
            options = {"connector": "filesystem", "path": path.as_uri(), "format": "json"}
            tables.append(sql.table_text(table, options, f"q{seed}_"))
        views, query = sql.views_of(plan, f"q{seed}_", as_text=True)
        yield {"name": str(seed), "statements": [*tables, *views], "query": query}


def _json(row: Row) -> Row:
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return float(value) if isinstance(value, Decimal) else value


def run_flink(queries: Sequence[dict[str, Any]], python: str, directory: Path) -> Iterator[dict[str, Any]]:
    """Run queries in PyFlink and yield what it prints."""
    described = directory / "queries.json"
    described.write_text(json.dumps(list(queries)), encoding="utf-8")
    process = subprocess.Popen(
        [python, str(_HERE / "flink_job.py"), str(described)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": "", "JVM_ARGS": "-Xmx1500m"},
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)


def typed(plan: Plan, text: str) -> Row:
    """Return a row that Flink gave as the interpreter has it."""
    row: Row = {}
    for (name, kind), value in zip(plan.outputs["out"].columns.items(), json.loads(text), strict=True):
        row[name] = None if value is None else _TYPED[kind](value)
    return row


_TYPED: dict[str, Any] = {
    "time": datetime.fromisoformat, "decimal": Decimal, "int": int, "double": float, "text": str, "boolean": lambda text: text == "TRUE",
}  # fmt: skip


def judged(plan: Plan, answer: dict[str, Any]) -> list[str]:
    """Return what differs between Flink, headrace and the interpreter."""
    try:
        ours = run_sql(plan)
    except Exception as error:  # a query that only one of the two refuses is a difference
        return [] if "error" in answer else [f"headrace refuses: {str(error)[:400]}"]
    if "error" in answer:
        return []
    theirs = {"out": [typed(plan, text) for text in answer["rows"]]}
    outcome = interpret(plan, sql=True)
    if outcome.fragile:
        return ours.faults
    wanted = interpret(plan, sql=True, flink=True)
    told = [f"Flink against the interpreter: {each}" for each in differences(theirs, wanted.rows)]
    told += [f"headrace against the interpreter: {each}" for each in differences(ours.rows, outcome.rows)]
    return told + ours.faults


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.streams.flink")
    parser.add_argument("seeds", nargs="?", default="200", help="FROM-TO, COUNT, or =SEED")
    base = Path(tempfile.gettempdir()) / "headrace-peers" / "environments"
    parser.add_argument("--environments", type=Path, default=base)
    given = parser.parse_args(arguments)
    given.environments.mkdir(parents=True, exist_ok=True)
    python = environment("pyflink", given.environments)
    plans = {seed: make_sql_plan(Choices.of_seed(seed), flink=True) for seed in seeds_of(given.seeds)}
    differing = done = 0
    refused: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for answer in run_flink(list(queries_of(plans, directory)), python, directory):
            done += 1
            plan = plans[int(answer["name"])]
            if "failed" in answer:
                sys.stdout.write(f"seed {answer['name']} fails in Flink while it runs: {answer['failed']}\n")
                differing += 1
                continue
            if "error" in answer:
                refused[" ".join(answer["error"].split())[:160]] += 1
            if told := judged(plan, answer):
                differing += 1
                views, query = sql.views_of(plan)
                text = ";\n".join([*views, query])
                sys.stdout.write(f"\n──── seed {answer['name']} ────\n{text}\n" + "\n".join(told) + "\n")
                sys.stdout.flush()
    for reason, count in refused.most_common():
        sys.stdout.write(f"Flink refuses {count}: {reason}\n")
    sys.stdout.write(f"{done} of {len(plans)} queries, {differing} differ, Flink refuses {refused.total()}\n")
    return 1 if differing or done < len(plans) else 0


if __name__ == "__main__":
    sys.exit(main())
