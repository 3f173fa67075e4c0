"""Types of tables and streams: what is read is what is there, and what the sink writes comes back."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from decimal import Decimal
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.schema import Schema, type_name
from headrace_contract.values import edge_values
from headrace_mysql.tables import TableColumn
from headrace_mysql.types import misfit
from mysql_world import Database

from tests.sink_tests import batch, insert

ZERO = timedelta(0)
SECOND = timedelta(microseconds=1)


def read(database: Database, **options: Any) -> pl.DataFrame:
    source = database.source(**options)
    [queue] = source.queues()
    reader = source.open(queue, hr.EARLIEST)
    raw = reader.poll(1000, ZERO)
    reader.close()
    assert raw is not None
    assert raw.frame is not None
    assert dict(source.schema()) == dict(raw.frame.schema)
    return raw.frame


@pytest.mark.parametrize(
    ("declared", "literals", "name", "values"),
    [
        ("TINYINT(1)", ["1", "0"], "boolean", [True, False]),
        ("BIT(1)", ["b'1'", "b'0'"], "boolean", [True, False]),
        ("BIT(12)", ["b'100000001'"], "binary", [b"\x01\x01"]),
        ("TINYINT UNSIGNED", ["255"], "int32", [255]),
        ("MEDIUMINT", ["-8388608"], "int32", [-8388608]),
        ("INT", ["-2147483648"], "int32", [-(2**31)]),
        ("INT UNSIGNED", ["4294967295"], "int64", [2**32 - 1]),
        ("BIGINT", ["-9223372036854775808"], "int64", [-(2**63)]),
        ("BIGINT UNSIGNED", ["18446744073709551615", "0"], "decimal(20, 0)", [Decimal(2**64 - 1), Decimal(0)]),
        ("YEAR", ["2024"], "int32", [2024]),
        ("FLOAT", ["1.2345678", "0.1"], "float32", [1.2345677614212036, 0.10000000149011612]),
        ("DOUBLE", ["0.1", "1.7976931348623157e308"], "float64", [0.1, 1.7976931348623157e308]),
        ("DECIMAL(12,2)", ["-1.10"], "decimal(12, 2)", [Decimal("-1.10")]),
        ("DECIMAL(20,0)", ["-17"], "decimal(20, 0)", [Decimal(-17)]),
        ("DECIMAL(60,2)", ["'" + "9" * 58 + ".25'"], "string", ["9" * 58 + ".25"]),
        ("DATE", ["'2024-02-29'", "'1000-01-01'"], "date", [dt.date(2024, 2, 29), dt.date(1000, 1, 1)]),
        ("TIME(6)", ["'-838:59:58.000001'", "'12:30:00'"], "duration",
         [-timedelta(hours=838, minutes=59, seconds=58, microseconds=1), timedelta(hours=12, minutes=30)]),
        ("DATETIME(6)", ["'2024-02-29 23:59:59.999999'"], "timestamp_ntz", [dt.datetime(2024, 2, 29, 23, 59, 59, 999999)]),
        ("TIMESTAMP(3) NULL", ["'2024-03-31 01:30:00.125'"], "timestamp",
         [dt.datetime(2024, 3, 31, 1, 30, 0, 125000, dt.UTC)]),
        ("VARCHAR(20)", ["'漢🙂'", "''"], "string", ["漢🙂", ""]),
        ("CHAR(5) CHARACTER SET latin1", ["'gr\u00fc\u00dfe'"], "string", ["grüße"]),
        ("ENUM('a', 'b')", ["'b'"], "string", ["b"]),
        ("SET('a', 'b')", ["'a,b'"], "string", ["a,b"]),
        ("JSON", ["'{\"a\": 1}'"], "string", ['{"a": 1}']),
        ("VARBINARY(9)", ["X'00ff'"], "binary", [b"\x00\xff"]),
        ("BLOB", ["X'fffe'"], "binary", [b"\xff\xfe"]),
        ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'"], "string", ["123e4567-e89b-12d3-a456-426655440000"]),
        ("INET6", ["'::1'"], "string", ["::1"]),
        ("POINT", ["ST_GeomFromText('POINT(1 2)')"], "binary",
         [bytes.fromhex("000000000101000000000000000000f03f0000000000000040")]),
    ],
)  # fmt: skip
def test_reading(database: Database, declared: str, literals: list[str], name: str, values: list[Any]) -> None:
    database.execute(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v {declared})")
    for literal in [*literals, "NULL"]:
        database.execute(f"INSERT INTO t (v) VALUES ({literal})")  # noqa: S608
    frame = read(database, columns=["v"])
    assert type_name(frame.schema["v"]) == name
    assert frame["v"].to_list() == [*values, None]


def test_zero_dates_are_null(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE, at DATETIME)")
    database.execute("SET sql_mode = ''")
    database.execute("INSERT INTO t VALUES (1, '0000-00-00', '0000-00-00 00:00:00'), (2, '2024-00-01', '2024-01-01')")
    assert read(database).to_dicts() == [
        {"id": 1, "d": None, "at": None},
        {"id": 2, "d": None, "at": dt.datetime(2024, 1, 1)},
    ]


def test_sessions_in_other_zones_do_not_matter(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NULL)")
    database.execute("SET time_zone = '+09:00'")
    database.execute("INSERT INTO t VALUES (1, '2024-01-01 09:00:00')")
    assert read(database)["at"].to_list() == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    sink = database.sink({"id": "int64", "at": "timestamp"})
    moment = dt.datetime(2024, 6, 1, 12, tzinfo=dt.timezone(timedelta(hours=5)))
    insert(sink, batch("q", [{"id": 2, "at": moment}], {"id": "int64", "at": "timestamp"}))
    sink.close()
    assert read(database)["at"].to_list()[1] == moment


_SAME: tuple[str, ...] = (
    "string", "boolean", "int32", "int64", "float32", "float64", "decimal(38, 18)", "decimal(12, 2)", "date",
    "timestamp_ntz", "binary", "json",
)  # fmt: skip


@pytest.mark.parametrize("name", _SAME)
def test_round_trip(database: Database, name: str) -> None:
    """What the sink writes into a table that it made is what the source reads, of the same type."""
    schema = {"id": "int64", "v": name}
    values = [*edge_values(name), None]
    sink = database.sink(schema, create_table=True, key=["id"])
    insert(sink, batch("q", [{"id": n, "v": value} for n, value in enumerate(values)], schema))
    sink.close()
    frame = read(database)
    assert frame.schema["v"] == Schema.of(schema)["v"]
    assert frame["v"].to_list() == values


@pytest.mark.parametrize(
    ("name", "read_as", "change"),
    [
        ("int8", "int32", lambda value: value),
        ("int16", "int32", lambda value: value),
        ("timestamp", "timestamp_ntz", lambda value: value.replace(tzinfo=None)),
        ("duration", "int64", lambda value: value // SECOND),
        ("time", "duration", lambda value: dt.datetime.combine(dt.date.min, value) - dt.datetime.min),
        ("array<int64>", "string", lambda value: str(value).replace(" ", "").replace("None", "null")),
        ("struct<a: int64, b: string>", "string",
         lambda value: f'{{"a":{value["a"]},"b":"{value["b"]}"}}'.replace('"None"', "null").replace("None", "null")),
    ],
)  # fmt: skip
def test_round_trip_to_another_type(database: Database, name: str, read_as: str, change: Any) -> None:
    schema = {"id": "int64", "v": name}
    values = edge_values(name)
    sink = database.sink(schema, create_table=True, key=["id"])
    insert(sink, batch("q", [{"id": n, "v": value} for n, value in enumerate(values)], schema))
    sink.close()
    frame = read(database)
    assert type_name(frame.schema["v"]) == read_as
    assert frame["v"].to_list() == [change(value) for value in values]


def test_nan_is_null_in_the_table(database: Database) -> None:
    schema = {"id": "int64", "v": "float64"}
    values = [float("nan"), float("inf"), -float("inf"), 1.0]
    sink = database.sink(schema, create_table=True)
    insert(sink, batch("q", [{"id": n, "v": value} for n, value in enumerate(values)], schema))
    sink.close()
    assert [v for (v,) in database.execute("SELECT v FROM t ORDER BY id")] == [None, None, None, 1.0]


def test_fractions_are_rounded_to_the_column(database: Database) -> None:
    """As the server does, without a word: documented."""
    database.execute("CREATE TABLE t (id INT, v DECIMAL(10, 1), at DATETIME)")
    schema = {"id": "int64", "v": "decimal(10, 3)", "at": "timestamp_ntz"}
    sink = database.sink(schema)
    row = {"id": 1, "v": Decimal("1.250"), "at": dt.datetime(2024, 1, 1, 0, 0, 0, 600_000)}
    insert(sink, batch("q", [row], schema))
    sink.close()
    [(_, value, at)] = database.execute("SELECT * FROM t")
    assert value == Decimal("1.3")
    assert at in (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 1))


def test_every_type_fits_somewhere() -> None:
    kinds = {"json": "longtext"}
    for name, target in {
        "string": "varchar", "boolean": "tinyint", "int8": "float", "int16": "smallint", "int32": "double",
        "int64": "decimal", "float32": "float", "float64": "double", "decimal(5, 0)": "int", "decimal(5, 1)": "decimal",
        "date": "datetime", "time": "time", "timestamp": "timestamp", "timestamp_ntz": "datetime", "duration": "time",
        "binary": "blob", "array<int64>": "json", "struct<a: int64>": "longtext", **kinds,
    }.items():  # fmt: skip
        kind = Schema.of({"v": name})["v"]
        assert misfit(kind, TableColumn("v", target, target)) is None, name
        assert misfit(kind, TableColumn("v", "geometry", "geometry")) is not None, name
