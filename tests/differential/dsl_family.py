"""Chains of verbs of the Python DSL, compared with nested SELECTs in DuckDB, and with the same tree as a SQL text of headrace.

Expressions are those of ``forms``, in the language of the columns; ``dsl_steps.NOT_IN_DSL`` names those that it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import headrace as hr
from headrace.interfaces.sink import Sink

from tests.differential import styles
from tests.differential.choices import Choices
from tests.differential.comparing import difference
from tests.differential.dsl_chain import Chain
from tests.differential.dsl_steps import Step, columns_of, names_of
from tests.differential.families import Family
from tests.differential.kinds import KEY, TEXT_KEY
from tests.differential.on_spark import rows_on_spark
from tests.differential.oracle import run_duckdb
from tests.differential.rewriting import with_first_keys, with_other_keys
from tests.differential.running import FUNCTIONS, FoldingSink, stream_of
from tests.differential.tables import COLUMNS, Table, generate_table, keyed_columns


@dataclass(frozen=True)
class DslCase:
    """Tables, the chain of verbs over the first one, and how it is run.

    ``streams``: the tables as streams, filled when the chain is built, as joins read other tables.
    ``other_keys``: it is run with other keys. ``as_sql``: the same tree is run as a SQL text too.
    """

    tables: tuple[Table, ...]
    steps: tuple[Step, ...]
    style: styles.Style
    streams: dict[str, hr.Stream]
    other_keys: bool = False
    as_sql: bool = False


def generate(choices: Choices) -> DslCase:
    """Return a chain of one to six verbs."""
    style = replace(styles.generate_style(choices), dressing="plain")
    other_keys = choices.chance(8)
    columns = keyed_columns(choices.pick([KEY, TEXT_KEY])) if other_keys else COLUMNS
    tables = tuple(generate_table(choices, f"t{number}", columns=columns) for number in (1, 2))
    chain = Chain(choices, tables, {})
    steps = [chain.step() for _ in choices.repeat(1, 6, 70)]
    return DslCase(tables, tuple(steps), style, chain.streams, other_keys, not other_keys and choices.chance(20))


def _job(case: DslCase, tables: Sequence[Table], sink: Sink) -> hr.Job:
    pipeline = hr.stream("differential", "dsl", functions=FUNCTIONS, bad_records="stop")
    case.streams.update({table.name: stream_of(pipeline, table) for table in tables})
    stream = case.streams["t1"]
    for step in case.steps:
        stream = step.apply(stream)
    return stream.to(sink, name="result")


def _query(case: DslCase, dialect: str) -> str:
    query = f"SELECT {names_of(columns_of(case.tables[0]))} FROM t1"
    for step in case.steps:
        query = step.query(query, dialect)
    return query


def check(case: DslCase) -> str | None:
    """Return in what the chain differs from DuckDB, or from the same in SQL, or None."""
    style = case.style
    tables = tuple(map(with_other_keys, case.tables)) if case.other_keys else case.tables
    tables = tuple(table.in_queues(style.queues) if style.queues else table for table in tables)
    found = styles.run_job(lambda sink: _job(case, tables, sink), style)
    rows = found.rows
    if case.other_keys:
        rows = with_first_keys(rows, [column.kind for column in case.steps[-1].columns])
    expected = run_duckdb(case.tables, _query(case, "duckdb"))
    wrong = difference(expected, rows, names=("by DuckDB", "by headrace")) or "\n".join(found.faults[:5])
    if not wrong and case.as_sql:
        told = styles.run_styled(case.tables, _query(case, "flink"), replace(style, breaks=()))
        wrong = difference(rows, told.rows, names=("by the verbs", "by the same in SQL"))
    return wrong or None


def check_on_spark(case: DslCase) -> str | None:
    """Return in what the chain on Spark differs from DuckDB, or None. Of the way of running batches and shards count."""
    job = _job(case, case.tables, FoldingSink())
    shards = {"shards": case.style.shards} if job.plan().shuffles else {}
    batch = case.style.max_batch_records
    found = rows_on_spark(lambda sink: _job(case, case.tables, sink), max_batch_records=batch, **shards)
    expected = run_duckdb(case.tables, _query(case, "duckdb"))
    return difference(expected, found, names=("by DuckDB", "on Spark")) or None


def describe(case: DslCase) -> str:
    """Return the tables and the verbs."""
    lines = [*map(str, case.tables), str(case.style), "", "t1", *(f"  .{step.text}" for step in case.steps), ""]
    if case.other_keys:
        lines.append("-- with other keys in the tables (rewriting.other_key)")
    for dialect, shown in (("duckdb", True), ("flink", case.as_sql)):
        lines += [f"-- in the SQL of {dialect}:", _query(case, dialect)] if shown else []
    return "\n".join(lines)


FAMILY = Family("dsl", generate, check, describe, weight=20, check_on_spark=check_on_spark)
