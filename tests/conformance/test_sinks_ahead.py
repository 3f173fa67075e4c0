"""A sink that is ahead of the state that feeds it: refused, or gone on behind, and never are new results dropped as known."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.sink import SinkBatch, SinkSettings, StaleWriterError, TransactionalSink
from headrace_light.backend import LightBackend
from headrace_light.settings import LightSettings

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: The older checkpoint is one on both backends in every run.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
FILES = 3


class Totals(TransactionalSink):
    """The newest sum of each key in SQLite, with the queues' positions; remembers no definition of the job."""

    accepts = "upsert"

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.settings = SinkSettings()

    def prepare(self, schema: object) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS totals (k TEXT PRIMARY KEY, s INTEGER, times INTEGER)")
            connection.execute("CREATE TABLE IF NOT EXISTS ends (queue TEXT PRIMARY KEY, entry INTEGER, place INTEGER)")

    def batch_insert(self, batch: SinkBatch) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            if _last(connection, batch.queue) != batch.after:
                raise StaleWriterError("another writer was here", queue=batch.queue.id)
            for row in batch.rows():
                connection.execute(
                    "INSERT INTO totals VALUES (?, ?, 1) ON CONFLICT (k) DO UPDATE SET s = excluded.s, times = times + 1",
                    (row["k"], row["s"]),
                )
            connection.execute("INSERT OR REPLACE INTO ends VALUES (?, ?, ?)", (batch.queue.id, *batch.last))

    def last_offset(self, queue: Queue) -> Position | None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return _last(connection, queue)

    def table(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.path)) as connection:
            return dict(connection.execute("SELECT k, s FROM totals").fetchall())


def _last(connection: sqlite3.Connection, queue: Queue) -> Position | None:
    found = connection.execute("SELECT entry, place FROM ends WHERE queue = ?", (queue.id,)).fetchone()
    return None if found is None else Position(*found)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


def lay(number: int) -> None:
    rows = [{"k": f"k{n % 7}", "v": n * number} for n in range(60)]
    Path("in", f"{number}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))


def true_sums(files: int) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for number in range(1, files + 1):
        for n in range(60):
            sums[f"k{n % 7}"] += n * number
    return dict(sums)


def stream() -> Any:
    schema = {"k": "string", "v": "int64"}
    return hr.stream("shop", "ahead").from_file("in/*.ndjson", format="json", schema=schema, name="in")


def job() -> Any:
    return stream().key_by("k").agg(s="sum(v)").to(Totals(Path("totals.db").absolute()), name="totals")


def totals() -> dict[str, int]:
    return Totals(Path("totals.db")).table()


def run_until_an_older_checkpoint_is_back(backend: str, made: Any = job) -> None:
    """Run over three files, then put the checkpoint of the first back."""
    for number in range(1, FILES + 1):
        lay(number)
        made().run(backend, checkpoint="state", shards=2)
        if number == 1:
            shutil.copytree("state", "older")
    shutil.rmtree("state")
    shutil.copytree("older", "state")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_older_checkpoint_is_refused_or_gone_on_with(backend: str) -> None:
    run_until_an_older_checkpoint_is_back(backend)
    lay(FILES + 1)
    with pytest.raises(CheckpointError, match="new results would be dropped as already stored") as failure:
        job().run(backend, checkpoint="state", shards=2)
    assert "sinks_ahead='write'" in str(failure.value.hint)
    assert totals() == true_sums(FILES)

    job().run(backend, checkpoint="state", shards=2, sinks_ahead="write")
    assert totals() == true_sums(FILES + 1)
    # What was chosen once needs not be chosen again, and holds over the next start.
    lay(FILES + 2)
    job().run(backend, checkpoint="state", shards=2)
    assert totals() == true_sums(FILES + 2)


class _ClockAhead(SystemClock):
    def now(self) -> float:
        return super().now() + 3600


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_clock_that_was_put_back_drops_no_result(backend: str) -> None:
    lay(1)
    plan = job().plan()
    light = LightBackend(LightSettings(shards=2), clock=_ClockAhead())
    light.start(plan, RunOptions()).wait()
    assert totals() == true_sums(1)

    lay(2)
    job().run(backend, shards=2)  # an hour before
    assert totals() == true_sums(2)
