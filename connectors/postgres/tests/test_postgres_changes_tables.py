"""Values are the same in the snapshot and in the log; what the log cannot say of a table, or of another table, stops the job."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from headrace.flow.messages import ChangeKind, Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST
from headrace_postgres import PostgresSource, PostgresSourceSettings
from headrace_postgres.connection import translated
from postgres_changes_world import applied, changes_in, changes_of, opened
from postgres_world import PostgresDatabase

from tests.change_readers import SECOND, read_to_end
from tests.eventually import eventually
from tests.servers.errors import ServerStartError
from tests.servers.fixtures import StartPostgreSQLServer
from tests.servers.postgresql import PostgreSQLOptions

INS, B, A, D = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE


#: Value in SQL and as it is read, by type.
VALUES: dict[str, tuple[str, Any]] = {
    "boolean": ("true", True),
    "char(5)": ("'ab'", "ab   "),
    "inet": ("'10.0.0.1'", "10.0.0.1"),
    "cidr": ("'10.0.0.0/8'", "10.0.0.0/8"),
    '"char"': ("'z'", "z"),
    "name": ("'n'", "n"),
    "xml": ("'<a/>'", "<a/>"),
    "boolean[]": ("ARRAY[true, NULL]", "{t,NULL}"),
    "char(3)[]": ("ARRAY['a']", '{"a  "}'),
    "numeric(6,2)": ("1.5", Decimal("1.50")),
    "numeric": ("'NaN'", "NaN"),
    "double precision": ("'-Infinity'", float("-inf")),
    "bytea": (r"'\x00ff'", b"\x00\xff"),
    "interval": ("'1 day'", "1 day"),
    "money": ("'1.5'", "$1.50"),
    "text": ("''", ""),
    "timestamp": ("'infinity'", None),
}


def test_values_are_the_same_in_the_table_and_in_the_log(followed: PostgresDatabase) -> None:
    followed.execute("SET lc_monetary = 'C'")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(VALUES))
    followed.execute("CREATE TYPE pair AS (a boolean, b char(2))")
    followed.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}, pair pair, more INT)")
    followed.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    values = ", ".join(value for value, _ in VALUES.values())
    followed.execute(f"INSERT INTO t VALUES (1, {values}, (NULL, NULL), 0)")  # noqa: S608
    followed.execute("INSERT INTO t (id) VALUES (2)")
    one = (1, *(value for _, value in VALUES.values()), "(,)", 0)
    other = (2, *[None] * (len(VALUES) + 2))
    settings = PostgresSourceSettings.of(followed.options(), plugin="postgres")
    reader = PostgresSource(settings).open(Queue("t"), EARLIEST)
    raw = reader.poll(10, SECOND)
    reader.close()
    assert raw is not None
    assert raw.frame is not None
    money = list(VALUES).index("money") + 1
    given = raw.frame.rows()[0]
    one = (*one[:money], given[money], *one[money + 1 :])  # its text depends on the server's language
    assert raw.frame.rows() == [one, other]
    with opened(followed) as changes:
        assert changes_in(read_to_end(changes)) == [(INS, *one), (INS, *other)]
        followed.execute("UPDATE t SET more = 1")
        rows = changes_in(read_to_end(changes))
    assert rows == [(B, *one), (A, *one[:-1], 1), (B, *other), (A, *other[:-1], 1)]


def test_a_key_of_blank_padded_characters(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id CHAR(4) PRIMARY KEY, v INT)")
    followed.execute("INSERT INTO t SELECT 'k' || n, n FROM generate_series(1, 9) n")
    with opened(followed, chunk_rows=4) as reader:
        rows = changes_in(read_to_end(reader))
        followed.execute("UPDATE t SET v = 0 WHERE id = 'k2'; DELETE FROM t WHERE id = 'k3'")
        rows += changes_in(read_to_end(reader))
    assert applied(rows, full=False) == {
        f"k{n}  ": (f"k{n}  ", 0 if n == 2 else n) for n in range(1, 10) if n != 3
    }  # fmt: skip


def test_a_run_that_begins_anew_does_not_meet_what_stopped_the_last(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    followed.execute("INSERT INTO t VALUES (1, 1)")
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("TRUNCATE t; INSERT INTO t VALUES (2, 2)")
        with pytest.raises(JobError, match="TRUNCATE"):
            read_to_end(reader)
    followed.execute("ALTER TABLE t ALTER v TYPE BIGINT")
    with opened(followed) as reader:
        rows = changes_in(read_to_end(reader))
        followed.execute("INSERT INTO t VALUES (3, 3)")
        rows += changes_in(read_to_end(reader))
    assert rows == [(INS, 2, 2), (INS, 3, 3)]


def test_the_table_of_chunks_is_made_by_two_jobs_at_once(followed: PostgresDatabase) -> None:
    from concurrent.futures import ThreadPoolExecutor

    followed.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.execute("INSERT INTO t VALUES (1)")

    def read(number: int) -> Any:
        source = changes_of(followed, slot=f"one_{number}", publication="both")
        reader = source.open(Queue("t"), EARLIEST)
        try:
            raw = reader.poll(10, timedelta(seconds=1))
            return changes_in([raw] if raw is not None else [])
        finally:
            reader.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(4))) == [[(INS, 1)]] * 4


NEW_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v NUMERIC(6, 2), e INT NOT NULL UNIQUE)"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_e_key; DELETE FROM t",
            "old rows in the log have the columns e, and the key is id",
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, e); DELETE FROM t",
            "have the columns e, id, and the key is id",
        ),
        (
            "ALTER TABLE t ALTER v TYPE NUMERIC(8, 4); INSERT INTO t VALUES (2, 1.2355, 2)",
            "the type of column 'v' was changed",
        ),
        ("ALTER TABLE t RENAME TO old; INSERT INTO old VALUES (2, 2, 2)", r"public\.t was renamed to public\.old"),
        (
            f"ALTER TABLE t RENAME TO old; {NEW_TABLE}; INSERT INTO t VALUES (2, 2, 2)",  # noqa: S608
            "was dropped and made anew, or another",
        ),
        (f"DROP TABLE t; {NEW_TABLE}; INSERT INTO t VALUES (2, 2, 2)", "was dropped and made anew, or another"),  # noqa: S608
    ],
)
def test_another_key_or_table_stops_the_job(followed: PostgresDatabase, statement: str, message: str) -> None:
    followed.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    followed.execute(NEW_TABLE)
    followed.execute("INSERT INTO t VALUES (1, 1, 1)")
    with opened(followed, publication="everything") as reader:
        read_to_end(reader)
        followed.execute("UPDATE t SET v = 3")
        assert len(changes_in(read_to_end(reader))) == 1
        followed.execute(statement)
        with pytest.raises(JobError, match=message):
            read_to_end(reader)


def test_a_wider_text_does_not_stop_the_job(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(2))")
    with opened(followed) as reader:
        followed.execute(
            "INSERT INTO t VALUES (1, 'a'); ALTER TABLE t ALTER v TYPE VARCHAR(9); INSERT INTO t VALUES (2, 'abcde')"
        )
        assert changes_in(read_to_end(reader)) == [(INS, 1, "a"), (INS, 2, "abcde")]


def test_a_table_that_was_made_anew_is_not_read_on(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with opened(followed) as reader:
        read_to_end(reader)
        position = reader.position
    followed.execute("DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(JobError, match=r"does not have the table public\.t"), opened(followed, position):
        pass
    followed.execute("DROP PUBLICATION headrace_t")
    with pytest.raises(JobError, match="does not exist any more"), opened(followed, position):
        pass


@pytest.mark.parametrize(
    ("publication", "message"),
    [
        ("TABLE t (id)", "leaves out the columns v"),
        ("TABLE t WHERE (id > 100)", "has only the rows of the table with"),
        ("TABLE t WITH (publish = 'insert, update, delete')", "leaves out inserts, updates, deletes or truncates"),
        ("TABLE t WITH (publish = 'insert')", "leaves out inserts, updates, deletes or truncates"),
    ],
)
def test_publications_of_a_part_are_refused(followed: PostgresDatabase, publication: str, message: str) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    followed.execute(f"CREATE PUBLICATION part FOR {publication}")
    with pytest.raises(JobError, match=message), opened(followed, publication="part"):
        pass


def test_a_publication_needs_no_more_than_what_is_read(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    followed.execute("CREATE PUBLICATION part FOR TABLE t (id) WITH (publish = 'insert, update, delete')")
    with opened(followed, publication="part", columns=["id"], ignore_truncate=True) as reader:
        followed.execute("INSERT INTO t VALUES (1, 1)")
        assert changes_in(read_to_end(reader)) == [(INS, 1)]


def test_partitions_without_old_rows(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)")
    followed.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    followed.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(JobError, match="1 of its partitions do not, such as low"):
        changes_of(followed).schema()
    followed.execute("ALTER TABLE low REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 1)")
    with opened(followed) as reader:
        followed.execute("UPDATE t SET v = 2")
        assert applied(changes_in(read_to_end(reader)), full=True) == {1: (1, 2)}
        # A later partition does not have it either.
        followed.execute(
            "CREATE TABLE high PARTITION OF t DEFAULT; INSERT INTO t VALUES (20, 1); UPDATE t SET v = 3 WHERE id = 20"
        )
        with pytest.raises(DataError, match="a partition of the table has no REPLICA IDENTITY FULL"):
            read_to_end(reader)


def test_tables_that_inherit(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)")
    with pytest.raises(JobError, match="has rows in tables that inherit from it, such as child"):
        changes_of(followed).schema()


@pytest.mark.parametrize(
    ("text", "kind", "option"),
    [
        ("consuming input failed: SSL connection has been closed unexpectedly", RetriableError, None),
        ("consuming input failed: SSL SYSCALL error: EOF detected", RetriableError, None),
        ("connection failed: SSL error: unexpected eof while reading", RetriableError, None),
        ("connection failed: SSL error: certificate verify failed", JobError, "ssl_ca"),
        ("connection failed: server does not support SSL, but SSL was required", JobError, "ssl_ca"),
        ('connection failed: root certificate file "/x.pem" does not exist', JobError, "ssl_ca"),
        ('connection failed: FATAL: role "bob" does not exist', JobError, "user"),
        ('connection failed: FATAL: database "shop" does not exist', JobError, "database"),
    ],
)
def test_what_a_failed_connection_says(text: str, kind: type[HeadraceError], option: str | None) -> None:
    settings = PostgresSourceSettings(table="t", database="d")
    error = translated(psycopg.OperationalError(text), settings)
    assert (type(error), error.option) == (kind, option)


def test_a_chunk_that_is_older_than_a_column_has_null_there(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    followed.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 6) n")
    with opened(followed, chunk_rows=4) as reader:
        first = reader.poll(2, timedelta(seconds=5))
        assert first is not None
        before = changes_in([first])
        position = reader.position
    assert [row[1] for row in before] == [1, 2]
    followed.execute("ALTER TABLE t ADD COLUMN more TEXT; UPDATE t SET more = 'x' WHERE id = 6")
    with opened(followed, position, chunk_rows=4) as reader:
        rows = changes_in(read_to_end(reader))
    assert [row[1:] for row in rows[:2]] == [(3, 3, None), (4, 4, None)]
    assert (6, 6, "x") in [row[1:] for row in rows]


def test_a_chunk_whose_column_had_another_type_is_refused(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    followed.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 6) n")
    with opened(followed, chunk_rows=4) as reader:
        reader.poll(2, timedelta(seconds=5))
        position = reader.position
    followed.execute("ALTER TABLE t ALTER COLUMN v TYPE TEXT USING v::text")
    with opened(followed, position, chunk_rows=4) as reader, pytest.raises(JobError, match="another type"):
        read_to_end(reader)


def test_tables_of_one_name_in_two_schemas_have_publications_of_their_own(followed: PostgresDatabase) -> None:
    """With one for both, the second table was refused, or its changes were missing."""
    followed.execute("CREATE SCHEMA a")
    followed.execute("CREATE SCHEMA a_t")
    places = [("public", "t"), ("a", "t"), ("a_t", "t"), ("a", "t_t"), ("public", "x" * 60), ("public", "x" * 61)]
    for number, (schema, table) in enumerate(places):
        followed.execute(f'CREATE TABLE {schema}."{table}" (id INT PRIMARY KEY)')
        with opened(followed, schema=schema, table=table, slot=f"slot{number}") as reader:
            followed.execute(f'INSERT INTO {schema}."{table}" VALUES ({number})')  # noqa: S608
            assert changes_in(read_to_end(reader)) == [(INS, number)]
    names = [name for (name,) in followed.execute("SELECT pubname FROM pg_publication")]
    assert len(names) == len(places)
    assert "headrace_t" in names


def test_a_source_that_is_opened_again_removes_the_chunks_of_its_new_run(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.execute("INSERT INTO t SELECT n FROM generate_series(1, 20) n")
    source = changes_of(followed, chunk_rows=6, slot="again")
    for _ in range(2):
        reader = source.open(Queue("t"), EARLIEST)
        reader.poll(6, SECOND)
        reader.poll(6, SECOND)
        source.stored({Queue("t"): reader.position})
        assert followed.execute("SELECT count(*) FROM headrace_chunks WHERE content IS NOT NULL") == [(0,)]
        read_to_end(reader)
        reader.poll(1, SECOND)
        source.stored({Queue("t"): reader.position})
        assert followed.execute("SELECT count(*) FROM headrace_chunks") == [(0,)]
        reader.close()


def test_the_slot_moves_while_the_table_is_idle(followed: PostgresDatabase) -> None:
    """Else the server would keep the log of all other tables."""
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE busy (id INT)")
    source = changes_of(followed, slot="idle")
    reader = source.open(Queue("t"), LATEST)
    places = []
    for _ in range(2):
        followed.execute("INSERT INTO busy SELECT n FROM generate_series(1, 1000) n")
        assert changes_in(read_to_end(reader)) == []
        source.stored({Queue("t"): reader.position})
        reader.poll(1, SECOND)
        places.append(reader.position.offset)
    reader.close()

    def behind() -> int:
        [(bytes_behind,)] = followed.execute(
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'idle'"
        )
        return int(bytes_behind)

    eventually(lambda: behind() < 20_000, "the slot has moved over the log of the other table", shown=behind)
    assert places[0] < places[1]


def test_a_server_that_was_started_again(start_postgresql_server: StartPostgreSQLServer) -> None:
    """It was killed in the snapshot, and in the log: the reader goes on where it was."""

    def started() -> bool:
        try:
            server.start()
        except ServerStartError:
            return False
        return True

    server = start_postgresql_server(PostgreSQLOptions(config={"wal_level": "logical"}))
    database = PostgresDatabase(server, "postgres")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t SELECT n FROM generate_series(1, 5) n")
    with opened(database, chunk_rows=2) as reader:
        found: list[Any] = []

        def come(count: int) -> bool:
            """Poll as a job does, which tries again."""
            try:
                raw = reader.poll(2, SECOND)
            except RetriableError:
                return False
            found.extend(changes_in([] if raw is None or not len(raw) else [raw]))
            return len(found) >= count

        assert come(2)
        for number in (6, 7):
            database.execute("INSERT INTO t VALUES (%s)", (number,))
            database.close()
            server.kill("postgres")
            with pytest.raises(RetriableError):
                read_to_end(reader)
            eventually(started, "the processes of the killed server are gone")
            eventually(lambda: come(number), "the rows come")  # noqa: B023
            database = PostgresDatabase(server, "postgres")
    database.close()
    assert found == [(INS, number) for number in range(1, 8)]
