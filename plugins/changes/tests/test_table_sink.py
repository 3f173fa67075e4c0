"""A sink into SQLite, as the author of a connector for a third database writes it by ``headrace_changes.databases``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Position, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, HeadraceError, JobError
from headrace.interfaces.operator import Changes
from headrace.interfaces.settings import option
from headrace.interfaces.sink import SinkBatch, SinkSettings, StaleWriterError
from headrace_changes.databases.offsets_table import OffsetsTable
from headrace_changes.databases.table_sink import TableSink

_TYPES = {pl.Int64(): "INTEGER", pl.String(): "TEXT"}


class SQLiteSettings(SinkSettings, frozen=True, kw_only=True):
    database: Annotated[str, option("path of the file")]
    table: Annotated[str, option("table to write")]
    mode: Annotated[str, option("insert or upsert")] = "insert"
    columns: Annotated[dict[str, str] | None, option("column of the table by column of the stream")] = None
    key: Annotated[list[str] | None, option("primary key of a created table")] = None
    create_table: Annotated[bool, option("whether to create the table")] = False
    offsets_table: Annotated[str, option("table of positions")] = "headrace_offsets"
    host: Annotated[str, option("not used")] = "file"
    port: Annotated[int, option("not used")] = 0


class Cursor:
    """A cursor of SQLite with the driver's habits that others share: it is a context, and its parameters are ``%s``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        self._cursor.execute(statement.replace("%s", "?").replace("%%", "%"), parameters)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(statement.replace("%s", "?"), rows)

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *failure: object) -> None:
        self._cursor.close()


class Connection:
    closed = False

    def __init__(self, path: str) -> None:
        self._of_driver = sqlite3.connect(path, check_same_thread=False)
        self.commit, self.rollback = self._of_driver.commit, self._of_driver.rollback

    def cursor(self) -> Cursor:
        return Cursor(self._of_driver)

    def close(self) -> None:
        self._of_driver.close()
        self.closed = True


@dataclass(frozen=True)
class Column:
    kind: str
    nullable: bool
    has_default: bool


@dataclass(frozen=True)
class Table:
    columns: Mapping[str, Column]
    unique_keys: Mapping[str, tuple[str, ...]]


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise DataError(str(error), plugin="sqlite") from error
    except sqlite3.Error as error:
        raise JobError(str(error), plugin="sqlite") from error


class Positions(OffsetsTable):
    plugin = "sqlite"

    def translating(self) -> AbstractContextManager[None]:
        return _translating()

    def found_columns(self, cursor: Any) -> set[str]:
        cursor.execute(f"PRAGMA table_info({self._table})")
        return {row[1] for row in cursor.fetchall()}

    def create(self, connection: Any, cursor: Any) -> None:
        cursor.execute(
            f"CREATE TABLE {self._table} (writer_id BLOB, queue_id BLOB, writer TEXT, queue TEXT, last_offset INTEGER, last_index INTEGER,"
            " updated_at TEXT, PRIMARY KEY (writer_id, queue_id))"
        )

    def inserting(self, values: str) -> str:
        columns = "writer_id, queue_id, writer, queue, last_offset, last_index"
        return f"INSERT OR IGNORE INTO {self._table} ({columns}) VALUES {values}"  # noqa: S608


class SQLiteSink(TableSink):
    Settings: ClassVar[type[SinkSettings]] = SQLiteSettings
    server, plugin = "SQLite", "sqlite"
    names = ("table", "offsets_table")

    @property
    def place(self) -> str:
        return str(self.settings.table)

    @property
    def quoted_table(self) -> str:
        return self.quoted(self.settings.table)

    @property
    def offsets(self) -> OffsetsTable:
        return Positions(self.quoted(self.settings.offsets_table), self.settings.offsets_table, self.writer_name or "w")

    def quoted(self, name: str, *, option: str | None = None) -> str:
        return '"' + name.replace('"', '""') + '"'

    def translating(self) -> AbstractContextManager[None]:
        return _translating()

    def connect(self) -> Any:
        return Connection(self.settings.database)

    def describe(self, connection: Any) -> Table | None:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(f"PRAGMA table_info({self.quoted_table})")
            rows = cursor.fetchall()
        columns = {row[1]: Column(row[2], not row[3] and not row[5], row[4] is not None) for row in rows}
        key = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
        return Table(columns, {"PRIMARY": key} if key else {}) if rows else None

    def no_such_table(self, connection: Any, hint: str) -> JobError:
        return JobError(f"there is no table {self.place}", plugin="sqlite", option="table", hint=hint)

    def create(self, connection: Any, schema: Schema) -> None:
        self.offsets.forget(connection)
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(self.create_statement(schema, lambda kind, in_key: _TYPES[kind]))
            connection.commit()

    def check_kind(self, table: Table, targets: Sequence[str] | None) -> None:
        if self.settings.mode == "upsert" and not table.unique_keys:
            raise JobError(f"{self.where} needs a key", plugin="sqlite", option="mode")

    def misfit(self, kind: pl.DataType, column: Column) -> str | None:
        return None if _TYPES.get(kind) == column.kind else f"{kind} values do not fit {column.kind}"

    def check_rights(self, connection: Any, table: Table, names: Sequence[str], *, known: bool) -> None:
        return

    def prepared(self, rows: pl.DataFrame, deleted: pl.DataFrame | None, table: Table) -> Any:
        return rows, deleted

    def write(self, connection: Any, cursor: Any, prepared: Any) -> None:
        rows, deleted = prepared
        if deleted is not None and deleted.height:
            same = " AND ".join(f"{self.quoted(self.target(name))} IS %s" for name in deleted.columns)
            cursor.executemany(f"DELETE FROM {self.quoted_table} WHERE {same}", deleted.rows())  # noqa: S608
        names = ", ".join(self.quoted(self.target(name)) for name in rows.columns)
        verb = "INSERT OR REPLACE" if self.settings.mode == "upsert" else "INSERT"
        values = ", ".join(["%s"] * rows.width)
        cursor.executemany(f"{verb} INTO {self.quoted_table} ({names}) VALUES ({values})", rows.rows())


SCHEMA = Schema.of({"id": "int64", "who": "string"})


def sink_of(path: Path, **more: Any) -> SQLiteSink:
    options = {"database": str(path / "a.db"), "table": "t", "create_table": True, "key": ["id"], **more}
    sink = SQLiteSink(SQLiteSettings.of(options, plugin="sqlite"))
    sink.writer_name = "test.job.sink"
    return sink


def rows_of(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path / "a.db")) as connection:
        return connection.execute("SELECT * FROM t ORDER BY id").fetchall()


def batch(rows: Sequence[tuple[int, str]], first: int, after: Position | None) -> SinkBatch:
    frame = pl.DataFrame(
        [(first + number, 0, *row) for number, row in enumerate(rows)],
        schema={OFFSET: pl.Int64, INDEX: pl.Int32, "id": pl.Int64, "who": pl.String}, orient="row",
    )  # fmt: skip
    return SinkBatch(Queue("q"), frame, after)


def test_a_job_writes_by_key_and_goes_on(tmp_path: Path) -> None:
    for part, rows in enumerate(['{"id": 1, "who": "a"}\n{"id": 2, "who": "b"}\n', '{"id": 2, "who": "c"}\n']):
        (tmp_path / f"{part}.ndjson").write_text(rows)
        stream = hr.stream("test", f"part{part}").from_file(
            str(tmp_path / f"{part}.ndjson"), format="json", schema={"id": "int64", "who": "string"}
        )
        stream.to(sink_of(tmp_path, mode="upsert")).run("light", show_progress=False)
    assert rows_of(tmp_path) == [(1, "a"), (2, "c")]


def test_rows_and_position_are_stored_together(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.check(SCHEMA)
    sink.prepare(SCHEMA)
    sink.open()
    sink.batch_insert(batch([(1, "a"), (2, "b")], 0, None))
    assert sink.last_offset(Queue("q")) == Position(1, 0)
    with pytest.raises(DataError, match="UNIQUE"):
        sink.batch_insert(batch([(3, "c"), (1, "again")], 2, Position(1, 0)))
    assert (rows_of(tmp_path), sink.last_offset(Queue("q"))) == ([(1, "a"), (2, "b")], Position(1, 0))
    with pytest.raises(StaleWriterError):
        sink.batch_insert(batch([(4, "d")], 0, None))
    sink.batch_insert(batch([(4, "d")], 2, Position(1, 0)))
    sink.close()
    assert rows_of(tmp_path) == [(1, "a"), (2, "b"), (4, "d")]


@pytest.mark.parametrize(
    ("more", "schema", "problem"),
    [
        ({"columns": {"nobody": "x"}}, SCHEMA, "unknown column 'nobody'"),
        ({"columns": {"id": "who"}}, SCHEMA, "both go to column 'who'"),
        ({"key": ["ids"]}, SCHEMA, "unknown column 'ids'"),
        ({}, None, "not known when the job is built"),
        ({"create_table": False}, SCHEMA, "there is no table t"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_start(
    tmp_path: Path, more: dict[str, Any], schema: Schema | None, problem: str
) -> None:
    sink = sink_of(tmp_path, **more)

    def begin() -> None:
        sink.check(schema)
        sink.prepare(schema)

    with pytest.raises(HeadraceError, match=problem):
        begin()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, who INTEGER)", "values do not fit INTEGER"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY)", "it has no column 'who'"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, who TEXT, more TEXT NOT NULL)", "needs a value for the column 'more'"),
        ("CREATE TABLE t (id INTEGER, who TEXT PRIMARY KEY)", r"has no such key, only PRIMARY \(who\)"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, statement: str, problem: str) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute(statement)
    sink = sink_of(tmp_path, mode="upsert")
    sink.changes = Changes(("id",))
    with pytest.raises(JobError, match=problem):
        sink.prepare(SCHEMA)
