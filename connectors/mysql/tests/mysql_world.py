"""What the tests share: a database as somebody else sees it, and sinks as a job has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql
from headrace_mysql import MySQLSink, MySQLSinkSettings, MySQLSource, MySQLSourceSettings

from tests.relay import Relay as Relay
from tests.servers.mysql import MySQLServer
from tests.sink_tests import as_in_a_job


class Database:
    """A database and a connection to it that has nothing to do with the connector's."""

    def __init__(self, server: MySQLServer, name: str) -> None:
        self.server = server
        self.name = name
        self.connection = self.connect()

    def connect(self) -> Any:
        return pymysql.connect(
            host=self.server.host,
            port=self.server.port,
            user=self.server.user,
            password=self.server.password,
            database=self.name,
            charset="utf8mb4",
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
        )

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def rows(self, table: str, columns: str = "*") -> list[dict[str, Any]]:
        with self.connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT {columns} FROM `{table}`")  # noqa: S608
            return list(cursor.fetchall())

    def ids(self, table: str = "t") -> list[int]:
        return [row for (row,) in self.execute(f"SELECT id FROM `{table}` ORDER BY id")]  # noqa: S608

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options that name the server and the database."""
        server = self.server
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        return {**place, "database": self.name, "table": "t", **more}

    def sink(self, schema: Mapping[str, Any] | None = None, *, prepare: bool = True, **more: Any) -> MySQLSink:
        """Return a sink as a job has it once it runs."""
        sink = MySQLSink(MySQLSinkSettings.of(self.options(**more), plugin="mysql"))
        return as_in_a_job(sink, schema, prepare=prepare)

    def source(self, *, clock: Any = None, **more: Any) -> MySQLSource:
        source = MySQLSource(MySQLSourceSettings.of(self.options(**more), plugin="mysql"), clock=clock)
        source.check()
        return source

    def kill(self, number: int) -> int:
        """Cut a connection; return 1 unless it has gone by itself."""
        try:
            self.execute(f"KILL CONNECTION {int(number)}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1094:
                raise
            return 0
        return 1

    def close(self) -> None:
        self.connection.close()
