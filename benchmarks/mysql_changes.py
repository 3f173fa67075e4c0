"""Row changes per second of CPU out of MariaDB's binary log: the reader, a whole job, and the library mysql-replication.

    python -m benchmarks.mysql_changes [quick]

A server is started, and 200,000 rows are inserted in statements of 1,000, 100,000 of them changed by one statement, and 20,000 changed one
by one. The job reads all of it from the log, from before the first change, filters, and writes files. mysql-replication is measured if it
is installed; it gives rows as dicts, and is given up after 20 s.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pymysql
from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.source import LATEST, Reader, StartPosition
from headrace_mysql import MySQLChangesSettings, MySQLChangesSource

from benchmarks.following_changes import seconds_of_job, seconds_of_reader
from tests.servers.mysql import MySQLOptions, MySQLServer
from tests.servers.sharing import own_server

DATABASE = "headrace_benchmark"
_COLUMNS = (
    "id BIGINT PRIMARY KEY, customer INT, name VARCHAR(40), amount DECIMAL(12,2), price DOUBLE, created DATETIME(6),"
    " note VARCHAR(100)"
)
_LIBRARY_SECONDS = 20.0


class _From(MySQLChangesSource):
    """Begins where it is told."""

    begin: ReadPosition

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        return super().open(queue, start if isinstance(start, ReadPosition) else self.begin)


def write(cursor: Any, rows: int) -> int:
    """Write the rows and their changes; return how many changes of rows these are."""
    for first in range(0, rows, 1000):
        values = ", ".join(
            f"({n}, {n % 1000}, 'name {n}', {n % 10000}.25, {n} * 0.5, '2024-01-01 00:00:00.{n % 1000000:06d}', 'some note of row {n}')"
            for n in range(first, first + 1000)
        )
        cursor.execute(f"INSERT INTO orders VALUES {values}")  # noqa: S608
    changed = cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id < %s", (rows // 2,))
    single = rows // 10
    for n in range(single):
        cursor.execute("UPDATE orders SET price = price + 1, note = 'changed' WHERE id = %s", (n * 7919 % rows,))
    return rows + int(changed) + single


def by_reader(source: MySQLChangesSource) -> float:
    """Return the seconds of CPU for the reader alone."""
    [queue] = source.queues()
    reader = source.open(queue, LATEST)
    reader.seek(source.begin)  # type: ignore[attr-defined]
    return seconds_of_reader(reader)


def by_library(server: MySQLServer, file: str, place: int) -> float | None:
    """Return the row changes per second of CPU of mysql-replication, or None where it is not installed."""
    try:
        from pymysqlreplication import BinLogStreamReader  # type: ignore[import-not-found]
        from pymysqlreplication.row_event import (  # type: ignore[import-not-found]
            DeleteRowsEvent,
            UpdateRowsEvent,
            WriteRowsEvent,
        )
    except ImportError:
        return None
    login = {"host": server.host, "port": server.port, "user": server.user, "passwd": server.password}
    stream = BinLogStreamReader(
        connection_settings=login, server_id=77, is_mariadb=True, log_file=file, log_pos=place, blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent], only_schemas=[DATABASE],
    )  # fmt: skip
    count, begun = 0, time.process_time()
    for event in stream:
        count += len(event.rows)
        if time.process_time() - begun > _LIBRARY_SECONDS:
            break
    return count / (time.process_time() - begun)


def main(rows: int) -> None:
    """Measure and print."""
    config = {"log-bin": "binlog", "binlog-format": "ROW", "server-id": "1"}
    with own_server(MySQLServer, MySQLOptions(config=config)) as server:
        login: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
        }
        connection = pymysql.connect(**login, autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"USE {DATABASE}")
            cursor.execute(f"CREATE TABLE orders ({_COLUMNS}) ENGINE = InnoDB")
            cursor.execute("SHOW MASTER STATUS")
            file, place, *_ = cursor.fetchone() or ("", 4)
            settings = MySQLChangesSettings.of(
                {**login, "database": DATABASE, "table": "orders"}, plugin="mysql_changes"
            )
            source = _From(settings)
            [queue] = source.queues()
            reader = MySQLChangesSource(settings).open(queue, LATEST)
            source.begin = reader.position
            reader.close()
            changes = write(cursor, rows)
        print(f"{changes:,} row changes")
        for name, seconds in (("the reader", by_reader(source)), ("a job on light", seconds_of_job(source))):
            print(f"{name}: {changes / seconds:,.0f} row changes per second of CPU")
        found = by_library(server, file, place)
        print("mysql-replication is not installed" if found is None else f"mysql-replication: {found:,.0f}")


if __name__ == "__main__":
    main(20_000 if "quick" in sys.argv else 200_000)
