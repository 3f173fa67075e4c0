"""Queries of headrace's SQL over tables in memory, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import headrace as hr

from tests.differential.choices import Choices
from tests.differential.comparing import difference, row_of
from tests.differential.families import Family
from tests.differential.golden import case_text
from tests.differential.oracle import rows_of, run_duckdb
from tests.differential.relations import generate_case
from tests.differential.running import register
from tests.differential.styles import generate_style, run_styled
from tests.differential.tree import Exists, InQuery, Join, LateralQuery, ScalarQuery, SqlCase, parts_of
from tests.differential.writing import written


def generate(choices: Choices) -> SqlCase:
    """Return a query, tables and a way of running."""
    style = generate_style(choices)
    copies = choices.pick([40, 7, 400]) if choices.chance(8) else 1
    case = replace(generate_case(choices), style=style)
    if copies > 1 and not any(isinstance(part, _MULTIPLYING) for part in parts_of(case.query)):
        # Many rows: of joins there would be the square of them.
        tables = tuple(replace(table, rows=table.rows * copies, queues=table.queues * copies) for table in case.tables)
        case = replace(case, tables=tables)
    return case


_MULTIPLYING = Join | LateralQuery | InQuery | Exists | ScalarQuery


def check(case: SqlCase) -> str | None:
    """Return in what headrace differs from DuckDB, or None."""
    expected = run_duckdb(case.tables, written(case.query, "duckdb"))
    found = run_styled(case.tables, written(case.query, "flink"), case.style)
    return difference(expected, found.rows, names=("by DuckDB", "by headrace")) or "\n".join(found.faults[:5]) or None


def check_on_spark(case: SqlCase) -> str | None:
    """Return in what headrace on Spark differs from DuckDB, or None. Of the way of running batches and shards count."""
    register(case.tables)
    job = hr.sql(written(case.query, "flink"), pipeline="job")
    shards = {"shards": case.style.shards} if job.plan().shuffles else {}
    frame = job.collect(backend="spark", show_progress=False, max_batch_records=case.style.max_batch_records, **shards)
    expected = run_duckdb(case.tables, written(case.query, "duckdb"))
    return difference(expected, Counter(map(row_of, frame.rows())), names=("by DuckDB", "on Spark")) or None


def describe(case: SqlCase) -> str:
    """Return the tables and the text that read them."""
    text = written(case.query, "flink")
    used = [table for table in case.tables if table.name in text]
    return "\n".join([*map(str, used), str(case.style), "", text, "", "-- for DuckDB:", written(case.query, "duckdb")])


def golden(case: SqlCase) -> str:
    """Return the case with DuckDB's rows, to be kept."""
    kinds = [column.kind for column in case.query.columns]
    rows = rows_of(case.tables, written(case.query, "duckdb"))
    return case_text(case.tables, written(case.query, "flink"), kinds, rows)


FAMILY = Family("sql", generate, check, describe, weight=60, golden=golden, check_on_spark=check_on_spark)
