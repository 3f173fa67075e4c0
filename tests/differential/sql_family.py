"""Queries of headrace's SQL over tables in memory, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import headrace as hr

from tests.differential.choices import Choices
from tests.differential.comparing import difference, row_of
from tests.differential.families import Family
from tests.differential.golden import case_text
from tests.differential.kinds import KEY, TEXT_KEY
from tests.differential.oracle import rows_of, run_duckdb
from tests.differential.relations import generate_case
from tests.differential.rewriting import (
    Rewriting,
    halved,
    number_of,
    rewritten,
    with_first_keys,
    with_other_keys,
)
from tests.differential.running import register
from tests.differential.styles import generate_style, run_styled
from tests.differential.tables import COLUMNS, keyed_columns
from tests.differential.tree import (
    Exists,
    InQuery,
    Join,
    LateralQuery,
    Over,
    Quantified,
    ScalarQuery,
    SqlCase,
    parts_of,
)
from tests.differential.writing import written


def generate(choices: Choices) -> SqlCase:
    """Return a query, tables and a way of running."""
    style = generate_style(choices)
    copies = choices.pick([40, 7, 400]) if choices.chance(8) else 1
    keys = keyed_columns(choices.pick([KEY, TEXT_KEY])) if choices.chance(8) else COLUMNS
    case = replace(generate_case(choices, keys), style=style, other_keys=keys is not COLUMNS)
    if not case.other_keys and choices.chance(35):
        case = replace(case, rewriting=rewritten(choices, case.query))
    if copies > 1 and not any(isinstance(part, _MULTIPLYING) or _by_rows(part) for part in parts_of(case.query)):
        # Many rows: of joins there would be the square of them.
        tables = tuple(replace(table, rows=table.rows * copies, queues=table.queues * copies) for table in case.tables)
        few = style.max_batch_records < 100  # a batch costs what hundreds of rows cost
        case = replace(case, tables=tables, style=replace(style, max_batch_records=97) if few else style)
    return case


def _by_rows(part: object) -> bool:
    """Whether a part wants rows that differ in their times."""
    return isinstance(part, Over) and (
        "ROWS" in part.frame or any(c.function.startswith(_BY_PLACE) for c in part.calls)
    )


_BY_PLACE = ("lag", "row_number")
_MULTIPLYING = Join | LateralQuery | InQuery | Quantified | Exists | ScalarQuery


def check(case: SqlCase) -> str | None:
    """Return in what headrace differs from DuckDB, or a query from one that must give the same, or None."""
    rewriting = case.rewriting
    if rewriting is not None and rewriting.how == "counts":
        return _counted(case, rewriting)
    expected = run_duckdb(case.tables, written(case.query, "duckdb"))
    query = case.query if rewriting is None else rewriting.query
    tables = tuple(map(with_other_keys, case.tables)) if case.other_keys else case.tables
    found = run_styled(tables, written(query, "flink"), case.style)
    rows, wrong = found.rows, ""
    if len(query.columns) == 2 * len(case.query.columns):
        rows, wrong = halved(rows)
    if case.other_keys:
        rows = with_first_keys(rows, [column.kind for column in case.query.columns])
    return wrong or difference(expected, rows, names=_NAMES) or "\n".join(found.faults[:5]) or None


_NAMES = ("by DuckDB", "by headrace")


def _counted(case: SqlCase, rewriting: Rewriting) -> str | None:
    """Return a text when WHERE leaves another number of rows than those for which its condition is true."""
    assert rewriting.base is not None
    left = run_styled(case.tables, written(rewriting.base, "flink"), replace(case.style, optimized=True, breaks=()))
    true = run_styled(case.tables, written(rewriting.query, "flink"), case.style)
    one, other = number_of(left.rows), number_of(true.rows)
    return None if one == other else f"WHERE leaves {one} rows, its condition is true for {other}"


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
    parts = [*map(str, used), str(case.style), "", text, "", "-- for DuckDB:", written(case.query, "duckdb")]
    if case.other_keys:
        parts.append("-- with other keys in the tables (rewriting.other_key)")
    if case.rewriting is not None:
        queries = [each for each in (case.rewriting.base, case.rewriting.query) if each is not None]
        parts += ["", f"-- run, {case.rewriting.how}:", *(written(each, "flink") for each in queries)]
    return "\n".join(parts)


def golden(case: SqlCase) -> str:
    """Return the case with DuckDB's rows, to be kept. Raises ValueError when DuckDB cannot say them."""
    rewriting = case.rewriting
    if case.other_keys or (rewriting is not None and rewriting.base is not None):
        raise ValueError("the rows are not those that DuckDB gives")
    query = case.query if rewriting is None else rewriting.query
    kinds = [column.kind for column in query.columns]
    times = len(kinds) // len(case.query.columns)
    rows = [row * times for row in rows_of(case.tables, written(case.query, "duckdb"))]
    return case_text(case.tables, written(query, "flink"), kinds, rows)


FAMILY = Family("sql", generate, check, describe, weight=60, golden=golden, check_on_spark=check_on_spark)
