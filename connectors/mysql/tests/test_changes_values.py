"""Values of the binary log are those that a SELECT of the table gives, for every type and the oddest values."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal

import polars as pl
import pytest
from changes_world import changes_in, frame_of, latest, opened
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.interfaces.source import EARLIEST
from headrace_mysql import MySQLSource, MySQLSourceSettings
from headrace_mysql.binlog import values
from mysql_world import Database

from tests.change_readers import read_to_end

#: Type, and literals of values.
TYPES: dict[str, list[str]] = {
    "TINYINT": ["-128", "127", "0", "-1"],
    "TINYINT UNSIGNED": ["255", "0", "128"],
    "TINYINT(1)": ["0", "1", "2", "-1"],
    "SMALLINT": ["-32768", "32767", "-1"],
    "SMALLINT UNSIGNED": ["65535", "32768"],
    "MEDIUMINT": ["-8388608", "8388607", "-1", "1"],
    "MEDIUMINT UNSIGNED": ["16777215", "8388608"],
    "INT": ["-2147483648", "2147483647", "-1"],
    "INT UNSIGNED": ["4294967295", "2147483648"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "-1"],
    "BIGINT UNSIGNED": ["18446744073709551615", "9223372036854775808", "0"],
    "DECIMAL(1,0)": ["-9", "9", "0"],
    "DECIMAL(9,9)": ["0.123456789", "-0.999999999", "0"],
    "DECIMAL(10,2)": ["-12345678.90", "99999999.99", "-0.01", "0.1"],
    "DECIMAL(18,18)": ["0.000000000000000001", "-0.999999999999999999"],
    "DECIMAL(20,3) UNSIGNED": ["99999999999999999.999", "0.001"],
    "DECIMAL(38,10)": ["-1234567890123456789012345678.0123456789", "9999999999999999999999999999.9999999999", "0"],
    "DECIMAL(38,0)": ["-99999999999999999999999999999999999999", "1"],
    "DECIMAL(28,5)": ["-99999999999999999999999.99999", "79228162514264337.59354"],
    "DECIMAL(29,5)": ["-999999999999999999999999.99999", "0.00001"],
    "DECIMAL(65,30)": ["-12345678901234567890123456789012345.012345678901234567890123456789", "0", "-0.000000000000000000000000000001"],
    "DECIMAL(40,0)": ["-1234567890123456789012345678901234567890", "7"],
    "FLOAT": ["1.1", "-3.4028234e38", "1.17549435e-38", "0", "16777217"],
    "DOUBLE": ["1.1", "-1.7976931348623157e308", "5e-324", "0.1"],
    "YEAR": ["1901", "2155", "0"],
    "BIT(1)": ["b'0'", "b'1'"],
    "BIT(7)": ["b'1010101'"],
    "BIT(8)": ["b'11111111'", "b'0'"],
    "BIT(33)": ["b'100000000000000000000000000000001'"],
    "BIT(64)": ["b'1111111111111111111111111111111111111111111111111111111111111110'"],
    "DATE": ["'1000-01-01'", "'9999-12-31'", "'0001-01-01'", "'0000-00-00'", "'2024-00-10'", "'2000-02-29'", "'0000-01-01'"],
    "DATETIME": ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'", "'2024-02-29 12:34:56'"],
    "DATETIME(1)": ["'2024-01-01 00:00:00.9'"],
    "DATETIME(3)": ["'2024-01-01 00:00:00.999'", "'1969-12-31 23:59:59.001'"],
    "DATETIME(4)": ["'2024-01-01 00:00:00.0001'"],
    "DATETIME(6)": ["'2024-01-01 00:00:00.000001'", "'0001-01-01 00:00:00.999999'"],
    "TIMESTAMP NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"],
    "TIMESTAMP(2) NULL": ["'2024-03-31 01:59:59.99'"],
    "TIMESTAMP(6) NULL": ["'2024-10-27 02:30:00.123456'", "'1970-01-01 00:00:01.000001'"],
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"],
    "TIME(1)": ["'-00:00:00.1'", "'00:00:00.9'"],
    "TIME(3)": ["'-12:34:56.789'", "'-00:00:00.001'"],
    "TIME(6)": ["'-838:59:58.999999'", "'-00:00:00.000001'", "'00:00:00.000001'", "'23:59:59.999999'"],
    "CHAR(10)": ["''", "'a  '", "'grüße'", "'🙂🙂🙂'"],
    "CHAR(255) CHARACTER SET utf8mb4": ["'" + "🙂" * 255 + "'", "'x'"],
    "VARCHAR(20)": ["''", "'a  '", "'twelve bytes'", "'thirteen bytes'", "'NUL\\0inside'", "'back\\\\slash'"],
    "VARCHAR(1000)": ["'" + "ü" * 999 + "'", "'short'"],
    "VARCHAR(20) CHARACTER SET latin1": ["'grüße €'", "'plain'", "_latin1 x'818D8F909DFF'"],
    "VARCHAR(20) CHARACTER SET utf16": ["'grüße 🙂'"],
    "VARCHAR(20) CHARACTER SET ucs2": ["'漢字'"],
    "VARCHAR(20) CHARACTER SET utf32": ["'grüße 🙂'"],
    "VARCHAR(20) CHARACTER SET gbk": ["'漢字'"],
    "VARCHAR(20) CHARACTER SET sjis": ["'カタカナ'"],
    "VARCHAR(20) CHARACTER SET cp1251": ["'привет'"],
    "VARCHAR(20) CHARACTER SET koi8r": ["'привет'"],
    "VARCHAR(20) CHARACTER SET ascii": ["'plain'"],
    "TINYTEXT": ["'tiny'", "''"],
    "TEXT": ["'" + "x" * 70 + "'", "REPEAT('long ', 10000)"],
    "MEDIUMTEXT": ["REPEAT('ü', 70000)"],
    "LONGTEXT": ["'long'", "''"],
    "JSON": ['\'{"a": [1, 2.50, null, "ü"]}\'', "'[]'"],
    "BINARY(5)": ["x'0001'", "x'FF00FF00FF'", "''"],
    "BINARY(255)": ["x'01'"],
    "VARBINARY(300)": ["x'0000'", "''", "REPEAT(x'FF', 300)"],
    "BLOB": ["x'00FF00'", "REPEAT(x'AB', 60000)"],
    "LONGBLOB": ["x'01'"],
    "ENUM('a','B','it''s','ü,')": ["'a'", "'B'", "'it''s'", "'ü,'", "''"],
    "SET('x','Y','z z')": ["''", "'x'", "'x,Y,z z'", "'z z'"],
    "UUID": ["'123e4567-e89b-12d3-a456-426614174000'", "'ffffffff-ffff-1fff-bfff-ffffffffff00'"],
    "INET6": ["'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'"],
    "INET4": ["'192.0.2.1'", "'0.0.0.0'"],
    "POINT": ["POINT(1, 2)"],
}  # fmt: skip


def create(database: Database, kinds: dict[str, list[str]]) -> list[str]:
    """Create a table with a column for each type, and write a row for each value, and one of NULLs; return the columns."""
    names = [f"c{place}" for place in range(len(kinds))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) ENGINE = InnoDB")
    return names


def fill(database: Database, kinds: dict[str, list[str]], seed: int) -> None:
    database.execute("SET SESSION sql_mode = ''")
    deepest = max(map(len, kinds.values()))
    chance = random.Random(seed)
    for number in range(deepest + 1):
        literals = [values[number] if number < len(values) else "NULL" for values in kinds.values()]
        database.execute(f"INSERT INTO t VALUES ({number}, {', '.join(literals)})")  # noqa: S608
    for number in range(deepest + 1, deepest + 30):
        literals = [chance.choice([*values, "NULL"]) for values in kinds.values()]
        database.execute(f"INSERT INTO t VALUES ({number}, {', '.join(literals)})")  # noqa: S608


def by_select(database: Database) -> pl.DataFrame:
    """Return the table as the source of tables gives it."""
    options = database.options(range_size=10**6)
    source = MySQLSource(MySQLSourceSettings.of(options, plugin="mysql"))
    [queue] = source.queues()
    reader = source.open(queue, EARLIEST)
    raw = reader.poll(10_000, timedelta(0))
    reader.close()
    assert raw is not None
    assert raw.frame is not None
    return raw.frame


@pytest.mark.parametrize("arrow", [True, False])
def test_each_type_is_as_by_select(logged: Database, arrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_HAS_ARROW", arrow)
    names = create(logged, TYPES)
    begin = latest(logged)
    fill(logged, TYPES, 1)
    expected = by_select(logged)
    with opened(logged, begin) as reader:
        from_log = frame_of(read_to_end(reader)).drop(CHANGE)
    with opened(logged) as reader:
        from_snapshot = frame_of(read_to_end(reader)).drop(CHANGE)
    assert from_log.schema == expected.schema
    for name, kind in zip(names, TYPES, strict=True):
        assert from_log[name].to_list() == expected[name].to_list(), kind
        assert from_snapshot[name].to_list() == expected[name].to_list(), kind


def test_updates_have_both_rows(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a DECIMAL(9,2), b TEXT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("INSERT INTO t VALUES (1, 1.5, 'one'), (2, NULL, NULL)")
    logged.execute("UPDATE t SET b = CONCAT(IFNULL(b, ''), '!'), id = id + 10")
    logged.execute("DELETE FROM t WHERE id = 11")
    with opened(logged, begin) as reader:
        batches = read_to_end(reader)
    one = Decimal("1.50")
    assert changes_in(batches) == [
        (ChangeKind.INSERT, 1, one, "one"),
        (ChangeKind.INSERT, 2, None, None),
        (ChangeKind.UPDATE_BEFORE, 1, one, "one"),
        (ChangeKind.UPDATE_AFTER, 11, one, "one!"),
        (ChangeKind.UPDATE_BEFORE, 2, None, None),
        (ChangeKind.UPDATE_AFTER, 12, None, "!"),
        (ChangeKind.DELETE, 11, one, "one!"),
    ]
    offsets = [offset for raw in batches for offset in raw.offsets.tolist()]
    assert offsets[2] == offsets[3] < offsets[4] == offsets[5]


@pytest.mark.parametrize("per_poll", [1, 2, 3, 1000])
def test_updates_are_not_torn(logged: Database, per_poll: int) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    for _ in range(3):
        logged.execute("UPDATE t SET a = a + 1")
    with opened(logged, begin) as reader:
        batches = read_to_end(reader, per_poll=per_poll)
    kinds = [kind for kind, *_ in changes_in(batches)]
    assert kinds == [0] * 3 + [1, 2] * 9
    for raw in batches:
        assert raw.frame is not None
        listed = raw.frame[CHANGE].to_list()
        assert listed.count(1) == listed.count(2)
        assert len(set(raw.offsets.tolist())) <= per_poll


def test_compressed_events_are_read(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a TEXT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("SET GLOBAL log_bin_compress = ON")
    try:
        logged.execute(
            f"INSERT INTO t VALUES {', '.join(f'({n}, REPEAT(CHAR(97 + {n} % 26), 900))' for n in range(300))}"  # noqa: S608
        )
        logged.execute("UPDATE t SET a = CONCAT(a, 'x')")
    finally:
        logged.execute("SET GLOBAL log_bin_compress = OFF")
    logged.execute("DELETE FROM t WHERE id < 299")
    with opened(logged, begin) as reader:
        found = changes_in(read_to_end(reader))
    assert len(found) == 300 + 600 + 299
    assert found[899] == (ChangeKind.UPDATE_AFTER, 299, chr(97 + 299 % 26) * 900 + "x")


def test_rows_larger_than_a_packet(logged: Database) -> None:
    logged.execute("SET GLOBAL max_allowed_packet = 104857600")
    logged.connection = logged.connect()
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("INSERT INTO t VALUES (1, REPEAT('a', 40000000)), (2, REPEAT('b', 16777200)), (3, 'c')")
    with opened(logged, begin) as reader:
        found = frame_of(read_to_end(reader))
    assert found["a"].str.len_bytes().to_list() == [40_000_000, 16_777_200, 1]
    assert found["id"].to_list() == [1, 2, 3]
