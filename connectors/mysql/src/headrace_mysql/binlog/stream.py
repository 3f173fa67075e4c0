"""The stream of the binary log from the server: asking for it, and taking the bytes that came.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html and
https://mariadb.com/kb/en/replication-protocol/
"""

from __future__ import annotations

import random
import re
import ssl
import struct
import uuid
from typing import Any

import pymysql
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.foundation.sockets import wait_until_readable
from pymysql.constants import COMMAND

from headrace_mysql.binlog.positions import FilePosition, LogPosition, MariaDBPosition, MySQLPosition, check_server
from headrace_mysql.connection import connect, translating
from headrace_mysql.settings import MySQLChangesSettings

#: The server says that it is there when the log stands still.
HEARTBEAT_SECONDS = 5
#: Nothing for so long: the connection is lost.
SILENCE_SECONDS = 30
_RECEIVE_BYTES = 1 << 18
#: How long the server waits for a client that takes nothing, as its sink is slow. By default that is a minute.
_WRITE_SECONDS = 3600
#: "Use GTID events": https://mariadb.com/kb/en/5-slave-registration/
_MARIADB_CAPABILITY = 4
#: The server cannot give the log: error 1236, "fatal error reading from the log".
_NO_LOG = 1236
_COM_BINLOG_DUMP_GTID = 0x1E


class LogStream:
    """A connection on which the server sends the log from a position on. Made by ``open_stream``."""

    def __init__(self, connection: Any, settings: MySQLChangesSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._socket = connection._sock
        self._socket.setblocking(False)

    def receive(self, buffer: bytearray, bytes_max: int, wait_seconds: float) -> int:
        """Add the bytes that are there to a buffer, about ``bytes_max`` at most; wait for the first ones. Return their number.

        Raises RetriableError when the connection is lost.
        """
        before = len(buffer)
        try:
            while len(buffer) - before < bytes_max:
                try:
                    part = self._socket.recv(_RECEIVE_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError):
                    if len(buffer) > before or wait_seconds <= 0:
                        break
                    wait_until_readable(self._socket, wait_seconds)
                    wait_seconds = 0
                    continue
                if not part:
                    if len(buffer) > before:
                        break  # the next call finds the end again
                    raise OSError("the server closed the connection")
                buffer += part
        except OSError as error:
            raise RetriableError(
                f"MySQL at {self._settings.host}:{self._settings.port}: the connection that reads the binary log was interrupted: {error}",
                plugin="mysql",
            ) from error
        return len(buffer) - before

    def close(self) -> None:
        """End the connection at once. The server notices it when it sends."""
        self._connection._force_close()


def open_stream(settings: MySQLChangesSettings, position: LogPosition) -> tuple[LogStream, bool]:
    """Ask the server for the log from a position on; return the stream, and whether events have a checksum.

    Raises JobError, DataError for a position by file of another server, or RetriableError when the server is away. That the server does
    not have the position any more comes as the first packet: see ``refusal``.
    """
    server_id = settings.chosen_server_id(random.SystemRandom())
    connection = connect(settings, autocommit=True)
    try:
        with translating(settings), connection.cursor() as cursor:
            cursor.execute("SELECT @@global.binlog_checksum, @@global.server_id")
            [(checksum, server)] = cursor.fetchall()
            # Also when a connection is made again: it may lead to another server than before.
            check_server(position, int(server))
            period = HEARTBEAT_SECONDS * 10**9
            cursor.execute(
                f"SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum,"
                f" @master_heartbeat_period = {period}, @source_heartbeat_period = {period}, @slave_uuid = '{uuid.uuid4()}',"
                f" SESSION net_write_timeout = {_WRITE_SECONDS}"
            )
            if isinstance(position, MariaDBPosition):
                cursor.execute(
                    "SET @mariadb_slave_capability = %s, @slave_connect_state = %s, @slave_gtid_strict_mode = 0,"
                    " @slave_gtid_ignore_duplicates = 0",
                    (_MARIADB_CAPABILITY, str(position)),
                )
            elif isinstance(position, FilePosition):
                cursor.execute("SET @mariadb_slave_capability = %s", (_MARIADB_CAPABILITY,))
        with translating(settings):
            if isinstance(position, MySQLPosition):
                connection._execute_command(_COM_BINLOG_DUMP_GTID, _dump_by_gtids(position, server_id))
            else:
                connection._execute_command(COMMAND.COM_BINLOG_DUMP, _dump(position, server_id))
        return LogStream(connection, settings), str(checksum).upper() not in ("NONE", "0")
    except BaseException:
        connection._force_close()
        raise


def _dump(position: LogPosition, server_id: int) -> bytes:
    file, place = ("", 4) if not isinstance(position, FilePosition) else (position.file, position.place)
    return struct.pack("<IHI", place, 0, server_id) + file.encode()


def _dump_by_gtids(position: MySQLPosition, server_id: int) -> bytes:
    through_gtid = 4
    sets = struct.pack("<Q", len(position.sources))
    for source, intervals in position.sources.items():
        sets += uuid.UUID(source).bytes + struct.pack("<Q", len(intervals))
        for first, last in intervals:
            sets += struct.pack("<QQ", first, last + 1)
    return struct.pack("<HIIQI", through_gtid, server_id, 0, 4, len(sets)) + sets


def refusal(packet: bytes, position: LogPosition, settings: MySQLChangesSettings, queue: str, offset: int) -> Exception:
    """Return the error for an error packet in the stream: the server's message, and how to continue."""
    error = pymysql.err.OperationalError
    code, text = struct.unpack_from("<H", packet, 1)[0], packet[3:].decode("utf-8", "replace")
    text = re.sub(r"\A#\w{5}", "", text)  # the SQL state, which says less than the code
    lowered = text.lower()
    where = f"MySQL at {settings.host}:{settings.port}"
    if "same server_uuid/server_id" in lowered or "same server_id" in lowered:
        return JobError(
            f"{where}: another client reads the binary log with the same server id: {text}",
            plugin="mysql",
            option="server_id",
            queue=queue,
            hint="leave server_id out, so that one is chosen at random, or give each job a number, or a range, of its own",
        )
    if code == _NO_LOG:
        return DataError(
            f"{where}: the server does not have the binary log from {position} on: {text.strip()}. It was purged, or this is another "
            "server",
            plugin="mysql",
            queue=queue,
            offset=offset,
            hint="the changes since then are lost for this job: start with a new checkpoint (the job reads the whole table again), and let "
            "the server keep its log longer (binlog_expire_logs_seconds, expire_logs_days)",
        )
    from headrace_mysql.connection import translated

    return translated(error(code, text), settings)
