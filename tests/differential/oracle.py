"""DuckDB as the oracle: it runs the same query over the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb

from tests.differential.comparing import Row, row_of
from tests.differential.tables import Table


class OracleError(Exception):
    """DuckDB refuses what was written for it: a fault of the generator, not of headrace."""


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    # It fails with an internal error where ROW_NUMBER stands over a column that is a constant expression (1.5.6).
    connection.execute("SET disabled_optimizers = 'top_n_window_elimination'")
    return connection


def run_duckdb(tables: Sequence[Table], text: str) -> Counter[Row]:
    """Return the rows of a query in DuckDB, to compare. Raises OracleError when DuckDB refuses it."""
    return Counter(row_of(row) for row in rows_of(tables, text))


def rows_of(tables: Sequence[Table], text: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query in DuckDB as Python values. Raises OracleError when DuckDB refuses it."""
    connection = _connection()
    for table in tables:
        columns = ", ".join(f"{column.name} {column.kind.duckdb}" for column in table.columns)
        connection.execute(f"CREATE OR REPLACE TABLE {table.name} ({columns})")
        if table.rows:
            connection.register("loaded", table.frame().to_arrow())
            connection.execute(f"INSERT INTO {table.name} SELECT * FROM loaded")  # names of our own
            connection.unregister("loaded")
    try:
        return connection.execute(text).fetchall()
    except duckdb.Error as error:
        raise OracleError(f"{error}\n{text}") from error
