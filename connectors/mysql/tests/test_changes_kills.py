"""A job that follows a table is killed, in the snapshot and in the log: each change counts once, whatever is written meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from mysql_world import Database

from tests.chaos.followed_tables import Following, Kind, kills_wanted, rows_for

KIND = Kind(
    source="mysql_changes",
    sink="mysql",
    create="CREATE TABLE t (id INT PRIMARY KEY, g INT, v BIGINT, w VARCHAR(20)) ENGINE = InnoDB;"
    "INSERT INTO t SELECT seq, seq % 10, 0, CONCAT('row ', seq) FROM seq_1_to_{rows}",
    upsert="INSERT INTO t VALUES (%s, %s, 1, 'new') ON DUPLICATE KEY UPDATE v = v + 1",
    # Deadlock: the server has rolled the transaction back.
    rolled_back=lambda error: isinstance(error, pymysql.OperationalError) and error.args[0] == 1213,
    of_snapshot="room",
    schema="DATABASE()",
    again=lambda database: Database(database.server, database.name),
)


@pytest.fixture
def following(logged: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Following]:
    made = Following(KIND, logged, tmp_path, getattr(request, "param", "light"))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("following", "kills"), [("light", 100), pytest.param("spark", 30, marks=pytest.mark.spark)], indirect=["following"]
)
def test_a_copy_is_the_table_after_many_kills(following: Following, kills: int) -> None:
    following.prepare(rows_for(kills))
    print(f"positions after each kill: {following.killed_often(following.copying(), kills_wanted(kills))}")
    following.compare()


@pytest.mark.timeout(600)
def test_a_copy_is_the_table_after_kills(following: Following) -> None:
    following.prepare(5_000)
    following.killed_often(following.copying(), kills=8)
    following.compare()


@pytest.mark.timeout(600)
def test_sums_of_a_table_are_exact_after_kills(following: Following) -> None:
    following.prepare(3_000)
    following.killed_often(following.copying(key="g", grouped=True), kills=8)
    following.compare_sums()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("following", ["spark"], indirect=True)
def test_sums_of_a_table_are_exact_after_kills_on_spark(following: Following) -> None:
    following.prepare(12_000)
    following.killed_often(following.copying(key="g", grouped=True), kills_wanted(8))
    following.compare_sums()
