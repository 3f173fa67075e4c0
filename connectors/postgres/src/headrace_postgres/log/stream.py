"""The stream of a replication slot: its messages, and the client's confirmations to the server.

Source: https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import struct
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
from headrace.foundation.clock import Clock
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.foundation.sockets import wait_until_readable, wait_until_writable
from psycopg.pq import ExecStatus

from headrace_postgres.connection import connect, literal, quoted, translated, translating
from headrace_postgres.log.places import lsn_of, lsn_text
from headrace_postgres.settings import PostgresChangesSettings

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_STATUS = struct.Struct("!cQQQqB")
_NUMBER = struct.Struct("!Q")
_DATA, _ALIVE = ord("w"), ord("k")
#: The header of a message in a block of data: a letter, two LSNs and a time.
_HEADER_BYTES = 25
_IN_USE, _NOT_THERE = "55006", "42704"
#: How often an idle server is asked how far it is.
_LOOK_SECONDS = 0.1
#: A server ends a connection from which it gets no message for wal_sender_timeout (1 min).
_TELL_SECONDS = 5.0
#: How long to wait for a slot that is still in use.
_FREE_SECONDS = 3.0


class SlotStream:
    """A connection on which the server sends the changes of a slot from an LSN on. Made by ``open_stream``."""

    def __init__(
        self, connection: psycopg.Connection[Any], settings: PostgresChangesSettings, lsn: int, clock: Clock
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        #: The server has sent everything before it.
        self.sent = lsn
        self._confirmed = 0
        self._asked = False
        self._asked_at = float("-inf")
        self._told_at = clock.monotonic()
        #: How many keep-alive messages the server has sent.
        self.alive = 0

    def receive(self, buffer: bytearray, begins: list[int], bytes_max: int, wait_seconds: float) -> None:
        """Add the messages that have arrived, of about ``bytes_max`` bytes, and where each begins; wait for the first
        one.

        Raises RetriableError when the connection is lost.
        """
        take, before = self._pg.get_copy_data, self.sent
        deadline = self._clock.monotonic() + wait_seconds
        try:
            while len(buffer) < bytes_max:
                count, data = take(1)
                if count == 0:
                    self._pg.consume_input()
                    count, data = take(1)
                if count > 0:
                    kind = data[0]
                    if kind == _DATA:
                        begins.append(len(buffer))
                        buffer += data[_HEADER_BYTES:]
                    elif kind == _ALIVE:
                        # It ends the received messages: those before it are from before its LSN.
                        self._take_alive(bytes(data))
                        if begins:
                            break
                elif count == 0:
                    left = deadline - self._clock.monotonic()
                    self._ask()
                    if begins or left <= 0 or self.sent > before:
                        break
                    wait_until_readable(self._pg.socket, min(left, _LOOK_SECONDS))
                else:
                    self._ended()
        except (psycopg.Error, OSError) as error:
            raise translated(error, self._settings) from error

    def _take_alive(self, data: bytes) -> None:
        self.sent = max(self.sent, _NUMBER.unpack_from(data, 1)[0])
        self._asked = False
        self.alive += 1
        if data[17]:
            self._tell(reply=False)

    def _ask(self) -> None:
        """Let the server say how far it is, unless it was asked already."""
        now = self._clock.monotonic()
        if not self._asked and now - self._asked_at >= _LOOK_SECONDS:
            self._asked, self._asked_at = True, now
            self._tell(reply=True)

    def keep_alive(self) -> None:
        """Send a status message to the server, unless one was sent a moment ago. Raises RetriableError if the
        connection is lost.
        """
        if self._clock.monotonic() - self._told_at >= _TELL_SECONDS:
            with translating(self._settings):
                self._tell(reply=False)

    def confirm(self, lsn: int) -> None:
        """Tell the server that nothing before an LSN is needed any more. Raises RetriableError when the connection is lost."""
        if lsn <= self._confirmed:
            return
        self._confirmed = lsn
        with translating(self._settings):
            self._tell(reply=False)

    def _tell(self, *, reply: bool) -> None:
        micros = int((datetime.now(UTC) - _EPOCH).total_seconds() * 1e6)
        # Only what is confirmed: the server keeps the log from there on. An LSN of 0 confirms nothing.
        at, self._told_at = self._confirmed, self._clock.monotonic()
        self._pg.put_copy_data(_STATUS.pack(b"r", at, at, at, micros, int(reply)))
        while self._pg.flush():
            wait_until_writable(self._pg.socket, 1)

    def _ended(self) -> None:
        result = self._pg.get_result()
        text = b"" if result is None else result.error_message
        problem = (
            f"PostgreSQL at {self._settings.host}:{self._settings.port}: the stream of the slot ended: "
            f"{' '.join(text.decode('utf-8', 'replace').split()) or 'the server closed the connection'}"
        )
        if result is not None and _state(result) == _NOT_THERE:
            # The log is decoded with the catalog of its time: a publication that was created again did not exist then.
            raise JobError(
                problem, plugin="postgres_changes", option="publication",
                hint="the changes since the publication was dropped are not in the log: empty the target and start with a new checkpoint",
            )  # fmt: skip
        raise RetriableError(problem, plugin="postgres_changes")

    def close(self) -> None:
        """End the connection at once. The server frees the slot when it notices."""
        self._pg.finish()


def open_stream(settings: PostgresChangesSettings, slot: str, publication: str, lsn: int, clock: Clock) -> SlotStream:
    """Ask the server for the changes of a slot from an LSN on.

    Raises DataError when the slot does not have the log from there on, RetriableError when another process reads the slot.
    """
    connection = connect(settings, autocommit=True, replication=True)
    try:
        options = f"proto_version '1', publication_names {literal(quoted(publication)).removeprefix('E')}"
        command = f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} ({options})"
        result = connection.pgconn.exec_(command.encode())
        deadline = clock.monotonic() + _FREE_SECONDS
        while _state(result) == _IN_USE and clock.monotonic() < deadline:
            # The server has not noticed yet that a connection has ended.
            clock.wait(threading.Event(), _LOOK_SECONDS)
            result = connection.pgconn.exec_(command.encode())
        if result.status != ExecStatus.COPY_BOTH:
            text = " ".join(result.error_message.decode("utf-8", "replace").split())
            raise _refused(settings, slot, text, _state(result))
        return SlotStream(connection, settings, lsn, clock)
    except BaseException:
        connection.pgconn.finish()
        raise


def _state(result: Any) -> str:
    return (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()


def _refused(settings: PostgresChangesSettings, slot: str, text: str, state: str) -> HeadraceError:
    where = f"PostgreSQL at {settings.host}:{settings.port}, slot {slot!r}: {text}"
    if state == _IN_USE:
        return RetriableError(where, plugin="postgres_changes", hint="give each job its own slot: slot='…'")
    if state in (_NOT_THERE, "55000"):
        return slot_is_gone(settings, slot, text)
    if state[:2] in ("08", "53", "57"):
        return RetriableError(where, plugin="postgres_changes")
    return JobError(where, plugin="postgres_changes", option="slot")


def slot_is_gone(settings: PostgresChangesSettings, slot: str, why: str) -> DataError:
    """Return the error for a slot that does not have the log that a position needs."""
    return DataError(
        f"PostgreSQL at {settings.host}:{settings.port}, slot {slot!r}: {why}. The changes since the checkpoint are lost for this job",
        plugin="postgres_changes",
        hint="empty the target and start with a new checkpoint: the job reads the whole table again",
    )


__all__ = ["SlotStream", "lsn_of", "open_stream", "slot_is_gone"]
