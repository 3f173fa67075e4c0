"""Rows per second into MySQL: the sink through its writer and through the light backend, against bare ``executemany``.

    python -m benchmarks.mysql_connector [quick]

All in one run on one server: ``HEADRACE_TEST_MYSQL=user:password@host:port``, or one that is started for it. The bare
loop does what one would write by hand: batches of the same size, one transaction each. Each way is measured in turn,
several times, and the median counts. The loop does not keep positions, so it promises less.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import headrace as hr
import polars as pl
import pymysql
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue, RawBatch
from headrace.flow.schema import Schema
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import Reader, Source, StartPosition
from headrace.runtime.sink_writer import SinkWriter
from headrace_mysql import MySQLSink, MySQLSinkSettings

from tests.servers.mysql import MySQLServer
from tests.servers.sharing import own_server

SCHEMA = {
    "id": "int64", "host": "string", "command": "string", "seconds": "float64", "ok": "boolean", "at": "timestamp_ntz",
}  # fmt: skip
BATCH_ROWS = 10_000
DATABASE = "headrace_benchmark"


def make_frame(rows: int) -> pl.DataFrame:
    """Return rows of about 120 bytes."""
    begin = dt.datetime(2024, 1, 1)
    return pl.DataFrame(
        {
            "id": range(rows),
            "host": [f"host-{n % 100}.example.org" for n in range(rows)],
            "command": [f"/usr/bin/curl -s 'https://example.org/{n}'" for n in range(rows)],
            "seconds": [n * 0.25 for n in range(rows)],
            "ok": [n % 3 == 0 for n in range(rows)],
            "at": [begin + dt.timedelta(milliseconds=n) for n in range(rows)],
        },
        schema=dict(Schema.of(SCHEMA)),
    )


class FrameSource(Source):
    """One queue that gives a frame in batches."""

    bounded = True

    def __init__(self, frame: pl.DataFrame) -> None:
        self.settings = Settings()
        self._frame = frame

    def schema(self) -> Schema:
        return Schema.of(SCHEMA)

    def queues(self) -> list[Queue]:
        return [Queue("rows")]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        return _FrameReader(self._frame)


class _FrameReader(OffsetReader):
    def __init__(self, frame: pl.DataFrame) -> None:
        super().__init__()
        self._frame = frame

    def poll(self, max_records: int, timeout: dt.timedelta) -> RawBatch | None:
        import numpy as np

        part = self._frame.slice(self._next, max_records)
        if part.height == 0:
            return None
        offsets = np.arange(self._next, self._next + part.height, dtype=np.int64)
        self._next += part.height
        return RawBatch(offsets, self.position, frame=part)

    @property
    def latest(self) -> int:
        return self._frame.height


class Target:
    """The database that is written, and the ways of writing it."""

    def __init__(self, server: MySQLServer, frame: pl.DataFrame) -> None:
        self._server = server
        self._frame = frame
        self._rows = frame.rows()
        self._connection = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password
        )
        self.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        self.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        self._connection.select_db(DATABASE)

    def execute(self, statement: str) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def options(self) -> dict[str, Any]:
        server = self._server
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        return {**place, "database": DATABASE, "table": "t", "batch_size": BATCH_ROWS, "flush_interval": "10 min"}

    def empty(self) -> None:
        self.execute("DROP TABLE IF EXISTS t, headrace_offsets")
        self.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, host VARCHAR(100), command TEXT, seconds DOUBLE, ok BOOLEAN,"
            " at DATETIME(6)) ENGINE = InnoDB"
        )

    def executemany(self) -> None:
        """Write rows that are there as tuples: making them is not counted."""
        statement = "INSERT INTO t (id, host, command, seconds, ok, at) VALUES (%s, %s, %s, %s, %s, %s)"
        for begin in range(0, len(self._rows), BATCH_ROWS):
            with self._connection.cursor() as cursor:
                cursor.executemany(statement, self._rows[begin : begin + BATCH_ROWS])
            self._connection.commit()

    def sink_writer(self) -> None:
        sink = MySQLSink(MySQLSinkSettings.of(self.options()))
        sink.prepare(Schema.of(SCHEMA))
        writer = SinkWriter(sink, "to_mysql", on_dead_letters=_refuse, auto_flush=False)
        header = {
            OFFSET: pl.int_range(0, self._frame.height, dtype=pl.Int64, eager=True),
            INDEX: pl.zeros(self._frame.height, pl.Int32, eager=True),
        }
        frame = self._frame.with_columns(**header)
        for begin in range(0, frame.height, BATCH_ROWS):
            writer.write(Batch(Queue("rows"), frame.slice(begin, BATCH_ROWS)))
        writer.close()

    def light(self) -> None:
        (
            hr.stream("benchmark", "mysql")
            .from_(FrameSource(self._frame))
            .to_mysql(**self.options())
            .run("light", show_progress=False)
        )

    def close(self) -> None:
        self.execute(f"DROP DATABASE {DATABASE}")
        self._connection.close()


def _refuse(batch: Batch) -> None:
    raise AssertionError(f"dead letters: {batch.frame}")


@contextlib.contextmanager
def _server() -> Iterator[MySQLServer]:
    address = os.environ.get(MySQLServer.variable)
    if address:
        yield MySQLServer.from_variable(address)
    else:
        with own_server(MySQLServer) as server:
            yield server


def run(rows: int, rounds: int) -> dict[str, Any]:
    """Return rows per second of each way, and what the sink gets of the bare loop's."""
    seconds: dict[str, list[float]] = {"executemany": [], "sink_writer": [], "light": []}
    with _server() as server:
        target = Target(server, make_frame(rows))
        ways: dict[str, Callable[[], None]] = {name: getattr(target, name) for name in seconds}
        for turn in range(rounds + 1):
            for name, write in ways.items():
                target.empty()
                begun = time.perf_counter()
                write()
                took = time.perf_counter() - begun
                [(count, total)] = target.execute("SELECT COUNT(*), SUM(id) FROM t")
                target._connection.rollback()
                if (count, total) != (rows, rows * (rows - 1) // 2):
                    raise AssertionError(f"{name} stored {count} rows instead of {rows}")
                if turn:  # the first one warms up
                    seconds[name].append(took)
        target.close()
    speed = {name: rows / statistics.median(found) for name, found in seconds.items()}
    return {
        "rows": rows,
        "batch_rows": BATCH_ROWS,
        "rounds": rounds,
        **{f"{name}_rows_per_second": round(value) for name, value in speed.items()},
        "sink_writer_ratio": round(speed["sink_writer"] / speed["executemany"], 2),
        "light_ratio": round(speed["light"] / speed["executemany"], 2),
    }


if __name__ == "__main__":
    quick = "quick" in sys.argv[1:]
    print(json.dumps(run(30_000, 3) if quick else run(300_000, 5)))
