"""A job that follows a table is killed, in the snapshot and in the log: each change counts once, whatever is written meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_world import PostgresDatabase

from tests.eventually import eventually

HERE = Path(__file__).parent
PLACES = (
    "reader.after_poll", "lane.after_process", "sink.before_insert", "sink.after_insert", "checkpoint.after_flush",
    "checkpoint.after_save",
)  # fmt: skip


class Writers:
    """Clients that insert, change and delete rows of ``t`` until they are stopped."""

    def __init__(self, database: PostgresDatabase, count: int = 2) -> None:
        self._stop = threading.Event()
        self.failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(database, who, count)) for who in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, database: PostgresDatabase, who: int, count: int) -> None:
        mine = PostgresDatabase(database.server, database.name)
        chance = random.Random(who)
        try:
            while not self._stop.wait(0.002):
                try:
                    self._change(mine, chance, who, count)
                except psycopg.errors.DeadlockDetected:
                    mine.execute("ROLLBACK")
        except BaseException as error:
            self.failed.append(error)
        finally:
            mine.close()

    def _change(self, mine: PostgresDatabase, chance: random.Random, who: int, count: int) -> None:
        number = count * chance.randrange(1500) + who
        mine.execute("BEGIN")
        mine.execute(
            "INSERT INTO t VALUES (%s, %s, 1, 'new') ON CONFLICT (id) DO UPDATE SET v = t.v + 1", (number, number % 10)
        )
        if chance.random() < 0.4:
            mine.execute("DELETE FROM t WHERE id = %s", (count * chance.randrange(1500) + who,))
        if chance.random() < 0.1:
            mine.execute("UPDATE t SET g = (g + 1) %% 10 WHERE id BETWEEN %s AND %s + 30", [chance.randrange(3000)] * 2)
        mine.execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.failed


class Jobs:
    """Processes of the job, none of which outlives the test."""

    def __init__(self, directory: Path, options: dict[str, Any], backend: str = "light") -> None:
        self._directory, self._options, self._backend = directory, options, backend
        self._processes: list[subprocess.Popen[bytes]] = []
        self.log = directory / "log.txt"

    def start(self, until: str = "never", faults: str = "") -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "postgres_changes_job.py"), str(self._directory), self._backend, until],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADRACE_FAULTS": faults, "POLARS_MAX_THREADS": "1"},
            )
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._options).encode())
        process.stdin.close()
        return process

    def finish(self) -> None:
        """Run to the end of what is there."""
        process = self.start("end")
        assert process.wait(180) == 0, self.log.read_text()[-4000:]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def running() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for each in made:
        each.close() if isinstance(each, Jobs) else each.stop()


def prepared(database: PostgresDatabase, rows: int, *, full: bool) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, v BIGINT, w VARCHAR(20))")
    database.execute(f"INSERT INTO t SELECT n, n % 10, 0, 'row ' || n FROM generate_series(0, {rows - 1}) n")  # noqa: S608
    if full:
        database.execute("ALTER TABLE t REPLICA IDENTITY FULL")


def copy_of(database: PostgresDatabase) -> list[tuple[Any, ...]]:
    return database.execute("SELECT id, g, v, w FROM copy ORDER BY id")


def source_of(database: PostgresDatabase) -> list[tuple[Any, ...]]:
    return database.execute("SELECT id, g, v, w FROM t ORDER BY id")


def options_of(database: PostgresDatabase, *, key: str, grouped: bool = False) -> dict[str, Any]:
    sink = database.options(table="copy", create_table=True, key=[key])
    return {"source": database.options(chunk_rows=50), "sink": sink, "grouped": grouped}


def sql_of(database: PostgresDatabase) -> dict[str, Any]:
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
              'username' = '{server.user}', 'password' = '{server.password}', 'batch_size' = '40', 'flush_interval' = '10 ms');
            INSERT INTO copied SELECT id, g, v, w FROM t"""  # noqa: S608
    }


def killed_often(
    database: PostgresDatabase, directory: Path, running: list[Any], kills: int, options: dict[str, Any]
) -> list[int]:
    """Kill the job at chosen places and at random moments, half of it during the snapshot; return what the copy had each time."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    jobs = Jobs(directory, options)
    running.append(jobs)
    writers = Writers(database)
    running.append(writers)
    progress = []
    for kill in range(kills):
        if kill == kills // 2:
            process = jobs.start()
            eventually(lambda: not in_snapshot(directory), "the snapshot ends", seconds=900)
            assert process.poll() is None, jobs.log.read_text()[-4000:]
            process.kill()
            process.wait()
        elif kill % 2 == 0:
            process = jobs.start(faults=f"{PLACES[kill // 2 % len(PLACES)]}:{chance.randrange(1, 6)}:kill")
            assert process.wait(120) == -signal.SIGKILL, jobs.log.read_text()[-4000:]
        else:
            process = jobs.start()
            before = written(database)
            eventually(lambda: written(database) != before or process.poll() is not None, "the job writes", seconds=60)  # noqa: B023
            threading.Event().wait(chance.uniform(0, 0.05))
            assert process.poll() is None, jobs.log.read_text()[-4000:]
            process.kill()
            process.wait()
        progress.append(written(database))
        assert in_snapshot(directory) == (kill < kills // 2), "half of the kills are in the snapshot, half in the log"
    writers.stop()
    jobs.finish()
    return progress


def in_snapshot(directory: Path) -> bool:
    """Return whether the position of the checkpoint is one within the snapshot."""
    files = list((directory / "checkpoint").rglob("checkpoint.json"))
    return not files or '"snapshot"' in files[0].read_text()


def written(database: PostgresDatabase) -> int:
    """Return the greatest position that the sink has stored."""
    if database.execute("SELECT to_regclass('headrace_offsets') IS NULL") == [(True,)]:
        return 0
    [(found,)] = database.execute("SELECT max(last_offset) FROM headrace_offsets WHERE queue NOT LIKE '#job%'")
    return int(found or 0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("full", [True, False])
def test_a_copy_is_the_table_after_100_kills(
    followed: PostgresDatabase, tmp_path: Path, running: list[Any], full: bool
) -> None:
    prepared(followed, 60_000, full=full)
    kills = int(os.environ.get("HEADRACE_TEST_KILLS", "100"))
    progress = killed_often(followed, tmp_path, running, kills, sql_of(followed))
    print(f"positions after each kill: {progress}")
    assert copy_of(followed) == source_of(followed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("full", [True, False])
def test_a_copy_is_the_table_after_kills(
    followed: PostgresDatabase, tmp_path: Path, running: list[Any], full: bool
) -> None:
    prepared(followed, 5_000, full=full)
    killed_often(followed, tmp_path, running, 6, sql_of(followed))
    assert copy_of(followed) == source_of(followed)
    [(left,)] = followed.execute("SELECT count(*) FROM headrace_chunks")
    assert left == 0, "the chunks are removed behind the snapshot"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("full", [True, False])
def test_sums_of_a_table_are_exact_after_kills(
    followed: PostgresDatabase, tmp_path: Path, running: list[Any], full: bool
) -> None:
    """A row that was counted twice, or not, would show."""
    prepared(followed, 3_000, full=full)
    killed_often(followed, tmp_path, running, 6, options_of(followed, key="g", grouped=True))
    wanted = followed.execute("SELECT g, count(*), sum(v) FROM t GROUP BY g ORDER BY g")
    assert followed.execute("SELECT g, n, total FROM copy ORDER BY g") == wanted
