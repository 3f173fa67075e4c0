"""What the tests share: a database as somebody else sees it, batches of known rows, and sinks as a job has them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pymysql
from headrace.flow.messages import INDEX, OFFSET, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.interfaces.sink import SinkBatch
from headrace_mysql import MySQLSink, MySQLSinkSettings, MySQLSource, MySQLSourceSettings

from tests.servers.mysql import MySQLServer


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
        sink.writer_name = "test.job.sink"
        declared = None if schema is None else Schema.of(schema)
        sink.check(declared)
        if prepare:
            sink.prepare(declared)
            sink.open()
        return sink

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


def insert(sink: MySQLSink, made: Batch, after: Position | None = None) -> None:
    """Insert a batch as the writer does."""
    sink.batch_insert(SinkBatch(made.queue, made.frame, after))


class Relay:
    """Passes connections on to the server, until it is cut: an outage that takes no time to begin and end."""

    def __init__(self, server: MySQLServer) -> None:
        self._target = (server.host, server.port)
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.port = 0
        #: When a client says this, the server hears it, but its answer is lost, and the connection with it. Once.
        self.lose_answer_to: bytes | None = None
        self.open()

    def open(self) -> None:
        """Take connections, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def cut(self) -> None:
        """End all connections and take no more. May be called twice."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        _shut(listener)
        self._threads[0].join()  # which accepts: no connection is added any more
        listener.close()
        for end in list(self._ends):
            _shut(end)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._ends.clear()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._ends |= {client, server}
            self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            losing = threading.Event()
            back = threading.Thread(target=_pass_on, args=(server, client, losing.is_set), daemon=True)
            back.start()
            _pass_on(client, server, lambda: False, lambda data: self._heard(data, losing))
            back.join()

    def _heard(self, data: bytes, losing: threading.Event) -> None:
        if self.lose_answer_to is not None and self.lose_answer_to in data:
            self.lose_answer_to = None
            losing.set()


def _pass_on(
    one: socket.socket,
    other: socket.socket,
    losing: Callable[[], bool],
    heard: Callable[[bytes], None] = lambda data: None,
) -> None:
    try:
        while data := one.recv(65536):
            heard(data)
            if losing():
                return
            other.sendall(data)
    except OSError:
        pass  # cut, which is what this is for
    finally:
        _shut(one)
        _shut(other)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed already
