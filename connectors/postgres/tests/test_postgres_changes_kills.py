"""A job that follows a table is killed, in the snapshot and in the log: each change counts once, whatever is written meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_world import PostgresDatabase

from tests.chaos.followed_table_job import SMALL_BATCHES_IN_SQL
from tests.chaos.followed_tables import Following, Kind, kills_wanted, rows_for

KIND = Kind(
    source="postgres_changes",
    sink="postgres",
    create="CREATE TABLE t (id INT PRIMARY KEY, g INT, v BIGINT, w VARCHAR(20));"
    "INSERT INTO t SELECT n, n % 10, 0, 'row ' || n FROM generate_series(1, {rows}) n",
    upsert="INSERT INTO t VALUES (%s, %s, 1, 'new') ON CONFLICT (id) DO UPDATE SET v = t.v + 1",
    rolled_back=lambda error: isinstance(error, psycopg.errors.DeadlockDetected),
    of_snapshot="snapshot",
    schema="'public'",
    again=lambda database: PostgresDatabase(database.server, database.name),
)
FULL = "ALTER TABLE t REPLICA IDENTITY FULL"
ON_SPARK = pytest.mark.parametrize("following", ["spark"], indirect=True)


@pytest.fixture
def following(followed: PostgresDatabase, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Following]:
    made = Following(KIND, followed, tmp_path, getattr(request, "param", "light"))
    yield made
    made.close()


def by_sql(database: PostgresDatabase) -> Mapping[str, Any]:
    """Return the options of a job that copies the table."""
    server = database.server
    database.execute("CREATE TABLE copy (id INT PRIMARY KEY, g INT, v BIGINT, w TEXT)")
    return {
        "sql": f"""
            CREATE TABLE t (id INT, g INT, v BIGINT, w STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
              'connector' = 'postgres-cdc', 'hostname' = '{server.host}', 'port' = '{server.port}', 'username' = '{server.user}',
              'password' = '{server.password}', 'database-name' = '{database.name}', 'schema-name' = 'public', 'table-name' = 't',
              'slot.name' = 'slot_{database.name.lower().replace("-", "_")[-40:]}', 'scan.incremental.snapshot.chunk.size' = '200');
            CREATE TABLE copied (id INT, g INT, v BIGINT, w STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
              'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{server.host}:{server.port}/{database.name}', 'table-name' = 'copy',
              'username' = '{server.user}', 'password' = '{server.password}', {SMALL_BATCHES_IN_SQL});
            INSERT INTO copied SELECT id, g, v, w FROM t"""  # noqa: S608
    }


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("more", [(FULL,), ()], ids=["with old rows", "by key"])
@pytest.mark.parametrize(
    ("following", "kills"), [("light", 100), pytest.param("spark", 30, marks=pytest.mark.spark)], indirect=["following"]
)
def test_a_copy_is_the_table_after_many_kills(
    followed: PostgresDatabase, following: Following, kills: int, more: tuple[str, ...]
) -> None:
    following.prepare(rows_for(kills), *more)
    print(f"positions after each kill: {following.killed_often(by_sql(followed), kills_wanted(kills))}")
    following.compare()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [(FULL,), ()], ids=["with old rows", "by key"])
def test_a_copy_is_the_table_after_kills(
    followed: PostgresDatabase, following: Following, more: tuple[str, ...]
) -> None:
    following.prepare(5_000, *more)
    following.killed_often(by_sql(followed), kills=6)
    following.compare()
    [(left,)] = followed.execute("SELECT count(*) FROM headrace_chunks")
    assert left == 0, "the chunks are removed behind the snapshot"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [(FULL,), ()], ids=["with old rows", "by key"])
def test_sums_of_a_table_are_exact_after_kills(following: Following, more: tuple[str, ...]) -> None:
    following.prepare(3_000, *more)
    following.killed_often(following.copying(key="g", grouped=True), kills=6)
    following.compare_sums()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@ON_SPARK
def test_sums_of_a_table_are_exact_after_kills_on_spark(following: Following) -> None:
    """Without old rows: the state that they are compared with goes through the kills too."""
    following.prepare(6_000)
    following.killed_often(following.copying(key="g", grouped=True), kills=2)
    following.compare_sums()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3600)
@ON_SPARK
def test_sums_of_a_table_are_exact_after_many_kills_on_spark(following: Following) -> None:
    following.prepare(30_000, FULL)
    following.killed_often(following.copying(key="g", grouped=True), kills_wanted(16))
    following.compare_sums()
