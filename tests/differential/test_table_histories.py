"""Histories of tables of MariaDB and PostgreSQL from seeds, followed by the readers of their changes: see ``table_histories``.

pytest tests/differential/test_table_histories.py -m slow        # HEADRACE_TEST_SEEDS=200, HEADRACE_TEST_SEED=77
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest
from headrace_mysql import MySQLChangesSettings, MySQLChangesSource
from headrace_postgres import PostgresChangesSettings, PostgresChangesSource

from tests.differential.table_histories import SHAPES, Client, History, Reading
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer

_STEPS = 150


class MySQLClient:
    def __init__(self, server: MySQLServer, database: str) -> None:
        self._connection = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, database=database, autocommit=True
        )  # fmt: skip
        # Rows that are not there are not locked.
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.execute("SET SESSION innodb_lock_wait_timeout = 1")

    def execute(self, statement: str, parameters: Any = None) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def close(self) -> None:
        self._connection.close()


class PostgresClient:
    def __init__(self, server: PostgreSQLServer, database: str) -> None:
        self._connection = psycopg.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, dbname=database, autocommit=True
        )  # fmt: skip

    def execute(self, statement: str, parameters: Any = None) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        self._connection.close()


def place_of(server: MySQLServer | PostgreSQLServer, database: str) -> dict[str, Any]:
    return {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password, "database": database,
        "table": "t",
    }  # fmt: skip


def followed(
    connect: Callable[[], Client],
    source: Callable[..., Any],
    seed: int,
    *,
    full: bool,
    begin: tuple[str, ...] = (),
) -> None:
    chance = random.Random(seed)
    name = chance.choice(sorted(SHAPES))
    print(f"seed {seed}: key {name}, old rows {full}")
    shape = SHAPES[name]
    cleaner = connect()
    cleaner.execute("DROP TABLE IF EXISTS t")
    history = History(connect, shape, chance, (pymysql.OperationalError,))
    columns = [*shape.key, "v", "w"]
    reading = None
    try:
        history.make(*begin)
        reading = Reading(source(seed, columns=columns, chunk_rows=chance.choice([3, 10, 1000])), columns, chance)
        for _ in range(_STEPS):
            history.step()
            if chance.random() < 0.4:
                reading.step()
        history.end()
        reading.finish()
        assert reading.table(full=full, key=len(shape.key)) == history.table()
    finally:
        history.close()
        cleaner.close()
        if reading is not None:
            reading.close()


def seeds(count: int) -> list[int]:
    if one := os.environ.get("HEADRACE_TEST_SEED"):
        return [int(one)]
    first = random.randrange(10**6)
    return list(range(first, first + count))


def in_mysql(server: MySQLServer, database: str, count: int) -> None:
    def source(seed: int, **more: Any) -> MySQLChangesSource:
        options = {**place_of(server, database), **more, "positions": ["gtid", "file"][seed % 2]}
        return MySQLChangesSource(MySQLChangesSettings.of(options, plugin="mysql_changes"))

    for seed in seeds(count):
        followed(lambda: MySQLClient(server, database), source, seed, full=True)


def in_postgres(server: PostgreSQLServer, database: str, count: int) -> None:
    def source(seed: int, **more: Any) -> PostgresChangesSource:
        options = {**place_of(server, database), **more, "slot": f"history_{seed}"}
        return PostgresChangesSource(PostgresChangesSettings.of(options, plugin="postgres_changes"))

    def connect() -> PostgresClient:
        return PostgresClient(server, database)

    for seed in seeds(count):
        full = seed % 2 == 0
        # The publication of the history before has lost its table, which was dropped.
        begin = ["DROP PUBLICATION IF EXISTS headrace_t", *(["ALTER TABLE t REPLICA IDENTITY FULL"] if full else [])]
        followed(connect, source, seed, full=full, begin=tuple(begin))
        client = connect()
        client.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
            (f"history_{seed}",),
        )
        client.close()


def test_histories_in_mariadb(logging_mysql_server: MySQLServer, logging_mysql_database: str) -> None:
    in_mysql(logging_mysql_server, logging_mysql_database, 2)


def test_histories_in_postgresql(logging_postgresql_server: PostgreSQLServer, logging_postgresql_database: str) -> None:
    in_postgres(logging_postgresql_server, logging_postgresql_database, 2)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_histories_in_mariadb(logging_mysql_server: MySQLServer, logging_mysql_database: str) -> None:
    in_mysql(logging_mysql_server, logging_mysql_database, int(os.environ.get("HEADRACE_TEST_SEEDS", "200")))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_histories_in_postgresql(
    logging_postgresql_server: PostgreSQLServer, logging_postgresql_database: str
) -> None:
    in_postgres(
        logging_postgresql_server, logging_postgresql_database, int(os.environ.get("HEADRACE_TEST_SEEDS", "200"))
    )
