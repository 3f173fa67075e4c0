"""What the tests share: a database as somebody else sees it, batches of known rows, and sinks as a job has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import psycopg
from headrace.flow.messages import INDEX, OFFSET, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.interfaces.sink import SinkBatch
from headrace_postgres import PostgresSink, PostgresSinkSettings

from tests.servers.postgresql import PostgreSQLServer


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
        sink.writer_name = "test.job.sink"
        declared = None if columns is None else Schema.of(columns)
        sink.check(declared)
        if prepare:
            sink.prepare(declared)
            sink.open()
        return sink

    def close(self) -> None:
        self.connection.close()


def batch(queue: str, rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], first: int = 0) -> Batch:
    """Return rows as records ``first`` … of a queue, one row each."""
    header = pl.DataFrame(
        {OFFSET: range(first, first + len(rows)), INDEX: [0] * len(rows)}, schema={OFFSET: pl.Int64, INDEX: pl.Int32}
    )
    user = pl.DataFrame([dict(row) for row in rows], schema=dict(Schema.of(schema)), orient="row")
    return Batch(Queue(queue), pl.concat([header, user], how="horizontal"))


def numbers(queue: str, first: int, count: int) -> Batch:
    """Return records whose ``id`` is their offset."""
    return batch(queue, [{"id": n} for n in range(first, first + count)], {"id": "int64"}, first)


def insert(sink: PostgresSink, made: Batch, after: Position | None = None) -> None:
    """Insert a batch as the writer does."""
    sink.batch_insert(SinkBatch(made.queue, made.frame, after))
