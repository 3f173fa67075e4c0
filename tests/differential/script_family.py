"""Whole scripts: tables in files, views, and several INSERTs into files, run as one job and compared with DuckDB sink by sink."""

from __future__ import annotations

import json
import shutil
import tempfile
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
from headrace_sql import api

from tests.differential.choices import Choices
from tests.differential.comparing import Row, difference, row_of
from tests.differential.families import Family
from tests.differential.kinds import Kind
from tests.differential.oracle import run_duckdb
from tests.differential.relations import RelationMaker
from tests.differential.running import FUNCTIONS
from tests.differential.tables import COLUMNS, Table, generate_table
from tests.differential.tree import Relation, Scan
from tests.differential.writing import written

#: JSON holds no NaN and no infinity.
_COLUMNS = tuple(column for column in COLUMNS if column.name != "wd")
_CHANGES = {"insert": 1, "update_after": 1, "update_before": -1, "delete": -1}


@dataclass(frozen=True)
class ScriptCase:
    """Tables, what is inserted into each sink, and options of the run."""

    tables: tuple[Table, ...]
    queries: tuple[Relation, ...]
    options: Mapping[str, int]
    #: Whether the text stands in EXECUTE STATEMENT SET.
    together: bool


def generate(choices: Choices) -> ScriptCase:
    """Return tables and two to four queries; some of them are read twice."""
    options = {}
    if choices.chance(40):
        options["max_batch_records"] = choices.pick([1, 3, 7])
    if choices.chance(30):
        options["shards"] = choices.pick([2, 5])
    together = choices.chance(30)
    tables = tuple(
        replace(generate_table(choices, f"t{number}", rows_max=14, columns=_COLUMNS), carried="json")
        for number in (1, 2)
    )
    maker = RelationMaker(choices, tables)
    queries: list[Relation] = []
    for _ in choices.repeat(2, 4, 50):
        if queries and choices.chance(15):
            queries.append(choices.pick(queries))
            continue
        made = maker.relation(choices.integer(1, 2))
        queries.append(maker.select_of(made) if isinstance(made, Scan) else made)
    return ScriptCase(tables, tuple(queries), options, together)


def script_of(case: ScriptCase, place: Path) -> str:
    """Return the whole text: tables over files below ``place/in``, sinks below ``place/out``."""
    parts = []
    for table in case.tables:
        columns = ", ".join(f"{column.name} {column.kind.flink}" for column in table.columns)
        path = f"'path' = '{place}/in/{table.name}/*.ndjson'"
        parts.append(
            f"CREATE TABLE {table.name} ({columns}) WITH ('connector' = 'filesystem', {path}, 'format' = 'json');"
        )
    inserts = []
    for number, query in enumerate(case.queries):
        columns = ", ".join(f"`{name}` {kind.flink}" for name, kind in _sink_columns(query).items())
        options = f"'path' = '{place}/out/{number}', 'format' = 'json', 'changes' = 'column'"
        parts.append(f"CREATE TABLE sink{number} ({columns}) WITH ('connector' = 'filesystem', {options});")
        views, _, rest = written(query, "flink").rpartition(";\n")
        # Aliases, and so the names of views, are unique in a job; a query that is inserted twice has its views once.
        if views and f"{views};" not in parts:
            parts.append(f"{views};")
        inserts.append(f"INSERT INTO sink{number}\n{rest};")
    body = "\n".join(inserts)
    return "\n".join([*parts, f"EXECUTE STATEMENT SET BEGIN\n{body}\nEND;" if case.together else body])


def _sink_columns(query: Relation) -> dict[str, Kind]:
    return {f"o{at}": column.kind for at, column in enumerate(query.columns)}


def check(case: ScriptCase) -> str | None:
    """Return which sinks hold other rows than DuckDB gives, or None."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="headrace-script-", dir=memory if memory.is_dir() else None))
    try:
        for table in case.tables:
            (place / "in" / table.name).mkdir(parents=True)
            for queue in range(table.queue_count):
                (place / "in" / table.name / f"{queue}.ndjson").write_bytes(
                    b"".join(body + b"\n" for body in table.bodies(queue))
                )
        api.forget()
        job = hr.sql(script_of(case, place), functions=FUNCTIONS, pipeline="script", bad_records="stop")
        job.run("light", show_progress=False, **case.options)
        for number, query in enumerate(case.queries):
            expected = run_duckdb(case.tables, written(query, "duckdb"))
            wrong = difference(expected, _read(place / "out" / str(number), query), names=("by DuckDB", "by headrace"))
            if wrong:
                return f"sink{number}: {wrong}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return None


def _read(directory: Path, query: Relation) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    kinds = _sink_columns(query)
    for path in sorted(directory.glob("[!_.]*")) if directory.is_dir() else ():
        for line in path.read_text(encoding="utf-8").splitlines():
            values = json.loads(line)
            sign = _CHANGES[values.pop("change", "insert")]
            rows[row_of(_value(values.get(name), kind) for name, kind in kinds.items())] += sign
    return Counter({row: count for row, count in rows.items() if count})


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    readers: dict[str, Any] = {
        "bytes": b64decode, "timestamp": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal,
        "double": float,
    }  # fmt: skip
    return readers.get(kind.name, lambda same: same)(value)


def describe(case: ScriptCase) -> str:
    """Return the tables and the script."""
    return "\n".join([*map(str, case.tables), str(case.options), "", script_of(case, Path("DATA"))])


FAMILY = Family("script", generate, check, describe, weight=10)
