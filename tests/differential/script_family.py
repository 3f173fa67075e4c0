"""Whole scripts: tables in files, views, and several INSERTs into files of each format and the print sink, run as one job.

The rows of each sink are compared with DuckDB's. Some runs are killed or stopped on the way and go on from their checkpoint; the print
sink gives rows once more behind a kill, so it is not among theirs.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headrace as hr
from headrace_sql import api

from tests.differential.choices import Choices
from tests.differential.comparing import difference
from tests.differential.families import Family
from tests.differential.kinds import Kind
from tests.differential.oracle import run_duckdb
from tests.differential.reading import rows_written
from tests.differential.relations import RelationMaker
from tests.differential.running import FUNCTIONS, columns_text
from tests.differential.styles import generate_breaks, run_with_breaks
from tests.differential.tables import COLUMNS, Table, generate_table
from tests.differential.tree import Relation, Scan
from tests.differential.writing import written

#: JSON holds no NaN and no infinity.
_COLUMNS = tuple(column for column in COLUMNS if column.name != "wd")


@dataclass(frozen=True)
class ScriptCase:
    """Tables, what is inserted into each sink, and options of the run."""

    tables: tuple[Table, ...]
    queries: tuple[Relation, ...]
    #: The kind of sink of each query: a format of files, or print.
    sinks: tuple[str, ...]
    options: Mapping[str, int]
    #: Whether the text stands in EXECUTE STATEMENT SET.
    together: bool
    breaks: tuple[tuple[Any, ...], ...] = ()


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
    tables += tuple(replace(table, carried="json") for table in maker.timed)
    sinks = [choices.weighted([(4, "json"), (3, "csv"), (3, "parquet")]) for _ in queries]
    breaks = generate_breaks(choices) if choices.chance(15) else ()
    if not breaks and choices.chance(20):
        sinks[choices.integer(0, len(sinks) - 1)] = "print"
    return ScriptCase(tables, tuple(queries), tuple(sinks), options, together, breaks)


def script_of(case: ScriptCase, place: Path) -> str:
    """Return the whole text: tables over files below ``place/in``, sinks below ``place/out``."""
    parts = []
    for table in case.tables:
        columns = columns_text(table)
        path = f"'path' = '{place}/in/{table.name}/*.ndjson'"
        parts.append(
            f"CREATE TABLE {table.name} ({columns}) WITH ('connector' = 'filesystem', {path}, 'format' = 'json');"
        )
    inserts = []
    for number, query in enumerate(case.queries):
        columns = ", ".join(f"`{name}` {kind.flink}" for name, kind in _sink_columns(query).items())
        options = f"'connector' = 'filesystem', 'path' = '{place}/out/{number}', 'changes' = 'column', 'format' = '{case.sinks[number]}'"
        options += ", 'header' = 'true'" if case.sinks[number] == "csv" else ""
        if case.sinks[number] == "print":
            options = "'connector' = 'print'"
        parts.append(f"CREATE TABLE sink{number} ({columns}) WITH ({options});")
        views, _, rest = written(query, "flink").rpartition(";\n")
        # Aliases, and so the names of views, are unique in a job; a query that is inserted twice has its views once.
        if views and f"{views};" not in parts:
            parts.append(f"{views};")
        inserts.append(f"INSERT INTO sink{number}\n{rest};")
    body = "\n".join(inserts)
    return "\n".join([*parts, f"EXECUTE STATEMENT SET BEGIN\n{body}\nEND;" if case.together else body])


def _sink_columns(query: Relation) -> dict[str, Kind]:
    return {f"o{at}": column.kind for at, column in enumerate(query.columns)}


def check(case: ScriptCase, backend: str = "light") -> str | None:
    """Return which sinks hold other rows than DuckDB gives, or None."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="headrace-script-", dir=memory if memory.is_dir() else None))
    try:
        for table in case.tables:
            (place / "in" / table.name).mkdir(parents=True)
            for queue in range(table.queue_count):
                (place / "in" / table.name / f"{queue}.ndjson").write_bytes(
                    b"".join(body + b"\n" for body in table.bodies(queue, maps="object"))
                )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _run(case, place, backend)
        for number, (query, sink) in enumerate(zip(case.queries, case.sinks, strict=True)):
            expected = run_duckdb(case.tables, written(query, "duckdb"))
            text = printed.getvalue() if sink == "print" else None
            found = rows_written(sink, place / "out" / str(number), _sink_columns(query), text)
            wrong = difference(expected, found, names=("by DuckDB", "by headrace"))
            if wrong:
                return f"sink{number}, {sink}: {wrong}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return None


def check_on_spark(case: ScriptCase) -> str | None:
    """Do so on Spark, run once. What workers print does not come here, so files take the place of the print sink."""
    sinks = tuple("json" if sink == "print" else sink for sink in case.sinks)
    return check(replace(case, sinks=sinks, breaks=()), "spark")


def _run(case: ScriptCase, place: Path, backend: str) -> None:
    def made() -> hr.Job:
        api.forget()
        job: hr.Job = hr.sql(script_of(case, place), functions=FUNCTIONS, pipeline="script", bad_records="stop")
        return job

    if case.breaks:
        run_with_breaks(made, case.breaks, {"show_progress": False, **case.options})
    else:
        job = made()
        shuffles = backend == "light" or job.plan().shuffles
        options = case.options if shuffles else {k: v for k, v in case.options.items() if k != "shards"}
        job.run(backend, show_progress=False, **options)


def describe(case: ScriptCase) -> str:
    """Return the tables and the script."""
    breaks = [f"breaks {case.breaks}"] if case.breaks else []
    return "\n".join([*map(str, case.tables), str(case.options), *breaks, "", script_of(case, Path("DATA"))])


FAMILY = Family("script", generate, check, describe, weight=10, check_on_spark=check_on_spark)
