"""Goes through the events of the binary log and finds the rows of one table, and the ends of transactions.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html and
https://mariadb.com/kb/en/replication-protocol/
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.flow.messages import ChangeKind
from headrace.foundation.errors import DataError, HeadraceError, JobError

from headrace_mysql.binlog.layout import TableMap, table_map_of
from headrace_mysql.binlog.positions import (
    ROWS_PER_TRANSACTION,
    End,
    FilePosition,
    LogPosition,
    MariaDBPosition,
    MySQLPosition,
)

_QUERY, _ROTATE, _FORMAT, _XID, _TABLE_MAP, _INCIDENT = 2, 4, 15, 16, 19, 26
_MYSQL_GTID, _ANONYMOUS_GTID, _XA_PREPARE, _PARTIAL_UPDATE, _PAYLOAD, _TAGGED_GTID = 33, 34, 38, 39, 40, 42
_MARIADB_GTID, _START_ENCRYPTION, _QUERY_COMPRESSED = 162, 164, 165
#: (kind of change, whether the event has the extra header of version 2, whether rows are compressed), by type of event.
_ROWS: Mapping[int, tuple[int, bool, bool]] = {
    23: (ChangeKind.INSERT, False, False), 24: (ChangeKind.UPDATE_AFTER, False, False),
    25: (ChangeKind.DELETE, False, False), 30: (ChangeKind.INSERT, True, False),
    31: (ChangeKind.UPDATE_AFTER, True, False), 32: (ChangeKind.DELETE, True, False),
    166: (ChangeKind.INSERT, False, True), 167: (ChangeKind.UPDATE_AFTER, False, True),
    168: (ChangeKind.DELETE, False, True), 169: (ChangeKind.INSERT, True, True),
    170: (ChangeKind.UPDATE_AFTER, True, True), 171: (ChangeKind.DELETE, True, True),
}  # fmt: skip
_PACKET = struct.Struct("<I")
#: The byte 0 of the packet, and the header of an event: time, type, server, size, end position, flags.
_EVENT = struct.Struct("<BIBIIIH")
_LENGTH_MAX = 0xFFFFFF
_CHECKSUM_BYTES = 4
_STANDALONE = 1
#: Places of rows that were unpacked are this much too small.
_UNPACKED = 1 << 40
_MARIADB_XA = 64 | 128
#: The first word of a statement, behind comments. ``/*!`` is none: the server carries out what follows.
_STATEMENT = re.compile(r"\s*+(?:(?:/\*M?!\d*+|(?>/\*.*?\*/)|--\s[^\n]*+|#[^\n]*+)\s*+)*+(\w+)", re.DOTALL)
#: Statements that change rows; one that begins with WITH is in the log only if it does.
_ROW_STATEMENTS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"}


@dataclass(slots=True)
class Scanned:
    """What was found in a part of the log. One entry per event with rows of the table, and one per transaction that ended."""

    kinds: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    #: How many transactions had ended before.
    after: list[int] = field(default_factory=list)
    #: Which of ``maps`` the event has.
    map_numbers: list[int] = field(default_factory=list)
    maps: list[tuple[TableMap, Any]] = field(default_factory=list)
    #: Rows that were compressed, unpacked.
    unpacked: bytearray = field(default_factory=bytearray)
    ends: list[End] = field(default_factory=list)
    #: The ordinal after each transaction.
    ordinals: list[int] = field(default_factory=list)
    #: Raised once what stands before it was given.
    error: HeadraceError | None = None


class Scanner:
    """Scans packets of the stream, in their order. Made for one position; for another one make a new scanner.

    ``on_statement(database, text)`` is called for each statement in the log that is neither a transaction's border nor a change of rows,
    and returns the value that is kept with the rows after it (the table's columns). It raises JobError if the stream cannot continue.
    """

    def __init__(
        self,
        database: str,
        table: str,
        position: LogPosition,
        checksums: bool,
        state: Any,
        on_statement: Callable[[str, str, Any], Any],
    ) -> None:
        self._place = (database, table)
        self._checksum_bytes = _CHECKSUM_BYTES if checksums else 0
        self._maps: dict[bytes, TableMap | None] = {}
        self._tables: dict[int, TableMap | None] = {}
        self._on_statement = on_statement
        #: What ``on_statement`` returned last.
        self.state = state
        self.position = position
        self._ordinal = position.ordinal
        self._log = position
        self._file = position.file if isinstance(position, FilePosition) else ""
        self._numbers = (
            {domain: number for domain, (_, number) in position.domains.items()}
            if isinstance(position, MariaDBPosition)
            else {}
        )
        #: The GTID of the transaction that is open; None between two.
        self._open: End | None = None
        #: Whether it lasts until a commit; otherwise it consists of the next statement only.
        self._begun = False
        self._xa = False
        self.in_transaction_with_rows = False
        self._found = Scanned()

    # ---------------------------------------------------------------------------------------------------- packets

    def scan(self, buffer: bytearray) -> tuple[Scanned, int, bytes | None]:
        """Go through the whole packets in a buffer.

        Return the packets that were found, where the first incomplete packet begins, and an error packet of the server if there is one. The
        places in the result are places in the buffer, to which packets of rows may have been joined and unpacked ones added.
        """
        self._found = found = Scanned()
        place, whole = 0, len(buffer)
        refused = None
        try:
            while place + 4 <= whole:
                length = _PACKET.unpack_from(buffer, place)[0] & _LENGTH_MAX
                end = place + 4 + length
                if length == _LENGTH_MAX:
                    joined = _joined(buffer, place)
                    if joined is None:
                        break
                    end, whole = joined, len(buffer)
                if end > whole:
                    break
                if buffer[place + 4]:
                    refused = bytes(buffer[place + 4 : end])
                    break
                self._event(buffer, place + 4, end)
                place = end
        except HeadraceError as error:
            found.error = error
        self.position = self.position.after(found.ends)
        if found.unpacked:
            for places in (found.begins, found.stops):
                places[:] = [at if at >= 0 else at + _UNPACKED + place for at in places]
        return found, place, refused

    def _event(self, buffer: bytearray, begin: int, end: int) -> None:
        _, _, kind, server, _, log_place, _ = _EVENT.unpack_from(buffer, begin)
        body, end = begin + _EVENT.size, end - self._checksum_bytes
        rows = _ROWS.get(kind)
        if rows is not None:
            table = self._tables.get(int.from_bytes(buffer[body : body + 6], "little"))
            if table is not None:
                self._verify(buffer, begin, end)
                self._rows(buffer, body, end, rows, table)
        elif kind == _TABLE_MAP:
            self._verify(buffer, begin, end)
            payload = bytes(buffer[body + 8 : end])
            if payload not in self._maps:
                self._maps[payload] = self._own(payload)
            self._tables[int.from_bytes(buffer[body : body + 6], "little")] = self._maps[payload]
        elif kind == _MARIADB_GTID:
            number, domain, flags = struct.unpack_from("<QIB", buffer, body)
            self._begin((domain, server, number), not flags & _STANDALONE, bool(flags & _MARIADB_XA))
        elif kind == _XID:
            self._end(log_place)
        elif kind in (_QUERY, _QUERY_COMPRESSED):
            self._verify(buffer, begin, end)
            self._query(bytes(buffer[body:end]), kind == _QUERY_COMPRESSED, log_place)
        elif kind == _MYSQL_GTID:
            source = buffer[body + 1 : body + 17].hex()
            text = f"{source[:8]}-{source[8:12]}-{source[12:16]}-{source[16:20]}-{source[20:]}"
            self._begin((text, struct.unpack_from("<q", buffer, body + 17)[0]), False, False)
        elif kind == _ANONYMOUS_GTID:
            self._begin((), False, False)
        else:
            self._other(kind, buffer, body, end, log_place)

    def _other(self, kind: int, buffer: bytearray, body: int, end: int, log_place: int) -> None:
        if kind == _ROTATE:
            file = bytes(buffer[body + 8 : end]).decode()
            # The first one, before any event, may lack its checksum.
            known = isinstance(self._log, FilePosition) and file.startswith(self._log.file) and not self._found.ends
            self._rotate(self._log.file if known else file, struct.unpack_from("<Q", buffer, body)[0])  # type: ignore[attr-defined]
            return
        if kind == _FORMAT:
            self._tables.clear()
        elif kind == _XA_PREPARE:
            self._end(log_place)
        elif kind == _INCIDENT:
            raise DataError(f"the server lost events of its log after {self._log}", plugin="mysql")
        elif kind == _TAGGED_GTID:
            raise JobError("the binary log has tagged GTIDs, which cannot be read", plugin="mysql")
        elif kind == _PAYLOAD:
            raise JobError(
                "the binary log has compressed transactions, which cannot be read", plugin="mysql",
                hint="SET GLOBAL binlog_transaction_compression = OFF on the server, and start with a new checkpoint",
            )  # fmt: skip
        elif kind == _PARTIAL_UPDATE:
            table = self._tables.get(int.from_bytes(buffer[body : body + 6], "little"))
            if table is not None:
                raise JobError(
                    "the binary log has parts of JSON values only", plugin="mysql",
                    hint="SET GLOBAL binlog_row_value_options = '' on the server, and start with a new checkpoint",
                )  # fmt: skip

        self._pass(log_place)

    def _pass(self, log_place: int) -> None:
        """Move a file position behind an event that belongs to no transaction: else the end of the log would not be reached."""
        if isinstance(self._log, FilePosition) and self._open is None and log_place > self._ordinal_place():
            self._open = ()
            self._end(log_place)

    def _ordinal_place(self) -> int:
        return self._ordinal - FilePosition(self._file, 0).ordinal

    def _verify(self, buffer: bytearray, begin: int, end: int) -> None:
        if self._checksum_bytes:
            with memoryview(buffer) as view:
                found = zlib.crc32(view[begin + 1 : end])
            if found != _PACKET.unpack_from(buffer, end)[0]:
                raise DataError(f"an event after {self._log} has a wrong checksum", plugin="mysql")

    # ------------------------------------------------------------------------------------------------- transactions

    def _begin(self, gtid: End, begun: bool, xa: bool) -> None:
        if self._open is not None:
            raise DataError(f"the log begins a transaction inside another one, {self._open}", plugin="mysql")
        self._open, self._begun, self._xa = gtid, begun, xa
        self.in_transaction_with_rows = False

    def _end(self, log_place: int) -> None:
        gtid, self._open = self._open, None
        if gtid is None:
            return
        if isinstance(self._log, MariaDBPosition):
            domain, _, number = gtid
            before = self._numbers.get(domain, 0)
            if number <= before:
                raise DataError(
                    f"the GTIDs of domain {domain} do not increase in the log: {number} comes after {before}", plugin="mysql",
                    hint="set gtid_strict_mode=ON on the server, or read with positions='file'",
                )  # fmt: skip
            self._numbers[domain] = number
            self._ordinal += (number - before) * ROWS_PER_TRANSACTION
        elif isinstance(self._log, MySQLPosition):
            self._ordinal += ROWS_PER_TRANSACTION
        else:
            gtid = (self._file, log_place)
            if FilePosition(*gtid).ordinal < self._ordinal:
                # An event has 32 bits for its place. A file becomes so large by one very large transaction.
                raise DataError(
                    f"places in the file {self._file} of the binary log do not increase: {log_place} comes after "
                    f"{self._ordinal_place()}; the file has more than 4 GiB", plugin="mysql",
                    hint="read with positions='gtid', and start with a new checkpoint",
                )  # fmt: skip
            self._ordinal = FilePosition(*gtid).ordinal
        self._found.ends.append(gtid)
        self._found.ordinals.append(self._ordinal)
        self.in_transaction_with_rows = False

    def _rotate(self, file: str, place: int) -> None:
        if isinstance(self._log, FilePosition) and FilePosition(file, place).ordinal > self._ordinal:
            self._found.ends.append((file, place))
            self._ordinal = FilePosition(file, place).ordinal
            self._found.ordinals.append(self._ordinal)
        self._file = file

    # --------------------------------------------------------------------------------------------- rows and statements

    def _own(self, payload: bytes) -> TableMap | None:
        """Return a table map if it is of the table that is read."""
        at = 1 + payload[0]
        names = (payload[1:at].decode(), payload[at + 2 : at + 2 + payload[at + 1]].decode())
        return table_map_of(payload) if names == self._place else None

    def _rows(self, buffer: bytearray, body: int, end: int, how: tuple[int, bool, bool], table: TableMap) -> None:
        kind, extra, compressed = how
        if self._xa:
            raise JobError(
                f"an XA transaction changes table {'.'.join(self._place)}; such transactions cannot be read",
                plugin="mysql",
            )
        at = body + 8
        if extra:
            at += int.from_bytes(buffer[at : at + 2], "little")
        count = len(table.columns)
        # The number of columns, less than 251 in one byte, else in three: a table has at most 4,096.
        at += 1 if buffer[at] < 251 else 3
        size = (count + 7) // 8
        images = 2 if kind == ChangeKind.UPDATE_AFTER else 1
        for _ in range(images):
            if int.from_bytes(buffer[at : at + size], "little") & (1 << count) - 1 != (1 << count) - 1:
                raise JobError(
                    f"rows of table {'.'.join(self._place)} lack columns in the binary log", plugin="mysql",
                    hint="SET GLOBAL binlog_row_image = FULL on the server, let all clients reconnect, and start with a new "
                    "checkpoint",
                )  # fmt: skip
            at += size
        found = self._found
        if compressed:
            # They lie behind the packets: their places are told from the end of the packets, less than 0.
            rows = _inflated(buffer[at:end])
            at = len(found.unpacked) - _UNPACKED
            found.unpacked += rows
            end = at + len(rows)
        key = (table, self.state)
        if not found.maps or found.maps[-1][0] is not table or found.maps[-1][1] is not self.state:
            found.maps.append(key)
        found.kinds.append(kind)
        found.begins.append(at)
        found.stops.append(end)
        found.after.append(len(found.ends))
        found.map_numbers.append(len(found.maps) - 1)
        self.in_transaction_with_rows = True

    def _query(self, payload: bytes, compressed: bool, log_place: int) -> None:
        name_bytes, _, status_bytes = struct.unpack_from("<BHH", payload, 8)
        at = 13 + status_bytes
        database = payload[at : at + name_bytes].decode("utf-8", "replace")
        text = payload[at + name_bytes + 1 :]
        statement = (_inflated(text) if compressed else text).decode("utf-8", "replace")
        found = _STATEMENT.match(statement)
        word = "" if found is None else found[1].upper()
        if word == "BEGIN":
            self._begun = True
            return
        if word == "XA":
            self._xa_statement(statement, log_place)
            return
        if word == "SAVEPOINT":
            return
        if word == "ROLLBACK" and " TO " in statement.upper():
            return
        if word in ("COMMIT", "ROLLBACK"):
            if word == "ROLLBACK" and self.in_transaction_with_rows:
                raise DataError("a transaction with rows of the table was rolled back in the log", plugin="mysql")
            self._end(log_place)
            return
        if word in _ROW_STATEMENTS and self._place[1].casefold() in statement.casefold().replace("``", "`"):
            raise JobError(
                f"the binary log has a statement instead of rows: {statement[:200]}", plugin="mysql",
                hint="SET GLOBAL binlog_format = ROW on the server, let all clients reconnect, and start with a new checkpoint",
            )  # fmt: skip
        self.state = self._on_statement(database, statement, self.state)
        if not self._begun:
            self._end(log_place)

    def _xa_statement(self, statement: str, log_place: int) -> None:
        """Take MySQL's borders of XA transactions; MariaDB marks the GTID."""
        what = statement.split()[1].upper()
        if what in ("START", "BEGIN"):
            self._begun = self._xa = True
        elif what in ("COMMIT", "ROLLBACK"):
            self._end(log_place)


def _joined(buffer: bytearray, place: int) -> int | None:
    """Join the packets of a long event, and return where it ends; None while they are not all there."""
    end, lengths = place + 4 + _LENGTH_MAX, []
    at = end
    while True:
        if len(buffer) < at + 4:
            return None
        length = _PACKET.unpack_from(buffer, at)[0] & _LENGTH_MAX
        if len(buffer) < at + 4 + length:
            return None
        lengths.append(length)
        at += 4 + length
        if length < _LENGTH_MAX:
            break
    for length in lengths:
        del buffer[end : end + 4]
        end += length
    return end


def _inflated(value: bytes | bytearray) -> bytes:
    """Unpack MariaDB's compressed parts of events: a byte that says how many bytes have the length, the length, and zlib's bytes."""
    width = value[0] & 7
    if value[0] >> 4 & 7:
        raise DataError("an event of the binary log is compressed by an unknown method", plugin="mysql")
    return zlib.decompress(bytes(value[1 + width :]))
