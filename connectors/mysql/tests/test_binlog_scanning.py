"""What the scanner makes of events that servers seldom write; those that they write every day are read from real servers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, JobError
from headrace_mysql.binlog.following import LogPlace, LogReader
from headrace_mysql.binlog.layout import TableMap, WireColumn
from headrace_mysql.binlog.positions import FilePosition, LogPosition, MariaDBPosition, MySQLPosition
from headrace_mysql.binlog.scanning import Scanned, Scanner
from headrace_mysql.settings import MySQLChangesSettings
from headrace_mysql.tables import TableColumn

_ANONYMOUS_GTID, _QUERY, _XID = 34, 2, 16


def packet(kind: int, body: bytes, end: int) -> bytes:
    event = struct.pack("<BIBIIIH", 0, 0, kind, 1, 19 + len(body), end, 0) + body
    return struct.pack("<I", len(event)) + event


def query(statement: str, end: int = 500) -> bytes:
    body = struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0" + statement.encode()
    return packet(_QUERY, body, end)


def scanned(*packets: bytes, at: int = 200) -> Scanned:
    scanner = Scanner("shop", "orders", FilePosition("log.000001", at), False, (), lambda database, text, state: state)
    found, _, _ = scanner.scan(bytearray(b"".join(packets)))
    return found


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE orders SET a = 1",
        "-- why\nUPDATE orders SET a = 1",
        "# why\n  delete from orders",
        "/* a */ -- b\n /* c */\nINSERT INTO orders VALUES (1)",
        "/*!50100 UPDATE orders SET a = 1 */",
        "/*M!100100 REPLACE INTO orders VALUES (1) */",
        "WITH x AS (SELECT 1) DELETE FROM orders WHERE a IN (SELECT * FROM x)",
    ],
)
def test_a_statement_in_place_of_rows_is_refused_whatever_comments_it_begins_with(statement: str) -> None:
    error = scanned(packet(_ANONYMOUS_GTID, bytes(25), 250), query("BEGIN"), query(statement)).error
    assert isinstance(error, JobError)
    assert "a statement instead of rows" in error.message


def test_a_statement_of_comments_alone_is_passed_over_at_once() -> None:
    comments = "-- a          \n/* b */ " * 2_000
    assert scanned(packet(_ANONYMOUS_GTID, bytes(25), 250), query("BEGIN"), query(comments)).error is None


def test_a_file_with_more_than_4_gib_is_refused() -> None:
    """The place of an event has 32 bits: behind 4 GiB it begins anew, and offsets would decrease."""
    begin = packet(_ANONYMOUS_GTID, bytes(25), 250) + query("BEGIN")
    assert scanned(begin, packet(_XID, bytes(8), 4_294_967_000), at=4_294_000_000).error is None
    error = scanned(begin, packet(_XID, bytes(8), 300), at=4_294_000_000).error
    assert isinstance(error, DataError)
    assert "300 comes after 4294000000" in error.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FilePosition("log.000003", 4), MariaDBPosition({0: (1, 7)})),
        (MariaDBPosition({0: (1, 7)}), FilePosition("log.000003", 4)),
        (MySQLPosition({}), FilePosition("log.000003", 4)),
    ],
)
def test_positions_of_two_kinds_are_not_compared(one: LogPosition, other: LogPosition) -> None:
    with pytest.raises(AssertionError):
        one.covers(other)


def test_each_layout_is_compared_with_the_columns_also_if_an_earlier_one_is_gone() -> None:
    """Python gives the identity of an object that is gone to a new one."""
    columns = (TableColumn("a", "int", "int(11)"),)
    settings = MySQLChangesSettings(table="orders", database="shop")
    reader = LogReader(settings, LogPlace(MariaDBPosition({}), columns), {"a": None}, {}, "q", ManualClock())  # type: ignore[dict-item]
    seen = set[int]()
    for _ in range(100):
        good: Any = TableMap("shop", "orders", [WireColumn(3)])
        reader._check(good, columns)
        assert id(good) not in seen, "the reader keeps what it has compared"
        seen.add(id(good))
        del good
    reader.close()
    with pytest.raises(JobError, match="the binary log has 2 columns, but the table had 1"):
        reader._check(TableMap("shop", "orders", [WireColumn(3), WireColumn(3)]), columns)
