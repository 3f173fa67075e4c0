"""A table that is changed while a job follows it and is killed: what the tests of each database, on both backends, share.

The tests are beside the connectors; each says by a ``Kind`` what is special to its database.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.workers import python_workers
from tests.eventually import eventually

_JOB = Path(__file__).with_name("followed_table_job.py")
PLACES = (
    "reader.after_poll", "lane.after_process", "sink.before_insert", "sink.after_insert", "checkpoint.after_flush",
    "checkpoint.after_save",
)  # fmt: skip
_SECONDS = {"light": 600, "spark": 900}


class Database(Protocol):
    """A database as somebody else than the job sees it."""

    def execute(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]: ...
    def options(self, **more: Any) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Kind:
    """What is special to a database."""

    #: Names of the plug-ins that read changes and write rows.
    source: str
    sink: str
    #: Makes ``t`` with rows from 0 to ``{rows}`` - 1.
    create: str
    #: Adds 1 to ``v`` of the row (id, g), or inserts it.
    upsert: str
    #: Whether an error says that the server has rolled a transaction back because of another one.
    rolled_back: Callable[[BaseException], bool]
    #: What a position within the snapshot has in its hint.
    of_snapshot: str
    #: The schema of tables in the catalog.
    schema: str
    #: Another connection to the same database.
    again: Callable[[Any], Database]


class Writers:
    """Clients that insert, change and delete rows of ``t`` until they are stopped."""

    def __init__(self, kind: Kind, database: Database, count: int = 2) -> None:
        self._kind, self._count = kind, count
        self._stop = threading.Event()
        self.failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(database, who)) for who in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, database: Database, who: int) -> None:
        mine = self._kind.again(database)
        chance = random.Random(who)
        try:
            while not self._stop.wait(0.002):
                try:
                    self._change(mine, chance, who)
                except Exception as error:
                    if not self._kind.rolled_back(error):
                        raise
                    mine.execute("ROLLBACK")
        except BaseException as error:
            self.failed.append(error)
        finally:
            mine.close()

    def _change(self, mine: Database, chance: random.Random, who: int) -> None:
        number = self._count * chance.randrange(1500) + who
        mine.execute("BEGIN")
        mine.execute(self._kind.upsert, (number, number % 10))
        if chance.random() < 0.4:
            mine.execute("DELETE FROM t WHERE id = %s", (self._count * chance.randrange(1500) + who,))
        if chance.random() < 0.1:
            mine.execute("UPDATE t SET g = (g + 1) %% 10 WHERE id BETWEEN %s AND %s + 30", [chance.randrange(3000)] * 2)
        mine.execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.failed


class Following:
    """A table, its writers, and processes of the job that follows it; none of them outlives the test (``close``)."""

    def __init__(self, kind: Kind, database: Database, directory: Path, backend: str = "light") -> None:
        self._kind, self._database, self._directory, self._backend = kind, database, directory, backend
        self._processes: list[subprocess.Popen[bytes]] = []
        self._writers: Writers | None = None
        self._options: Mapping[str, Any] = {}
        self._log = directory / "log.txt"
        self._seconds = _SECONDS[backend]

    def prepare(self, rows: int, *more: str) -> None:
        """Make the table; ``more``: further statements."""
        for statement in (*self._kind.create.format(rows=rows).split(";"), *more):
            self._database.execute(statement)

    def copying(self, *, key: str = "id", grouped: bool = False) -> Mapping[str, Any]:
        """Return the options of a job that copies the table, or its sums by ``g``, to ``copy``."""
        return {
            "source": {"plugin": self._kind.source, **self._database.options(chunk_rows=50)},
            "sink": {"plugin": self._kind.sink, **self._database.options(table="copy", create_table=True, key=[key])},
            "grouped": grouped,
        }

    def start(self, until: str = "never", faults: str = "") -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(_JOB), str(self._directory), self._backend, until],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HEADRACE_FAULTS": faults, "POLARS_MAX_THREADS": "1"},
            )
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._options).encode())
        process.stdin.close()
        return process

    def killed_often(self, options: Mapping[str, Any], kills: int) -> list[int]:
        """Kill the job at chosen places and at random moments, half of it during the snapshot, and let it finish.

        Returns what the copy had after each kill.
        """
        self._options = options
        seed = random.randrange(10**6)
        print(f"seed {seed}")
        chance = random.Random(seed)
        self._writers = Writers(self._kind, self._database)
        progress = []
        for kill in range(kills):
            if kill == kills // 2:
                process = self.start()
                self._wait(lambda: not self.in_snapshot(), process, "the snapshot ends", seconds=900)
                self._end(process)
            elif kill % 2 == 0:
                self._killed_at(f"{PLACES[kill // 2 % len(PLACES)]}:{chance.randrange(1, 6)}:kill")
            else:
                process, before = self.start(), self.written()
                self._wait(lambda: self.written() != before, process, "the job writes")  # noqa: B023
                threading.Event().wait(chance.uniform(0, 0.05))
                if self._backend == "spark" and chance.random() < 0.5:
                    self._kill_a_worker(process, chance)
                self._end(process)
            progress.append(self.written())
            assert self.in_snapshot() == (kill < kills // 2), "half of the kills are in the snapshot, half in the log"
        self.finish()
        return progress

    def finish(self) -> None:
        """Write no more, and run to the end of what is there."""
        if self._writers is not None:
            self._writers.stop()
        process = self.start("end")
        assert process.wait(self._seconds) == 0, self.printed()

    def _killed_at(self, fault: str) -> None:
        """Let the job be killed at a place of the code. On Spark that is a process of its own, and the job may go on."""
        there = self.printed(10**9).count("killed at ")
        process = self.start(faults=fault)
        if self._backend == "light":
            assert process.wait(self._seconds) == -signal.SIGKILL, self.printed()
            return
        eventually(
            lambda: self.printed(10**9).count("killed at ") > there or process.poll() is not None,
            f"a process is killed at {fault}",
            seconds=self._seconds,
        )
        self._end(process, alive=False)

    def _kill_a_worker(self, process: subprocess.Popen[bytes], chance: random.Random) -> None:
        """Kill one of Spark's Python workers: Spark runs its task again."""
        if workers := python_workers(process.pid):
            chance.choice(workers).kill()
            before = self.written()
            eventually(
                lambda: self.written() != before or process.poll() is not None, "the job goes on", seconds=self._seconds
            )

    def _wait(
        self, probe: Callable[[], bool], process: subprocess.Popen[bytes], what: str, seconds: float | None = None
    ) -> None:
        eventually(lambda: probe() or process.poll() is not None, what, seconds=seconds or self._seconds)
        assert process.poll() is None, self.printed()

    def _end(self, process: subprocess.Popen[bytes], *, alive: bool = True) -> None:
        """Kill the job with all its processes."""
        assert not alive or self._backend == "spark" or process.poll() is None, self.printed()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def in_snapshot(self) -> bool:
        """Return whether the position of the checkpoint is one within the snapshot."""
        if self._backend == "light":
            files = list((self._directory / "checkpoint").rglob("checkpoint.json"))
        else:
            place = self._directory / "checkpoint" / "spark" / "offsets"
            files = [place / str(max(map(int, names)))] if (names := _numbers(place)) else []
        return not files or f'"{self._kind.of_snapshot}"' in files[0].read_text()

    def written(self) -> int:
        """Return the greatest position that the sink has stored."""
        there = self._database.execute(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'headrace_offsets'"  # noqa: S608
            f" AND table_schema = {self._kind.schema}"
        )
        if there == [(0,)]:
            return 0
        found = self._database.execute("SELECT MAX(last_offset) FROM headrace_offsets WHERE queue NOT LIKE '#job%'")
        return int(found[0][0] or 0)

    def compare(self) -> None:
        """Fail unless the copy is the table."""
        columns = "id, g, v, w"
        wanted = self._database.execute(f"SELECT {columns} FROM t ORDER BY id")  # noqa: S608
        assert self._database.execute(f"SELECT {columns} FROM copy ORDER BY id") == wanted  # noqa: S608
        assert wanted

    def compare_sums(self) -> None:
        """Fail unless the copy has the sums of the table: a row that was counted twice, or not, would show."""
        wanted = self._database.execute("SELECT g, COUNT(*), SUM(v) FROM t GROUP BY g ORDER BY g")
        assert self._database.execute("SELECT g, n, total FROM copy ORDER BY g") == wanted

    def printed(self, characters: int = 4000) -> str:
        return self._log.read_text()[-characters:] if self._log.exists() else ""

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                self._end(process, alive=False)
        if self._writers is not None:
            self._writers.stop()


def _numbers(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if path.name.isdigit()] if place.is_dir() else []


def kills_wanted(default: int) -> int:
    """Return how often a long test kills: HEADRACE_TEST_KILLS."""
    return int(os.environ.get("HEADRACE_TEST_KILLS", default))


def rows_for(kills: int) -> int:
    """Return how many rows a table needs for a long test: half of the kills are in the snapshot. On Spark each waits for micro-batches."""
    return min(60_000, 2_000 * kills_wanted(kills))
