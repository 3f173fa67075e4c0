"""The sink: what it checks before the start, what it does with rows, and with what the server refuses."""

from __future__ import annotations

import json
import logging
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Position, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, OptionError
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySink, MemorySource
from headrace_mysql import MySQLSinkSettings
from mysql_world import Database

from tests.sink_tests import TableOptionChecks, batch, insert, numbers, text_of

ID = {"id": "int64"}
TWO = {"id": "int64", "name": "string"}


class TestOptions(TableOptionChecks):
    settings = MySQLSinkSettings
    plugin = "mysql"
    same_table = "T"


class TestBeforeTheStart:
    def test_missing_table_names_the_nearest(self, database: Database) -> None:
        database.execute("CREATE TABLE events (id BIGINT)")
        text = text_of(JobError, lambda: database.sink(ID, table="event"))
        server = database.server
        assert text == (
            f"MySQL at {server.host}:{server.port}: there is no table 'event' in database '{database.name}' that user"
            f" '{server.user}' may see [plugin 'mysql', option 'table']\n"
            "  hint: did you mean 'events'?; create_table=True creates it"
        )

    def test_missing_column_names_the_nearest(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT, full_name TEXT)")
        text = text_of(JobError, lambda: database.sink({"id": "int64", "fullname": "string"}))
        server = database.server
        assert text == (
            f"MySQL at {server.host}:{server.port}, table {database.name}.t: it has no column 'fullname'"
            " [plugin 'mysql', option 'columns']\n"
            "  hint: did you mean 'full_name'?; map names with columns={...}"
        )

    def test_missing_database(self, database: Database) -> None:
        text = text_of(JobError, lambda: database.sink(ID, database="nowhere"))
        assert "Unknown database 'nowhere' (error 1049) [plugin 'mysql', option 'database']" in text
        assert "hint: create the database, or name another" in text

    def test_mapping_of_a_column_that_the_stream_does_not_have(self, database: Database) -> None:
        text = text_of(JobError, lambda: database.sink(TWO, columns={"nmae": "title"}, prepare=False))
        assert text == "unknown column 'nmae' [plugin 'mysql', option 'columns']\n  hint: did you mean 'name'?"

    @pytest.mark.parametrize(
        ("kind", "declared"),
        [
            ("string", "INT"), ("string", "DATETIME"), ("string", "BLOB"), ("int64", "VARCHAR(20)"), ("int64", "FLOAT"),
            ("int64", "DOUBLE"), ("float64", "INT"), ("timestamp", "DATE"), ("timestamp", "BIGINT"), ("date", "TIME"),
            ("decimal(10, 2)", "INT"), ("binary", "TEXT"), ("array<int64>", "INT"), ("boolean", "TEXT"),
        ],
    )  # fmt: skip
    def test_type_misfit(self, database: Database, kind: str, declared: str) -> None:
        database.execute(f"CREATE TABLE t (id BIGINT, v {declared})")
        text = text_of(JobError, lambda: database.sink({"id": "int64", "v": kind}))
        assert f"{kind} values do not fit the column 'v' {declared.split('(')[0]}" in text
        assert "[plugin 'mysql', option 'columns']\n  hint: CAST the column in a select() before the sink" in text

    def test_a_column_that_must_have_a_value(self, database: Database) -> None:
        database.execute(
            "CREATE TABLE t (n BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT, a INT NOT NULL DEFAULT 3, b INT,"
            " c INT AS (id + 1), at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, needed INT NOT NULL)"
        )
        text = text_of(JobError, lambda: database.sink(ID))
        assert "needs a value for the column 'needed', which the stream does not have" in text
        database.execute("ALTER TABLE t DROP needed")
        sink = database.sink(ID)
        insert(sink, numbers("q", 0, 2))
        sink.close()
        assert database.execute("SELECT id, a, b, c FROM t") == [(0, 3, None, 1), (1, 3, None, 2)]

    def test_a_table_without_transactions(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT) ENGINE = MyISAM")
        text = text_of(JobError, lambda: database.sink(ID))
        assert "its engine MyISAM has no transactions" in text
        assert "ENGINE = InnoDB" in text

    @pytest.mark.parametrize("mode", ["upsert", "replace"])
    def test_upsert_without_a_key(self, database: Database, mode: str) -> None:
        database.execute("CREATE TABLE t (id BIGINT)")
        text = text_of(JobError, lambda: database.sink(ID, mode=mode))
        assert f"mode '{mode}' needs a primary or unique key, and the table has none" in text

    def test_a_table_of_positions_that_is_none(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT)")
        database.execute("CREATE TABLE other (id BIGINT)")
        text = text_of(JobError, lambda: database.sink(ID, offsets_table="other"))
        assert f"table {database.name}.other is not a table of positions" in text

    def test_a_view_is_written_through(self, database: Database) -> None:
        database.execute("CREATE TABLE base (id BIGINT)")
        database.execute("CREATE VIEW t AS SELECT id FROM base")
        sink = database.sink(ID)
        insert(sink, numbers("q", 0, 3))
        sink.close()
        assert database.ids("base") == [0, 1, 2]


class TestCreatedTable:
    def test_columns_and_key(self, database: Database) -> None:
        schema = {"id": "int64", "name": "string", "price": "decimal(12, 2)", "at": "timestamp"}
        database.sink(schema, create_table=True, key=["name", "id"], columns={"name": "title"}).close()
        [(_, made)] = database.execute("SHOW CREATE TABLE t")
        for part in (
            "`id` bigint(20) NOT NULL", "`title` varchar(255)", "`price` decimal(12,2) DEFAULT NULL",
            "`at` datetime(6) DEFAULT NULL", "PRIMARY KEY (`title`,`id`)", "ENGINE=InnoDB",
        ):  # fmt: skip
            assert part in made

    def test_keys_that_differ_in_case_are_two(self, database: Database) -> None:
        sink = database.sink({"name": "string"}, create_table=True, key=["name"], mode="upsert")
        insert(sink, batch("q", [{"name": "a"}, {"name": "A"}, {"name": "á"}, {"name": "a"}], {"name": "string"}))
        sink.close()
        assert sorted(row["name"] for row in database.rows("t")) == ["A", "a", "á"]

    def test_unknown_key_column(self, database: Database) -> None:
        text = text_of(JobError, lambda: database.sink(TWO, create_table=True, key=["nam"], prepare=False))
        assert "unknown column 'nam'" in text
        assert "did you mean 'name'?" in text

    def test_unknown_columns_cannot_be_created(self, database: Database) -> None:
        assert "give the map() before it an option schema={...}" in text_of(
            JobError, lambda: database.sink(None, create_table=True)
        )

    def test_a_dropped_table_takes_all_rows_again(self, database: Database) -> None:
        sink = database.sink(ID, create_table=True)
        insert(sink, numbers("q", 0, 5))
        sink.close()
        database.execute("DROP TABLE t")
        sink = database.sink(ID, create_table=True)
        assert sink.last_offset(Queue("q")) is None
        insert(sink, numbers("q", 0, 5))
        sink.close()
        assert database.ids() == [0, 1, 2, 3, 4]


class TestModes:
    def test_insert_sends_a_key_that_is_there_to_the_dead_letters(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO t VALUES (2, 'old')")
        sink = database.sink(TWO)
        letters: list[Any] = []
        writer = SinkWriter(sink, "to_mysql", on_dead_letters=letters.append, auto_flush=False)
        writer.write(batch("q", [{"id": n, "name": "new"} for n in range(5)], TWO))
        writer.close()
        assert database.execute("SELECT * FROM t ORDER BY id") == [
            (0, "new"), (1, "new"), (2, "old"), (3, "new"), (4, "new"),
        ]  # fmt: skip
        [reason] = [letter.frame["reason"][0] for letter in letters]
        assert "Duplicate entry '2' for key 'PRIMARY'" in reason

    def test_upsert_keeps_columns_that_the_stream_does_not_have(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, note TEXT)")
        database.execute("INSERT INTO t VALUES (1, 'old', 'kept')")
        sink = database.sink(TWO, mode="upsert")
        rows = [{"id": 1, "name": "first"}, {"id": 2, "name": "two"}, {"id": 1, "name": "last"}]
        insert(sink, batch("q", rows, TWO))
        sink.close()
        assert database.execute("SELECT * FROM t ORDER BY id") == [(1, "last", "kept"), (2, "two", None)]

    def test_replace_does_not(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, note TEXT)")
        database.execute("INSERT INTO t VALUES (1, 'old', 'lost')")
        sink = database.sink(TWO, mode="replace")
        insert(sink, batch("q", [{"id": 1, "name": "new"}], TWO))
        sink.close()
        assert database.execute("SELECT * FROM t") == [(1, "new", None)]


class TestBadRows:
    def test_each_goes_to_the_dead_letters_alone(self, database: Database) -> None:
        """Too long, out of range, NULL where none may be, no JSON, a failed check, a missing parent: 6 of 200."""
        database.execute("CREATE TABLE parent (id INT PRIMARY KEY)")
        database.execute("INSERT INTO parent VALUES (1)")
        database.execute(
            "CREATE TABLE t (id SMALLINT, name VARCHAR(5) NOT NULL, doc JSON, n INT CHECK (n < 100), p INT,"
            " FOREIGN KEY (p) REFERENCES parent (id))"
        )
        schema = {"id": "int64", "name": "string", "doc": "string", "n": "int64", "p": "int64"}
        rows: list[dict[str, Any]] = [{"id": n, "name": "ok", "doc": "{}", "n": 1, "p": 1} for n in range(200)]
        rows[3]["id"] = 40_000
        rows[50]["name"] = "too long"
        rows[51]["name"] = None
        rows[100]["doc"] = "{cut"
        rows[198]["n"] = 100
        rows[199]["p"] = 2
        sink = database.sink(schema)
        letters: list[Any] = []
        writer = SinkWriter(sink, "to_mysql", on_dead_letters=letters.append, auto_flush=False)
        writer.write(batch("q", rows, schema))
        writer.flush()
        assert sink.last_offset(Queue("q")) == Position(197)
        writer.close()
        found = {letter.frame["offset"][0]: letter.frame["reason"][0] for letter in letters}
        wanted = {
            3: "Out of range value for column 'id'", 50: "Data too long for column 'name'", 51: "'name' cannot be null",
            100: "CONSTRAINT `t.doc` failed", 198: "CONSTRAINT `t.n` failed", 199: "a foreign key constraint fails",
        }  # fmt: skip
        assert found.keys() == wanted.keys()
        for offset, part in wanted.items():
            assert part in found[offset]
        assert database.ids() == [n for n in range(200) if n not in wanted]

    def test_a_row_larger_than_the_server_takes(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT, name LONGTEXT)")
        [(size,)] = database.execute("SELECT @@max_allowed_packet")
        sink = database.sink(TWO)
        letters: list[Any] = []
        writer = SinkWriter(sink, "to_mysql", on_dead_letters=letters.append, auto_flush=False)
        rows = [{"id": 0, "name": "a"}, {"id": 1, "name": "x" * size}, {"id": 2, "name": "y" * (size - 10_000)}]
        writer.write(batch("q", rows, TWO))
        writer.close()
        assert [letter.frame["offset"][0] for letter in letters] == [1]
        assert "max_allowed_packet" in letters[0].frame["reason"][0]
        assert database.ids() == [0, 2]

    def test_rows_of_unknown_columns(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT, name TEXT)")
        rows = [b'{"id": 1, "name": "a"}', b'{"id": 2, "naem": "b"}', b'{"id": 3}', b'{"id": "four"}']
        dead = MemorySink()
        report = (
            hr.stream("test", "dynamic")
            .from_(MemorySource({"q": rows}), format="raw")
            .map(_row_of_its_own)
            .dead_letters(lambda bad: bad.to(dead, name="dead"))
            .to_mysql(**database.options())
            .run("light", show_progress=False)
        )
        reasons = {row["offset"]: row["reason"] for row in dead.rows}
        assert "it has no column 'naem'" in reasons[1]
        assert "string values do not fit the column 'id' BIGINT" in reasons[3]
        assert report.dead_letters == 2
        assert database.execute("SELECT * FROM t ORDER BY id") == [(1, "a"), (3, None)]


def _row_of_its_own(row: dict[str, Any]) -> dict[str, Any]:
    [body] = row.values()
    made: dict[str, Any] = json.loads(body)
    return made


ODD_NAMES = (
    "select", "two words", "back`tick", "``", "per%cent", "%s", "quote'", 'double"', "semi;colon", "漢字", "a) VALUES (1); --",
    "x` TEXT); DROP TABLE t; -- ", "back\\slash",
)  # fmt: skip


class TestNames:
    @pytest.mark.parametrize("mode", ["insert", "upsert", "replace"])
    def test_every_name_is_only_a_name(self, database: Database, mode: str) -> None:
        names = [name.rstrip() for name in ODD_NAMES]
        schema = {"id": "int64", **{name: "string" for name in names}}
        database.execute("CREATE TABLE bystander (id INT)")
        table, offsets = "t`; DROP TABLE bystander; -- %s", "off`sets %s"
        options: dict[str, Any] = {
            "table": table,
            "offsets_table": offsets,
            "create_table": True,
            "key": ["id"],
            "mode": mode,
        }
        sink = database.sink(schema, **options)
        first = batch("q", [{"id": n, **{name: f"{name} {n}" for name in names}} for n in range(3)], schema)
        insert(sink, first)
        assert sink.last_offset(Queue("q")) == Position(2)
        more = batch("q", [{"id": 3, **dict.fromkeys(names, "more")}], schema, 3)
        insert(sink, more, Position(2))
        sink.close()
        reader = database.source(table=table).open(Queue(f"{table}[0,1000000)"), hr.EARLIEST)
        from datetime import timedelta

        raw = reader.poll(10, timedelta(0))
        assert raw is not None
        assert raw.frame is not None
        assert raw.frame.to_dicts() == [*first.user_frame().to_dicts(), *more.user_frame().to_dicts()]
        assert reader.position_after(2).offset == 4
        reader.close()
        tables = {name for (name,) in database.execute("SHOW TABLES")}
        assert tables == {table, offsets, "bystander"}

    @pytest.mark.parametrize("name", ["", "nul\0", "x" * 65, "blank "])
    def test_impossible_names(self, database: Database, name: str) -> None:
        text = text_of(OptionError, lambda: database.sink(ID, table=name, prepare=False))
        assert "cannot be the name of a table or column [plugin 'mysql', option 'table']" in text
        assert "cannot be the name" in text_of(OptionError, lambda: database.source(table=name))

    def test_columns_that_differ_in_case(self, database: Database) -> None:
        text = text_of(JobError, lambda: database.sink({"id": "int64", "ID": "int64"}, prepare=False))
        assert "columns 'id' and 'ID' of the stream both go to column 'ID'" in text


def test_unknown_errors_stop_the_job_and_send_nothing_to_the_dead_letters(database: Database) -> None:
    """A table that changes under the job is not the fault of the rows."""
    database.execute("CREATE TABLE t (id BIGINT)")
    sink = database.sink(ID)
    database.execute("ALTER TABLE t CHANGE id other BIGINT")
    text = text_of(JobError, lambda: insert(sink, numbers("q", 0, 3)))
    assert "Unknown column 'id'" in text
    database.execute("DROP TABLE t")
    assert "it was removed or changed since the job started" in text_of(
        JobError, lambda: insert(sink, numbers("q", 0, 3))
    )
    assert sink.last_offset(Queue("q")) is None
    sink.close()


def test_positions_are_kept_by_whole_names(database: Database) -> None:
    """Long names, and names that differ in case, accents or blanks at the end, are different ones."""
    sinks = []
    for writer in ("a.b.c", "A.b.c", "á.b.c", "a.b.c ", "x" * 600, "x" * 601):
        sink = database.sink(ID, create_table=True)
        sink.writer_name = writer
        sinks.append(sink)
    queues = ["q", "Q", "q ", "y" * 2000, "y" * 2001]
    for at, sink in enumerate(sinks):
        for n, queue in enumerate(queues):
            insert(sink, numbers(queue, 0, at + n + 1))
    for at, sink in enumerate(sinks):
        assert [sink.last_offset(Queue(queue)) for queue in queues] == [Position(at + n) for n in range(5)]
        sink.close()


def test_the_password_shows_nowhere(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    from headrace_mysql import MySQLSink

    made = MySQLSink(MySQLSinkSettings.of({**database.options(), "password": "s3cr3t-x"}, plugin="mysql"))
    with caplog.at_level(logging.DEBUG):
        text = text_of(JobError, made.open)
    server = database.server
    assert f"MySQL at {server.host}:{server.port}, table {database.name}.t: Access denied for user" in text
    assert "[plugin 'mysql', option 'user']\n  hint: check user and password" in text
    assert "s3cr3t-x" not in text + repr(made.settings) + caplog.text + repr(made.__dict__)


def test_data_error_has_no_table_of_its_own(database: Database) -> None:
    database.execute("CREATE TABLE t (id TINYINT)")
    sink = database.sink(ID)
    text = text_of(DataError, lambda: insert(sink, numbers("q", 1000, 1)))
    assert "Out of range value for column 'id' at row 1 (error 1264)" in text
    sink.close()


def test_schema_objects_are_taken(database: Database) -> None:
    sink = database.sink(ID, create_table=True)
    sink.check(Schema.of(ID))
    sink.close()
