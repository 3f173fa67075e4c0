"""Rows per second of CPU into PostgreSQL, and row changes per second of CPU out of its log.

    python -m benchmarks.postgres [quick]

A server is started. The sink gets 500,000 rows of seven columns in batches of 10,000: by COPY, by upsert of keys that are there, and as a
changelog of updates and deletes. psycopg's own ``executemany`` writes a part of them for comparison. Then 200,000 rows are inserted,
100,000 of them changed by one statement and 20,000 one by one, and read from the log: by the reader alone, and by a job that filters
and writes files; with whole old rows (REPLICA IDENTITY FULL) and without. Seconds are those of this process; the server's come on top.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Any

import polars as pl
import psycopg
from headrace.flow.messages import CHANGE, INDEX, OFFSET, ChangeKind, Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes
from headrace.interfaces.sink import SinkBatch
from headrace.interfaces.source import LATEST, Reader, StartPosition
from headrace_postgres import PostgresChangesSettings, PostgresChangesSource, PostgresSink, PostgresSinkSettings

from benchmarks.following_changes import seconds_of_job, seconds_of_reader
from tests.servers.postgresql import PostgreSQLOptions, PostgreSQLServer
from tests.servers.sharing import own_server

_SCHEMA = {
    "id": "int64", "customer": "int32", "name": "string", "amount": "decimal(12, 2)", "price": "float64", "created": "timestamp",
    "note": "string",
}  # fmt: skip
_COLUMNS = (
    "id bigint PRIMARY KEY, customer integer, name varchar(40), amount numeric(12, 2), price double precision, created timestamptz,"
    " note varchar(100)"
)
_BATCH = 10_000


def rows(first: int, count: int) -> pl.DataFrame:
    """Return rows of the benchmark's table."""
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(
        id=number,
        customer=(number % 1000).cast(pl.Int32),
        name=pl.format("name {}", number),
        amount=(number % 10_000).cast(pl.Decimal(12, 2)),
        price=number * 0.5,
        created=pl.lit(datetime(2024, 1, 1))
        .dt.offset_by(pl.format("{}s", number % 86_400))
        .dt.replace_time_zone("UTC"),
        note=pl.format("some note of row {}", number),
    ).cast(dict(Schema.of(_SCHEMA)))  # type: ignore[arg-type]


def into_sink(place: dict[str, Any], name: str, total: int, kinds: list[int] | None = None, **options: Any) -> float:
    """Return the seconds of CPU for writing rows."""
    sink = PostgresSink(PostgresSinkSettings.of({**place, **options}, plugin="postgres"))
    sink.writer_name = name
    if kinds:
        sink.changes = Changes(("id",))
    schema = Schema.of(_SCHEMA)
    sink.check(schema)
    sink.prepare(schema)
    sink.open()
    batches = []
    for first in range(0, total, _BATCH):
        frame = rows(first, min(_BATCH, total - first))
        header = [pl.int_range(first, first + frame.height).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX)]
        made = frame.with_columns(header)
        if kinds:
            change = pl.when(pl.col("id") % 4 == 0).then(kinds[0]).otherwise(kinds[1]).cast(pl.Int8)
            made = made.with_columns(change.alias(CHANGE))
        batches.append(made)
    after, begun = None, time.process_time()
    for frame in batches:
        batch = SinkBatch(Queue("q"), frame, after)
        sink.batch_insert(batch)
        after = batch.last
    seconds = time.process_time() - begun
    sink.close()
    return seconds


def by_executemany(connection: psycopg.Connection[Any], total: int) -> float:
    """Return the seconds of CPU for psycopg's own way."""
    values = [tuple(row) for row in rows(0, total).rows()]
    begun = time.process_time()
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO plain VALUES (%s, %s, %s, %s, %s, %s, %s)", values)
    return time.process_time() - begun


class _From(PostgresChangesSource):
    """Begins where it is told."""

    begin: ReadPosition

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        return super().open(queue, start if isinstance(start, ReadPosition) else self.begin)

    def stored(self, positions: Any) -> None:
        """Keep the log, for the next one that reads it."""


def by_reader(source: _From) -> float:
    """Return the seconds of CPU for the reader alone."""
    [queue] = source.queues()
    reader = source.open(queue, LATEST)
    return seconds_of_reader(reader)


def write(connection: psycopg.Connection[Any], count: int) -> int:
    """Write rows and their changes; return how many changes of rows these are."""
    with connection.cursor() as cursor:
        for first in range(0, count, 1000):
            cursor.execute(
                "INSERT INTO orders SELECT n, n %% 1000, 'name ' || n, n %% 10000 + 0.25, n * 0.5, '2024-01-01 00:00:00Z',"
                " 'some note of row ' || n FROM generate_series(%s::bigint, %s) n",
                (first, first + 999),
            )
        cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id < %s", (count // 2,))
        changed, single = cursor.rowcount, count // 10
        for n in range(single):
            cursor.execute("UPDATE orders SET price = price + 1, note = 'changed' WHERE id = %s", (n * 7919 % count,))
    return count + changed + single


def main(total: int) -> None:
    """Measure and print."""
    with own_server(PostgreSQLServer, PostgreSQLOptions(config={"wal_level": "logical"})) as server:
        place: dict[str, Any] = {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password, "database": "postgres",
        }  # fmt: skip
        with psycopg.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, dbname="postgres", autocommit=True
        ) as connection:  # fmt: skip
            for name in ("copied", "plain", "orders"):
                connection.execute(f"CREATE TABLE {name} ({_COLUMNS})")
            change = [int(ChangeKind.DELETE), int(ChangeKind.UPDATE_AFTER)]
            for what, seconds in (
                ("COPY", into_sink(place, "a", total, table="copied")),
                ("upsert of keys that are there", into_sink(place, "b", total, table="copied", mode="upsert")),
                ("a changelog, a quarter deletes", into_sink(place, "c", total, change, table="copied", mode="upsert")),
            ):
                print(f"sink, {what}: {total / seconds:,.0f} rows per second of CPU")
            seconds = by_executemany(connection, total // 10)
            print(f"executemany of psycopg: {total // 10 / seconds:,.0f} rows per second of CPU")
            for full in (False, True):
                connection.execute("TRUNCATE orders")
                connection.execute(f"ALTER TABLE orders REPLICA IDENTITY {'FULL' if full else 'DEFAULT'}")
                settings = PostgresChangesSettings.of(
                    {**place, "table": "orders", "slot": f"slot_{int(full)}"}, plugin="postgres_changes"
                )
                source = _From(settings)
                [queue] = source.queues()
                reader = PostgresChangesSource(settings).open(queue, LATEST)
                source.begin = reader.position
                reader.close()
                changes = write(connection, total * 2 // 5)
                for name, seconds in (("the reader", by_reader(source)), ("a job on light", seconds_of_job(source))):
                    old = "whole old rows" if full else "keys only"
                    print(f"log with {old}, {name}: {changes / seconds:,.0f} row changes per second of CPU")


if __name__ == "__main__":
    main(50_000 if "quick" in sys.argv else 500_000)
