"""The sink: what it checks before the start, what it does with rows, and with what the server refuses."""

from __future__ import annotations

import json
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, ChangeKind, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkBatch, StaleWriterError
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySource
from headrace_postgres import PostgresSinkSettings
from postgres_world import PostgresDatabase

from tests.sink_tests import TableOptionChecks, batch, insert, numbers, text_of

ID = {"id": "int64"}
TWO = {"id": "int64", "name": "string"}


class TestOptions(TableOptionChecks):
    settings = PostgresSinkSettings
    plugin = "postgres"


class TestBeforeTheStart:
    def test_missing_table_names_the_nearest(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE events (id BIGINT)")
        text = text_of(JobError, lambda: postgres.sink(ID, table="event"))
        assert f"there is no table 'event' in the schema 'public' of database '{postgres.name}'" in text
        assert "hint: did you mean 'events'?; create_table=True creates it" in text

    def test_missing_column_names_the_nearest(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT, full_name TEXT)")
        text = text_of(JobError, lambda: postgres.sink({"id": "int64", "fullname": "string"}))
        assert "it has no column 'fullname'" in text
        assert "did you mean 'full_name'?; map names with columns={...}" in text

    def test_missing_database(self, postgres: PostgresDatabase) -> None:
        text = text_of(JobError, lambda: postgres.sink(ID, database="nowhere"))
        assert "[plugin 'postgres', option 'database']" in text
        assert "hint: create the database, or name another" in text

    def test_wrong_password_is_not_shown(self, postgres: PostgresDatabase) -> None:
        text = text_of(JobError, lambda: postgres.sink(ID, password="hunter2"))
        assert "[plugin 'postgres', option 'user']" in text
        assert "hunter2" not in text

    @pytest.mark.parametrize(
        ("kind", "declared"),
        [
            ("string", "integer"), ("string", "timestamp"), ("string", "bytea"), ("int64", "varchar(20)"), ("int64", "real"),
            ("int64", "double precision"), ("float64", "integer"), ("timestamp", "date"), ("timestamp", "bigint"), ("date", "time"),
            ("decimal(10, 2)", "integer"), ("binary", "text"), ("array<int64>", "integer"), ("boolean", "text"),
        ],
    )  # fmt: skip
    def test_type_misfit(self, postgres: PostgresDatabase, kind: str, declared: str) -> None:
        postgres.execute(f"CREATE TABLE t (id BIGINT, v {declared})")
        text = text_of(JobError, lambda: postgres.sink({"id": "int64", "v": kind}))
        assert f"{kind} values do not fit the column 'v'" in text
        assert "hint: CAST the column in a select() before the sink" in text

    def test_a_column_that_must_have_a_value(self, postgres: PostgresDatabase) -> None:
        postgres.execute(
            "CREATE TABLE t (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id BIGINT, a INT NOT NULL DEFAULT 3, b INT,"
            " c BIGINT GENERATED ALWAYS AS (id + 1) STORED, needed INT NOT NULL)"
        )
        assert "needs a value for the column 'needed'" in text_of(JobError, lambda: postgres.sink(ID))
        postgres.execute("ALTER TABLE t DROP needed")
        sink = postgres.sink(ID)
        insert(sink, numbers("q", 0, 2))
        sink.close()
        assert postgres.execute("SELECT id, a, b, c FROM t ORDER BY id") == [(0, 3, None, 1), (1, 3, None, 2)]

    def test_a_computed_column_takes_no_values(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT, c BIGINT GENERATED ALWAYS AS (id + 1) STORED)")
        text = text_of(JobError, lambda: postgres.sink({"id": "int64", "c": "int64"}))
        assert "the server computes the column 'c'" in text

    def test_an_unlogged_table(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE UNLOGGED TABLE t (id BIGINT)")
        assert "it is UNLOGGED" in text_of(JobError, lambda: postgres.sink(ID))

    def test_upsert_without_a_key(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT)")
        text = text_of(JobError, lambda: postgres.sink(ID, mode="upsert"))
        assert "mode 'upsert' needs a primary or unique key, and the table has none" in text

    def test_a_table_of_positions_that_is_none(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT)")
        postgres.execute("CREATE TABLE other (id BIGINT)")
        text = text_of(JobError, lambda: postgres.sink(ID, offsets_table="other"))
        assert f"table {postgres.name}.public.other is not a table of positions" in text

    def test_a_user_who_may_not_write(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT)")
        postgres.sink(ID).close()
        name = f"reader_{postgres.name}"
        postgres.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'p'")
        try:
            postgres.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{name}"')
            text = text_of(JobError, lambda: postgres.sink(ID, user=name, password="p"))
            assert "permission denied" in text
        finally:
            postgres.execute(f'DROP OWNED BY "{name}"')
            postgres.execute(f'DROP ROLE "{name}"')

    def test_a_view_is_written_through(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE base (id BIGINT)")
        postgres.execute("CREATE VIEW t AS SELECT id FROM base")
        sink = postgres.sink(ID)
        insert(sink, numbers("q", 0, 3))
        sink.close()
        assert postgres.ids("base") == [0, 1, 2]


class TestNames:
    def test_any_name_is_quoted(self, postgres: PostgresDatabase) -> None:
        postgres.execute('CREATE SCHEMA "a ""b"""')
        name = 'x"; DROP TABLE y; -- %s'
        schema = {"id": "int64", 'a%"b': "string"}
        sink = postgres.sink(schema, table=name, schema='a "b"', create_table=True, key=["id"], mode="upsert")
        for first in (0, 1):
            insert(sink, batch(f"q{first}", [{"id": 1, 'a%"b': f"{first}\\\t\n'"}], schema))
        sink.close()
        quoted = name.replace('"', '""')
        [(found,)] = postgres.execute(f'SELECT "a%""b" FROM "a ""b"""."{quoted}"')  # noqa: S608
        assert found == "1\\\t\n'"


class TestModes:
    def test_insert_sends_a_key_that_is_there_to_the_dead_letters(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
        postgres.execute("INSERT INTO t VALUES (2, 'old')")
        sink = postgres.sink(TWO)
        letters: list[Any] = []
        writer = SinkWriter(sink, "to_postgres", on_dead_letters=letters.append, auto_flush=False)
        writer.write(batch("q", [{"id": n, "name": "new"} for n in range(5)], TWO))
        writer.close()
        assert postgres.execute("SELECT * FROM t ORDER BY id") == [
            (0, "new"), (1, "new"), (2, "old"), (3, "new"), (4, "new"),
        ]  # fmt: skip
        [reason] = [letter.frame["reason"][0] for letter in letters]
        assert "duplicate key value violates unique constraint" in reason

    def test_a_text_that_no_server_stores_is_a_dead_letter(self, postgres: PostgresDatabase) -> None:
        sink = postgres.sink(TWO, create_table=True)
        letters: list[Any] = []
        writer = SinkWriter(sink, "to_postgres", on_dead_letters=letters.append, auto_flush=False)
        writer.write(batch("q", [{"id": n, "name": "a\0b" if n == 1 else "\\."} for n in range(3)], TWO))
        writer.close()
        assert postgres.execute("SELECT * FROM t ORDER BY id") == [(0, "\\."), (2, "\\.")]
        assert len(letters) == 1

    def test_upsert_keeps_columns_that_the_stream_does_not_have(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, note TEXT)")
        postgres.execute("INSERT INTO t VALUES (1, 'old', 'kept')")
        sink = postgres.sink(TWO, mode="upsert")
        rows = [{"id": 1, "name": "first"}, {"id": 2, "name": "two"}, {"id": 1, "name": "last"}]
        insert(sink, batch("q", rows, TWO))
        sink.close()
        assert postgres.execute("SELECT * FROM t ORDER BY id") == [(1, "last", "kept"), (2, "two", None)]

    def test_a_second_writer_of_a_queue_is_stale(self, postgres: PostgresDatabase) -> None:
        one, other = postgres.sink(ID, create_table=True), postgres.sink(ID, create_table=True)
        insert(one, numbers("q", 0, 5))
        with pytest.raises(StaleWriterError):
            insert(other, numbers("q", 0, 5))
        assert one.last_offset(Queue("q")) == other.last_offset(Queue("q"))
        one.close()
        other.close()
        assert postgres.ids() == [0, 1, 2, 3, 4]

    def test_positions_go_back_with_the_rows(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (id BIGINT CHECK (id < 3))")
        sink = postgres.sink(ID)
        with pytest.raises(hr.HeadraceError, match="violates check constraint"):
            insert(sink, numbers("q", 0, 5))
        assert sink.last_offset(Queue("q")) is None
        sink.close()
        assert postgres.ids() == []


class TestChanges:
    SCHEMA = {"k": "string", "v": "int64"}

    def job(self, postgres: PostgresDatabase, rows: list[tuple[Any, int]], **options: Any) -> Any:
        bodies = {"q": [json.dumps({"k": k, "v": v}).encode() for k, v in rows]}
        stream = hr.stream("shop", "sales").from_(MemorySource(bodies), format="json", schema=self.SCHEMA, name="in")
        return stream.key_by("k").agg(total="sum(v)").to_postgres(**postgres.options(mode="upsert", **options))

    def test_a_changelog_by_key(self, postgres: PostgresDatabase) -> None:
        self.job(postgres, [("ab"[n % 2], n) for n in range(10)], create_table=True, key=["k"]).run("light")
        assert postgres.execute("SELECT * FROM t ORDER BY k") == [("a", 20), ("b", 25)]

    def test_another_key_is_refused(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (k TEXT PRIMARY KEY, total BIGINT UNIQUE)")
        postgres.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
        with pytest.raises(
            JobError, match=r"the stream is a changelog with the key k, but the table .* has no such key"
        ):
            self.job(postgres, [("a", 1)]).run("light")

    def test_null_in_a_key_is_a_value(self, postgres: PostgresDatabase) -> None:
        postgres.execute("CREATE TABLE t (k TEXT UNIQUE, total BIGINT)")
        sink = postgres.sink(None, prepare=False, mode="upsert")
        sink.changes = hr.Changes(("k",))
        schema = {"k": "string", "total": "int64"}
        sink.prepare(hr.Schema.of({"k": "string", "total": "int64"}))
        after = None
        steps: list[list[tuple[str | None, int, int]]] = [
            [(None, 1, ChangeKind.INSERT), ("a", 1, ChangeKind.INSERT)],
            [(None, 2, ChangeKind.UPDATE_AFTER), ("a", 2, ChangeKind.UPDATE_AFTER)],
            [(None, 2, ChangeKind.DELETE)],
        ]
        seen = []
        for number, step in enumerate(steps):
            rows = [{"k": k, "total": total} for k, total, _ in step]
            kinds = pl.Series(CHANGE, [int(kind) for _, _, kind in step], dtype=pl.Int8)
            frame = batch("q", rows, schema, first=10 * number).frame.with_columns(kinds)
            made = SinkBatch(Queue("q"), frame, after)
            sink.batch_insert(made)
            after = made.last
            seen.append(sorted(postgres.execute("SELECT * FROM t"), key=str))
        sink.close()
        assert seen == [[("a", 1), (None, 1)], [("a", 2), (None, 2)], [("a", 2)]]


def test_jdbc_in_sql(postgres: PostgresDatabase) -> None:
    server = postgres.server
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.totals (who TEXT PRIMARY KEY, n BIGINT)")
    postgres.execute(
        "CREATE TABLE people (who TEXT PRIMARY KEY, age INT); INSERT INTO people VALUES ('ann', 3), ('bob', 4), ('eve', 3)"
    )
    place = f"""'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{server.host}:{server.port}/{postgres.name}',
      'username' = '{server.user}', 'password' = '{server.password}'"""
    hr.sql(f"""
        CREATE TABLE people (who STRING, age INT, PRIMARY KEY (who) NOT ENFORCED) WITH ({place}, 'table-name' = 'people');
        CREATE TABLE totals (who STRING, n BIGINT, PRIMARY KEY (who) NOT ENFORCED) WITH ({place}, 'table-name' = 'shop.totals');
        INSERT INTO totals SELECT MAX(who), COUNT(*) AS n FROM people GROUP BY age
        ON CONFLICT DO DEDUPLICATE
    """).run("light")  # noqa: S608
    assert postgres.execute("SELECT * FROM shop.totals ORDER BY who") == [("bob", 1), ("eve", 2)]


def test_a_lookup_table(postgres: PostgresDatabase) -> None:
    postgres.execute(
        "CREATE TABLE t (code TEXT PRIMARY KEY, name TEXT); INSERT INTO t VALUES ('de', 'Germany'), ('fr', 'France')"
    )
    bodies = {"q": [json.dumps({"id": n, "code": code}).encode() for n, code in enumerate(["fr", "de", "xx"])]}
    table = hr.stream("shop", "countries").from_postgres(**postgres.options())
    stream = hr.stream("shop", "rows").from_(
        MemorySource(bodies), format="json", schema={"id": "int64", "code": "string"}, name="in"
    )
    found: Any = stream.lookup_join(table, on="code").collect()
    assert sorted(found.select("id", "name").rows()) == [(0, "France"), (1, "Germany")]
