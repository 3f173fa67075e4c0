"""Rows by column out of the server's packets: the same that the driver makes of them, however the packets come."""

from __future__ import annotations

import io
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import headrace as hr
import polars as pl
import pymysql
import pytest
from headrace.foundation.errors import DataError
from headrace_mysql import reader as reader_module
from headrace_mysql.row_packets import RowPackets
from hypothesis import given, settings
from hypothesis import strategies as st
from mysql_world import Database
from polars.testing import assert_frame_equal

from tests.effort import examples

TEXT = ("utf8", None)
INTEGER = ("ascii", int)
EOF = b"\xfe\x00\x00\x02\x00"


class Chunks(io.BytesIO):
    """What comes over a connection, in pieces of given sizes."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        super().__init__(content)
        self._sizes = list(sizes)

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(self._sizes.pop(0) if self._sizes else size)


def value(content: bytes | None) -> bytes:
    """Return a value as it stands in a row."""
    if content is None:
        return b"\xfb"
    length = len(content)
    if length < 251:
        return bytes([length]) + content
    for sign, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        if length < 1 << 8 * width:
            return bytes([sign]) + length.to_bytes(width, "little") + content
    raise AssertionError(length)


def packets(payloads: list[bytes]) -> bytes:
    """Return payloads as packets; long ones go on in the next."""
    made = b""
    for payload in payloads:
        while True:
            part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
            made += len(part).to_bytes(3, "little") + b"\0" + part
            if len(part) < 0xFFFFFF:
                break
    return made


def cursor(content: bytes, converters: list[Any], sizes: list[int] | None = None) -> Any:
    closed: list[bool] = []
    connection = SimpleNamespace(
        _rfile=Chunks(content, sizes or []), encoding="utf8", _force_close=lambda: closed.append(True), closed=closed
    )
    result = SimpleNamespace(converters=converters, unbuffered_active=True, connection=connection, ended=[])
    result._check_packet_is_eof = result.ended.append
    return SimpleNamespace(_result=result, connection=connection)


@settings(max_examples=examples(60), deadline=None)
@given(
    texts=st.lists(
        st.none() | st.text(max_size=30) | st.sampled_from(["", "x" * 12, "x" * 13, "ü" * 130, "y" * 70_000])
    ),
    sizes=st.lists(st.integers(1, 40), max_size=40),
)
def test_values_come_out_however_the_packets_are_cut(texts: list[str | None], sizes: list[int]) -> None:
    numbers = [None if text is None else len(text) - 5 for text in texts]
    rows = [
        b"".join(value(None if one is None else str(one).encode()) for one in (place, text, number, number))
        for place, (text, number) in enumerate(zip(texts, numbers, strict=True))
    ]
    given = cursor(packets([*rows, EOF]), [INTEGER, TEXT, INTEGER, ("ascii", float)], sizes)
    found = RowPackets(given)
    assert len(found) == len(rows)
    assert given._result.unbuffered_active is False
    assert len(given._result.ended) == 1
    types = {"text": pl.String(), "number": pl.Int32(), "float": pl.Float64()}
    key, (text, number, floating) = found.columns(types, pl.Int64())
    assert key.to_list() == list(range(len(rows)))
    assert text.to_list() == texts
    assert number.to_list() == numbers
    assert floating.to_list() == numbers


def test_a_row_that_goes_on_in_the_next_packets() -> None:
    long = b"z" * (2 * 0xFFFFFF - 6)  # the second packet is full as well, so that an empty third one follows
    rows = [value(b"1") + value(long), value(b"2") + value(b"short")]
    assert len(rows[0]) > 2 * 0xFFFFFF
    given = cursor(packets([*rows, EOF]), [INTEGER, TEXT], [5, 0xFFFFFF, 1000])
    key, (text,) = RowPackets(given).columns({"text": pl.String()}, pl.Int64())
    assert key.to_list() == [1, 2]
    assert text.str.len_bytes().to_list() == [len(long), 5]
    assert text[1] == "short"


def test_a_connection_that_is_lost_amid_the_rows_is_not_used_again() -> None:
    whole = packets([value(b"1"), value(b"2"), EOF])
    for length in range(len(whole)):
        given = cursor(whole[:length], [INTEGER], [3, 4])
        with pytest.raises(pymysql.OperationalError, match="Lost connection"):
            RowPackets(given)
        assert given.connection.closed == [True]
        assert given._result.unbuffered_active is False


def test_an_error_amid_the_rows_is_raised() -> None:
    error = b"\xff" + (1317).to_bytes(2, "little") + b"#70100Query execution was interrupted"
    given = cursor(packets([value(b"1"), error]), [INTEGER])
    with pytest.raises(pymysql.MySQLError, match="interrupted"):
        RowPackets(given)
    assert given._result.unbuffered_active is False


def test_what_is_no_utf8_is_named() -> None:
    given = cursor(packets([value(b"1") + value(b"\xff\xfe and some more bytes"), EOF]), [INTEGER, TEXT])
    with pytest.raises(DataError, match="column 'text' holds bytes that are not UTF-8"):
        RowPackets(given).columns({"text": pl.String()}, pl.Int64())


def test_without_arrow_the_rows_are_the_same(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, word VARCHAR(40), long_text LONGTEXT, small SMALLINT ZEROFILL,"
        " flag BOOLEAN, price DECIMAL(10, 2), ratio DOUBLE, at DATETIME(6), raw VARBINARY(20), kind ENUM('a', 'b'))"
    )
    for key in (0, 1, 2, 2**63, 2**64 - 1):
        row = (key, "grüße", "x" * (key % 7) * 20_000, 12, 1, "1.50", 1e-7, "2026-01-02 03:04:05.6", b"\xff\x00", "b")
        database.execute("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", row)
    database.execute("INSERT INTO t (id) VALUES (5)")
    found = []
    for has_arrow in (True, False):
        monkeypatch.setattr(reader_module, "_HAS_ARROW", has_arrow)
        source = database.source(range_size=2**62)
        for queue in source.queues():
            reader = source.open(queue, hr.EARLIEST)
            while raw := reader.poll(3, timedelta(0)):
                assert raw.frame is not None
                found.append((has_arrow, queue.name, raw.offsets.tolist(), raw.frame))
            reader.close()
    half = len(found) // 2
    assert half == 4
    for (_, *one, frame), (_, *other, expected) in zip(found[:half], found[half:], strict=True):
        assert one == other
        assert_frame_equal(frame, expected)
