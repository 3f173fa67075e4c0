"""SQL texts with Flink CDC's options, as a job of both backends."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import HeadraceError
from mysql_world import Database

TEXT = """
CREATE TABLE orders (
  id INT, customer STRING, total DECIMAL(10, 2), placed TIMESTAMP(3), at_day TIME, PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'mysql-cdc', 'hostname' = '{host}', 'port' = '{port}', 'username' = '{user}', 'password' = '{password}',
  'database-name' = '{database}', 'table-name' = '{table}', 'server-id' = '5400-5404', 'server-time-zone' = 'Asia/Shanghai',
  'scan.incremental.snapshot.chunk.size' = '2' {more});
CREATE TABLE totals (customer STRING, n BIGINT, total DECIMAL(38, 2), PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://{host}:{port}/{database}', 'table-name' = 'totals', 'username' = '{user}',
  'password' = '{password}');
INSERT INTO totals SELECT customer, COUNT(*) AS n, SUM(total) AS total FROM orders GROUP BY customer;
"""


def text_of(database: Database, more: str = "", table: str = "orders") -> str:
    server = database.server
    return TEXT.format(
        host=server.host, port=server.port, user=server.user, password=server.password, database=database.name, more=more, table=table
    )  # fmt: skip


@pytest.fixture
def orders(logged: Database) -> Database:
    logged.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20), total DECIMAL(10,2), placed DATETIME(6), at_day TIME, more INT)"
    )
    logged.execute("CREATE TABLE totals (customer VARCHAR(20) PRIMARY KEY, n BIGINT, total DECIMAL(38,2))")
    logged.execute(
        "INSERT INTO orders VALUES (1, 'Uma', 1.5, NOW(6), '12:00:00', 1), (2, 'Sven', 2, NULL, NULL, 2), (3, 'Uma', 3, NULL, NULL, 3)"
    )
    return logged


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_totals_follow_the_table(orders: Database, tmp_path: Path, backend: str) -> None:
    options: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "show_progress": False}
    if backend == "spark":
        options["master"] = "local[2]"

    def run() -> list[tuple[Any, ...]]:
        assert hr.sql(text_of(orders)).run(backend, **options).dead_letters == 0
        return orders.execute("SELECT * FROM totals ORDER BY customer")

    assert run() == [("Sven", 1, Decimal("2.00")), ("Uma", 2, Decimal("4.50"))]
    orders.execute("UPDATE orders SET customer = 'Sven', total = total * 2 WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 3")
    orders.execute("INSERT INTO orders VALUES (4, 'Ida', 7, NULL, NULL, 4)")
    assert run() == [("Ida", 1, Decimal("7.00")), ("Sven", 2, Decimal("5.00"))]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (", 'scan.startup.mode' = 'timestamp'", "initial or latest-offset"),
        (", 'scan.incremental.snapshot.enabled' = 'false'", "only true"),
        (", 'server-id' = 'x'", "neither a number nor a range"),
        (", 'debezium.skipped.operations' = 't'", "no option"),
    ],
)
def test_options_that_are_refused(orders: Database, more: str, problem: str) -> None:
    text = text_of(orders, more).replace(
        "'server-id' = '5400-5404', ", "" if "server-id" in more else "'server-id' = '5400', "
    )
    with pytest.raises(HeadraceError, match=problem):
        hr.sql(text)


def test_patterns_of_tables_are_refused(orders: Database) -> None:
    with pytest.raises(HeadraceError, match="patterns are not supported"):
        hr.sql(text_of(orders, table="orders_.*"))


def test_a_type_that_does_not_fit_is_refused(orders: Database) -> None:
    with pytest.raises(HeadraceError, match="cannot be read as int32"):
        hr.sql(text_of(orders).replace("customer STRING, total", "customer INT, total"))
