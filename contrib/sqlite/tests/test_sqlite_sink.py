"""The sink: what it checks before the start, what it does with rows, and with what SQLite refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, ChangeKind, Position, Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError
from headrace.interfaces.sink import SinkBatch, StaleWriterError
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySource
from headrace_sqlite import SQLiteSink, SQLiteSinkSettings
from sqlite_world import Database, batch_of, begin, frame_of, insert

ID = {"id": "int64"}
TWO = {"id": "int64", "name": "string"}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


def rows_of(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in numbers]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"database": ":memory:"}, "is not the path of a file"),
            ({"database": ""}, "is not the path of a file"),
            ({"offsets_table": "T"}, "must not be the table that the sink writes"),
            ({"mode": "upsert", "create_table": True}, "mode 'upsert' needs a key"),
            ({"columns": {"a": "x", "b": "X"}}, "two columns of the stream are mapped to 'X'"),
        ],
    )
    def test_what_cannot_be(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(OptionError, match=problem):
            SQLiteSinkSettings.of({"table": "t", "database": "a.db", **options}, plugin="sqlite")

    @pytest.mark.parametrize("name", ["", "sqlite_x", "a\0b"])
    def test_names_that_sqlite_cannot_have(self, database: Database, name: str) -> None:
        with pytest.raises(OptionError, match="cannot be a name"):
            database.sink(ID, table=name, create_table=True)


class TestBeforeTheStart:
    def test_missing_table_names_the_nearest(self, database: Database) -> None:
        database.execute("CREATE TABLE events (id)")
        with pytest.raises(
            JobError, match=r"(?s)there is no table 'event' .*did you mean 'events'\?; create_table=True"
        ) as caught:
            database.sink(ID, table="event")
        assert str(database.path) in str(caught.value)

    def test_a_missing_file_is_not_made(self, database: Database) -> None:
        with pytest.raises(JobError, match="unable to open database file"):
            database.sink(ID)
        assert not database.path.exists()

    def test_a_missing_directory(self, tmp_path: Path) -> None:
        with pytest.raises(JobError, match="the directory must exist"):
            Database(tmp_path / "nowhere").sink(ID, create_table=True)

    def test_a_file_of_something_else(self, database: Database) -> None:
        database.path.write_bytes(b"nothing that SQLite knows " * 100)
        with pytest.raises(JobError, match="name a file that SQLite has made"):
            database.sink(ID, create_table=True)

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("CREATE TABLE t (id INTEGER, name INTEGER)", "string values do not fit the column 'name' INTEGER"),
            ("CREATE TABLE t (id INTEGER)", "it has no column 'name'"),
            ("CREATE TABLE t (id INTEGER, name TEXT, more TEXT NOT NULL)", "needs a value for the column 'more'"),
            ("CREATE TABLE t (id INTEGER, name TEXT AS ('x'))", "SQLite computes the column 'name'"),
            ("CREATE VIEW t AS SELECT 1 AS id, 'a' AS name", "it is a view"),
        ],
    )
    def test_a_table_that_does_not_fit(self, database: Database, statement: str, problem: str) -> None:
        database.execute(statement)
        with pytest.raises(JobError, match=problem):
            database.sink(TWO)

    @pytest.mark.parametrize(
        ("kind", "declared", "fits"),
        [
            ("int64", "BIGINT", True), ("int64", "NUMERIC", True), ("int64", "", True), ("int64", "REAL", False), ("int32", "REAL", True),
            ("int64", "TEXT", False), ("float64", "INTEGER", False), ("float64", "DOUBLE", True), ("string", "VARCHAR(9)", True),
            ("string", "DATETIME", False), ("timestamp", "DATETIME", True), ("date", "DATE", True), ("timestamp", "INTEGER", False),
            ("decimal(12, 2)", "DECIMAL(12, 2)", True), ("decimal(38, 18)", "DECIMAL(38, 18)", False), ("decimal(38, 18)", "TEXT", True),
            ("decimal(12, 0)", "INTEGER", True), ("boolean", "BOOLEAN", True), ("binary", "BLOB", True), ("binary", "TEXT", False),
            ("array<int64>", "JSON", True), ("string", "JSON", False),
        ],
    )  # fmt: skip
    def test_types(self, database: Database, kind: str, declared: str, fits: bool) -> None:
        database.execute(f"CREATE TABLE t (v {declared})")
        if fits:
            database.sink({"v": kind}).close()
            return
        with pytest.raises(JobError, match=r"values do not fit the column 'v'"):
            database.sink({"v": kind})

    @pytest.mark.parametrize(
        ("statement", "more"),
        [
            ("CREATE TABLE t (id INTEGER, name TEXT)", {}),
            ("CREATE TABLE t (id INTEGER, name TEXT PRIMARY KEY)", {"key": ["id"]}),
            ("CREATE TABLE t (id INTEGER, name TEXT COLLATE NOCASE PRIMARY KEY)", {"key": ["name"]}),
        ],
    )
    def test_upsert_without_a_key(self, database: Database, statement: str, more: dict[str, Any]) -> None:
        database.execute(statement)
        with pytest.raises(JobError, match="mode 'upsert' needs a primary or unique key"):
            database.sink(TWO, mode="upsert", **more)

    def test_a_table_of_positions_that_is_none(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id INTEGER)", "CREATE TABLE other (id INTEGER)")
        with pytest.raises(JobError, match="other is not a table of positions"):
            database.sink(ID, offsets_table="other")

    def test_columns_that_have_a_value_of_their_own(self, database: Database) -> None:
        database.execute(
            "CREATE TABLE t (n INTEGER PRIMARY KEY, id INTEGER, a INT NOT NULL DEFAULT 3, c INT AS (id + 1))"
        )
        insert(database.sink(ID), [frame_of([{"id": 5}], ID)])
        assert database.rows() == [{"n": 1, "id": 5, "a": 3, "c": 6}]

    def test_any_name_is_quoted(self, database: Database) -> None:
        name = 'x"; DROP TABLE y; -- %s %%s'
        schema = {"id": "int64", 'a%"b': "string"}
        sink = database.sink(schema, table=name, offsets_table=f"{name}!", create_table=True, key=["id"], mode="upsert")
        insert(sink, [frame_of([{"id": 1, 'a%"b': text}], schema, at) for at, text in enumerate(("one", "two'"))])
        quoted = '"' + name.replace('"', '""') + '"'
        assert database.rows(quoted) == [{"id": 1, 'a%"b': "two'"}]


class TestRows:
    def test_rows_and_position_are_stored_together(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id INTEGER CHECK (id < 3))")
        sink = database.sink(ID)
        after = insert(sink, [frame_of([{"id": 0}, {"id": 1}], ID)])
        with pytest.raises(DataError, match="CHECK constraint failed"):
            insert(sink, [frame_of([{"id": 2}, {"id": 3}], ID, 2)], after)
        assert (database.rows(), sink.last_offset(Queue("q"))) == ([{"id": 0}, {"id": 1}], Position(1, 0))

    def test_a_second_writer_of_a_queue_is_stale(self, database: Database) -> None:
        one, other = database.sink(ID, create_table=True), database.sink(ID, create_table=True)
        insert(one, [frame_of([{"id": 0}], ID)])
        with pytest.raises(StaleWriterError):
            insert(other, [frame_of([{"id": 0}], ID)])
        assert database.rows() == [{"id": 0}]

    def test_values_that_are_stored(self, database: Database) -> None:
        schema = {
            "at": "timestamp",
            "local": "timestamp_ntz",
            "day": "date",
            "took": "duration",
            "sum": "decimal(12, 2)",
            "ok": "boolean",
        }
        stream = hr.stream("t", "values").from_(
            MemorySource({"q": [b'{"at": "2026-01-02T03:04:05.678Z", "local": "2026-01-02 03:04:05", "day": "2026-01-02", '
                                b'"sum": "12.5", "ok": true}']}),
            format="json", schema=schema,
        )  # fmt: skip
        stream.to_sqlite("t", str(database.path), create_table=True).run("light", show_progress=False)
        [row] = database.rows()
        assert row["at"] == "2026-01-02 03:04:05.678000+00:00"
        assert datetime.fromisoformat(row["at"]) == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
        assert (row["local"], row["day"], row["sum"], row["ok"]) == (
            "2026-01-02 03:04:05.000000",
            "2026-01-02",
            "12.50",
            1,
        )
        assert database.execute("SELECT unixepoch(at) FROM t") == [(1767323045,)]
        assert "at TEXT" in database.execute("SELECT replace(sql, '\"', '') FROM sqlite_schema WHERE name = 't'")[0][0]

    @pytest.mark.parametrize(
        ("schema", "values", "reason"),
        [
            ({"id": "int64", "v": "float64"}, [1.5, float("nan"), float("inf")], "has NaN"),
            ({"id": "int64", "v": "string"}, ["a", None, "b"], "NOT NULL constraint failed"),
        ],
    )
    def test_values_that_sqlite_refuses_are_dead_letters(
        self, database: Database, schema: dict[str, str], values: list[Any], reason: str
    ) -> None:
        database.execute("CREATE TABLE t (id INTEGER, v NOT NULL)")
        letters: list[Any] = []
        writer = SinkWriter(database.sink(schema), "to_sqlite", on_dead_letters=letters.append, auto_flush=False)
        writer.write(batch_of([{"id": number, "v": value} for number, value in enumerate(values)], schema))
        writer.close()
        assert [row["id"] for row in database.rows()] == [0, 2]
        assert reason in letters[0].frame["reason"][0]

    def test_a_number_of_more_than_64_bits_is_a_dead_letter(self, database: Database) -> None:
        database.execute("CREATE TABLE t (v INTEGER)")
        sink = database.sink(None)
        frame = frame_of([{"v": 1}], {"v": "int64"}).with_columns(v=pl.lit(2**63, pl.UInt64))
        with pytest.raises(DataError, match="too large"):
            insert(sink, [frame])
        assert (database.rows(), sink.last_offset(Queue("q"))) == ([], None)

    def test_null_is_not_numbered(self, database: Database) -> None:
        sink = database.sink(TWO, create_table=True, key=["id"], mode="upsert")
        with pytest.raises(DataError, match="NULL in the column 'id'"):
            insert(sink, [frame_of([{"id": None, "name": "x"}], TWO)])
        assert database.rows() == []

    def test_upsert_keeps_columns_that_the_stream_does_not_have(self, database: Database) -> None:
        database.execute(
            "CREATE TABLE t (id INTEGER, name TEXT, note TEXT, UNIQUE (name), UNIQUE (id))",
            "INSERT INTO t VALUES (1, 'old', 'kept')",
        )
        rows = [{"id": 1, "name": "first"}, {"id": 2, "name": "two"}, {"id": 1, "name": "last"}]
        insert(database.sink(TWO, mode="upsert", key=["id"]), [frame_of(rows, TWO)])
        assert database.execute("SELECT * FROM t ORDER BY id") == [(1, "last", "kept"), (2, "two", None)]

    def test_foreign_keys_hold(self, database: Database) -> None:
        database.execute(
            "CREATE TABLE p (id INTEGER PRIMARY KEY)",
            "CREATE TABLE t (id INTEGER REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        )
        with pytest.raises(DataError, match="FOREIGN KEY"):
            insert(database.sink(ID), [frame_of([{"id": 1}], ID)])
        assert database.rows() == []


class TestFile:
    def test_a_new_file_can_be_read_while_it_is_written(self, database: Database) -> None:
        sink = database.sink(ID, create_table=True)
        insert(sink, [frame_of([{"id": 0}], ID)])
        assert database.execute("PRAGMA journal_mode") == [("wal",)]
        assert database.rows() == [{"id": 0}]
        sink.close()

    def test_another_writer_is_waited_for(self, database: Database) -> None:
        sink = database.sink(ID, create_table=True, lock_timeout="10 ms")
        other = database.sink(ID, create_table=True)
        other._connection.cursor().execute("BEGIN IMMEDIATE")
        with pytest.raises(RetriableError, match="database is locked"):
            insert(sink, [frame_of([{"id": 0}], ID)])
        other.close()
        insert(sink, [frame_of([{"id": 0}], ID)])
        assert database.rows() == [{"id": 0}]

    @pytest.mark.parametrize("how", ["removed", "replaced"])
    def test_a_file_that_is_exchanged_while_it_is_written(self, database: Database, how: str) -> None:
        sink = database.sink(ID, create_table=True)
        after = insert(sink, [frame_of([{"id": 0}], ID)])
        database.path.rename(database.path.with_name("moved.db"))
        if how == "replaced":
            database.sink(ID, create_table=True).close()
        with pytest.raises(JobError, match="was moved, removed or replaced"):
            insert(sink, [frame_of([{"id": 1}], ID, 1)], after)

    def test_a_full_disk_is_waited_for(self, database: Database) -> None:
        sink = database.sink(TWO, create_table=True)
        cursor = sink._connection.cursor()
        cursor.execute("PRAGMA max_page_count = 10")  # what SQLite says then is what it says of a device
        long = [{"id": 1, "name": "x" * 100_000}]
        with pytest.raises(RetriableError, match="database or disk is full") as caught:
            insert(sink, [frame_of(long, TWO)])
        assert caught.value.hint == "make room on the device"
        insert(sink, [frame_of(long, TWO)])  # on a new connection, without that limit
        assert len(database.rows()) == 1

    def test_a_copy_of_the_file_goes_on(self, database: Database, tmp_path: Path) -> None:
        sink = database.sink(ID, create_table=True)
        insert(sink, [frame_of([{"id": 0}], ID)])
        database.execute(f"VACUUM INTO '{tmp_path / 'copy.db'}'")
        copy = SQLiteSink(SQLiteSinkSettings.of({"table": "t", "database": str(tmp_path / "copy.db")}, plugin="sqlite"))
        begin(copy, ID)
        assert copy.last_offset(Queue("q")) == Position(0, 0)


class TestChanges:
    def job(self, database: Database, **options: Any) -> Any:
        bodies = {"q": [json.dumps({"k": "ab"[n % 2], "v": n}).encode() for n in range(10)]}
        stream = hr.stream("shop", "sales").from_(
            MemorySource(bodies), format="json", schema={"k": "string", "v": "int64"}, name="in"
        )
        return stream.key_by("k").agg(total="sum(v)").to_sqlite(**database.options(mode="upsert", **options))

    def test_a_changelog_by_key(self, database: Database) -> None:
        self.job(database, create_table=True, key=["k"]).run("light", show_progress=False)
        assert database.execute("SELECT * FROM t ORDER BY k") == [("a", 20), ("b", 25)]

    def test_another_key_is_refused(self, database: Database) -> None:
        database.execute("CREATE TABLE t (k TEXT, total INTEGER UNIQUE)")
        with pytest.raises(
            HeadraceError, match=r"the stream is a changelog with the key k, but the table t has no such key"
        ):
            self.job(database).run("light", show_progress=False)

    def test_null_in_a_key_is_a_value(self, database: Database) -> None:
        database.execute("CREATE TABLE t (k TEXT UNIQUE, total INTEGER)")
        schema = {"k": "string", "total": "int64"}
        sink = SQLiteSink(SQLiteSinkSettings.of(database.options(mode="upsert"), plugin="sqlite"))
        sink.changes = hr.Changes(("k",))
        begin(sink, schema)
        after, seen = None, []
        steps: list[list[tuple[str | None, int, int]]] = [
            [(None, 1, ChangeKind.INSERT), ("a", 1, ChangeKind.INSERT)],
            [(None, 2, ChangeKind.UPDATE_AFTER), ("a", 2, ChangeKind.UPDATE_AFTER)],
            [(None, 2, ChangeKind.DELETE)],
        ]
        for number, step in enumerate(steps):
            kinds = pl.Series(CHANGE, [int(kind) for _, _, kind in step], dtype=pl.Int8)
            frame = frame_of([{"k": k, "total": total} for k, total, _ in step], schema, 10 * number).with_columns(
                kinds
            )
            made = SinkBatch(Queue("q"), frame, after)
            sink.batch_insert(made)
            after = made.last
            seen.append(sorted(database.execute("SELECT * FROM t"), key=str))
        assert seen == [[("a", 1), (None, 1)], [("a", 2), (None, 2)], [("a", 2)]]


def test_in_sql(database: Database, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"who": "a", "n": 1}\n{"who": "b", "n": 2}\n{"who": "a", "n": 3}\n')
    hr.sql(f"""
        CREATE TABLE people (who STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{tmp_path / "in.ndjson"}', 'format' = 'json');
        CREATE TABLE newest (who STRING, n BIGINT, PRIMARY KEY (who) NOT ENFORCED) WITH (
          'connector' = 'sqlite', 'database' = '{database.path}', 'table-name' = 't', 'create-table' = 'true');
        INSERT INTO newest SELECT who, n FROM people ON CONFLICT DO DEDUPLICATE
    """).run("light", show_progress=False)  # noqa: S608
    assert database.execute("SELECT * FROM t ORDER BY who") == [("a", 3), ("b", 2)]
