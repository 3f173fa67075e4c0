"""What the tests share: a database as somebody else sees it, and sinks as a job has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from headrace_postgres import PostgresSink, PostgresSinkSettings

from tests.servers.postgresql import PostgreSQLServer
from tests.sink_tests import as_in_a_job


class PostgresDatabase:
    """A database and a connection to it that has nothing to do with the connector's."""

    def __init__(self, server: PostgreSQLServer, name: str) -> None:
        self.server = server
        self.name = name
        self.connection = self.connect()

    def connect(self) -> Any:
        return psycopg.connect(
            host=self.server.host,
            port=self.server.port,
            user=self.server.user,
            password=self.server.password,
            dbname=self.name,
            autocommit=True,
            options="-c timezone=UTC",
        )

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self, table: str, columns: str = "*") -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(f'SELECT {columns} FROM "{table}"')  # noqa: S608
            return list(cursor.fetchall())

    def ids(self, table: str = "t") -> list[int]:
        return [row for (row,) in self.execute(f'SELECT id FROM "{table}" ORDER BY id')]  # noqa: S608

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options that name the server and the database."""
        server = self.server
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        return {**place, "database": self.name, "table": "t", **more}

    def sink(self, columns: Mapping[str, Any] | None = None, /, *, prepare: bool = True, **more: Any) -> PostgresSink:
        """Return a sink as a job has it once it runs."""
        sink = PostgresSink(PostgresSinkSettings.of(self.options(**more), plugin="postgres"))
        return as_in_a_job(sink, columns, prepare=prepare)

    def close(self) -> None:
        self.connection.close()
