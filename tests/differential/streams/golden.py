"""Golden streaming cases: what once differed, shrunk, with the rows that are right.

A case is ``golden/NAME.json``: ``why`` (what was wrong), ``dialect`` and ``text`` (the lines of the job), ``tables`` (queues and delay),
``arrivals`` (table, queue, values in the order of the columns), ``silences`` (before which arrivals nothing comes for long) and ``rows``,
what every output comes to.

    python -m tests.differential.streams.golden NAME FAMILY SEED "what was wrong"    # keeps the shrunk case of a seed
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.differential.streams import running
from tests.differential.streams.arrivals import COLUMNS
from tests.differential.streams.plan import Arrival, Plan, Row, Table

DIRECTORY = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class GoldenCase:
    """A text with what arrives, and the rows of its outputs, as JSON has them."""

    dialect: str
    text: str
    plan: Plan
    rows: Mapping[str, list[Row]]


def names() -> list[str]:
    """Return the names of all cases."""
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(name: str) -> GoldenCase:
    """Return a case."""
    case = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    tables = [
        Table(table, COLUMNS, parts["queues"], timedelta(milliseconds=parts["delay_ms"]))
        for table, parts in case["tables"].items()
    ]
    arrivals = [
        Arrival(table, queue, {each: _read(value, COLUMNS[each]) for each, value in zip(COLUMNS, values, strict=True)})
        for table, queue, values in case["arrivals"]
    ]
    plan = Plan(tuple(tables), tuple(arrivals), {}, silences=frozenset(case.get("silences", ())))
    return GoldenCase(case["dialect"], "\n".join(case["text"]), plan, case["rows"])


def written(rows: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """Return rows as JSON has them, in an order that does not depend on how they came."""
    made = {
        name: [{column: _written(value) for column, value in sorted(row.items())} for row in found]
        for name, found in rows.items()
    }
    return {name: sorted(found, key=lambda row: json.dumps(row, default=str)) for name, found in made.items()}


def _written(value: Any) -> Any:
    if isinstance(value, datetime | Decimal | float):
        value = running.normal({"": value})[0][1]
    return [_written(each) for each in value] if isinstance(value, list | tuple) else value


def _read(value: Any, kind: str) -> Any:
    readers: dict[str, Any] = {"time": datetime.fromisoformat, "decimal": Decimal}
    return value if value is None else readers.get(kind, lambda same: same)(value)


def save(name: str, why: str, dialect: str, plan: Plan, rows: Mapping[str, list[Row]]) -> Path:
    """Keep a case."""
    made = {
        "why": why,
        "dialect": dialect,
        "text": running.text_of(plan, dialect).splitlines(),
        "tables": {
            table.name: {"queues": table.queues, "delay_ms": table.delay // timedelta(milliseconds=1)} for table in plan.tables
        },
        "arrivals": [[each.table, each.queue, [_written(each.row[column]) for column in COLUMNS]] for each in plan.arrivals],
        "silences": sorted(plan.silences),
        "rows": written(rows),
    }  # fmt: skip
    path = DIRECTORY / f"{name}.json"
    path.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def main(name: str, family: str, seed: str, why: str) -> None:
    """Shrink a seed of a family and keep it, with the rows that the interpreter gives."""
    from tests.differential.choices import Choices
    from tests.differential.families import case_of, problem_of
    from tests.differential.shrinking import shrunk
    from tests.differential.streams.interpreter import interpret

    choices = Choices.of_seed(int(seed))
    case_of(choices, family)
    made, problem = shrunk(choices.made, lambda tried: problem_of(tried, family))
    _, case = case_of(Choices.of_list(made), family)
    outcome = interpret(case.plan, sql=case.dialect == "sql")
    path = save(name, why, case.dialect, case.plan, outcome.rows)
    sys.stdout.write(f"{problem}\nkept as {path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:5])
