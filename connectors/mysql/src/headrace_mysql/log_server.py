"""What the server says of its binary log: whether it can be read, where it ends, and a position that a snapshot can begin with."""

from __future__ import annotations

import re
import threading
from typing import Any

from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError, RetriableError

from headrace_mysql.binlog.positions import FilePosition, LogPosition, MariaDBPosition, MySQLPosition
from headrace_mysql.connection import is_mariadb, translating
from headrace_mysql.settings import MySQLChangesSettings

#: MySQL tells the end of its log by file before the last transactions in it are visible.
_VISIBLE_SECONDS = 1.0
_VARIABLES = ("log_bin", "binlog_format", "binlog_row_image", "gtid_mode")


class LogServer:
    """Asks a server about its log, on one connection that the caller closes."""

    def __init__(self, connection: Any, settings: MySQLChangesSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._mariadb = is_mariadb(connection)

    def check(self) -> None:
        """Raise JobError unless the log has all that is needed."""
        names = ", ".join(f"'{name}'" for name in _VARIABLES)
        found = {
            str(name).lower(): str(value).upper()
            for name, value in self._query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        }
        settings = self._settings
        where = f"MySQL at {settings.host}:{settings.port}"
        if found.get("log_bin") not in ("ON", "1"):
            raise JobError(
                f"{where} writes no binary log", plugin="mysql_changes", option="host",
                hint="set log_bin in the server's configuration and start it again",
            )  # fmt: skip
        for name, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL")):
            if found.get(name, wanted) != wanted:
                raise JobError(
                    f"{where} has {name}={found[name]}, so the log does not contain what this source needs", plugin="mysql_changes",
                    option="host", hint=f"SET GLOBAL {name} = {wanted}, and set it in the server's configuration; connected clients keep "
                                        "the old value until they reconnect",
                )  # fmt: skip
        if settings.positions == "gtid" and not self._mariadb and found.get("gtid_mode") != "ON":
            raise JobError(
                f"{where} has gtid_mode={found.get('gtid_mode')}", plugin="mysql_changes", option="positions",
                hint="switch GTIDs on, or use positions='file'",
            )  # fmt: skip

    def end(self) -> LogPosition:
        """Return where the log ends now. What is visible to a query that was made before is before it."""
        if self._by_file():
            return self._file_end()
        if self._mariadb:
            [(text,)] = self._query("SELECT @@global.gtid_binlog_pos")
            return MariaDBPosition.parse(text)
        [(text,)] = self._query("SELECT @@global.gtid_executed")
        return MySQLPosition.parse(text)

    def visible(self, clock: Clock) -> LogPosition:
        """Return a position of the log such that all transactions before it are visible to queries from now on.

        The end of the log is none: a transaction is in the log before others see its rows. MariaDB tells the position that fits to
        a transaction with a consistent snapshot.
        """
        if self._mariadb:
            with translating(self._settings), self._connection.cursor() as cursor:
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                found = {name.lower(): value for name, value in cursor.fetchall()}
                cursor.execute("ROLLBACK")
            file, place = found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
            if self._by_file():
                return FilePosition(file, place, self.server_id())
            [(text,)] = self._query("SELECT BINLOG_GTID_POS(%s, %s)", (file, place))
            if text is None:  # an empty position would be the beginning of the log
                raise RetriableError(
                    f"MySQL at {self._settings.host}:{self._settings.port} does not know the GTIDs at {file}:{place}: the file was "
                    "removed a moment ago",
                    plugin="mysql_changes",
                )
            return MariaDBPosition.parse(text)
        if not self._by_file():
            return self.end()  # MySQL adds a GTID when its transaction is visible
        position = self.end()
        clock.wait(threading.Event(), _VISIBLE_SECONDS)
        return position

    def server_id(self) -> int:
        """Return the number that the server has among those that replicate each other."""
        return int(self._query("SELECT @@global.server_id")[0][0])

    def earliest_file(self) -> str:
        """Return the oldest file of the log that the server has, for messages; empty if the user may not ask."""
        try:
            found = self._query("SHOW BINARY LOGS")
        except JobError:
            return ""
        return str(found[0][0]) if found else ""

    def _by_file(self) -> bool:
        if self._settings.positions is not None:
            return self._settings.positions == "file"
        if self._mariadb:
            return False
        [(mode,)] = self._query("SELECT @@global.gtid_mode")
        return str(mode).upper() != "ON"

    def _file_end(self) -> FilePosition:
        statement = "SHOW MASTER STATUS"
        version = re.match(r"(\d+)\.(\d+)", self._connection.get_server_info())
        if not self._mariadb and version is not None and (int(version[1]), int(version[2])) >= (8, 4):
            statement = "SHOW BINARY LOG STATUS"
        file, place, *_ = self._query(statement)[0]
        return FilePosition(str(file), int(place), self.server_id())

    def _query(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with translating(self._settings), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())
