"""Jobs over streaming DataFrames with keyed state, on a cluster and on one machine: processes are killed, drivers continue as zombies."""

from __future__ import annotations

import random
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.frame_cases import FRAME_CASES, lay_out_frames, of_light, written_rows
from tests.cluster.freezing import stop_program, wake
from tests.cluster.running import completed, ended_well, log_of, program
from tests.cluster.test_kills import CLUSTER, EVERY_KIND, Storm
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.timeout(1800)
MODULE = "tests.cluster.frames_program"


class Runs:
    """Some cases in a directory, and what they must write."""

    def __init__(self, directory: Path, names: Sequence[str], rows: int) -> None:
        self.directory = directory
        self.cases = [case for case in FRAME_CASES if case.name in names]
        self.expected: dict[str, Counter[str]] = {}
        for case in self.cases:
            place = directory / "cluster" / case.name
            lay_out_frames(place, rows)
            self.expected[case.name] = of_light(case, place, directory / "light" / case.name)
            assert self.expected[case.name].total() > 5

    @property
    def options(self) -> dict[str, Any]:
        return {"rows": {name: rows.total() for name, rows in self.expected.items()}}

    def same_as_light(self) -> None:
        """Compare what was written with what light has written."""
        for case in self.cases:
            found, expected = written_rows(self.directory / "cluster" / case.name / "out"), self.expected[case.name]
            assert (expected - found, found - expected) == (Counter(), Counter()), case.name


def test_one_of_each_is_killed(start_spark_cluster: StartSparkCluster, tmp_path: Path) -> None:
    runs = Runs(tmp_path, ["beside-written"], 3000)
    storm = Storm(start_spark_cluster(CLUSTER), tmp_path, runs.cases, runs.options, 1, MODULE)
    storm.run(EVERY_KIND)
    runs.same_as_light()


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_kills_at_random(start_spark_cluster: StartSparkCluster, tmp_path: Path) -> None:
    cluster, total, turn = start_spark_cluster(CLUSTER), Counter[str](), 0
    while total.total() < 40:
        turn += 1
        runs = Runs(tmp_path / str(turn), [case.name for case in FRAME_CASES], 1500)
        storm = Storm(cluster, runs.directory, runs.cases, runs.options, turn, MODULE)
        storm.run(40 - total.total())
        total += storm.kills
        print(f"turn {turn}: {dict(storm.kills)}", flush=True)
        runs.same_as_light()
    print(f"{total.total()} kills: {dict(total)}", flush=True)
    assert set(total) == set(EVERY_KIND)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "kills"),
    [
        (["beside-written"], 4),
        ([case.name for case in FRAME_CASES], 30),
    ],
    ids=["one", "all"],
)
def test_drivers_and_workers_on_one_machine_are_killed(names: list[str], kills: int, tmp_path: Path) -> None:
    """The program is killed in the middle of micro-batches, and worker processes of it."""
    runs, rng, pause = Runs(tmp_path, names, 3000), random.Random(kills), threading.Event()
    log, done = log_of(tmp_path).read_text, 0
    places = [tmp_path / "cluster" / case.name / "done" for case in runs.cases]
    while not all(place.exists() for place in places):
        # A task may fail often: workers are killed faster than they would die by themselves.
        with program("local[2,1000]", tmp_path, runs.cases, runs.options, module=MODULE) as process:
            _wait_for_a_micro_batch(process, runs)
            if done >= kills:
                ended_well(process, tmp_path)
                break
            killed_worker = _kill_a_worker(process.pid, rng)
            pause.wait(rng.uniform(0.1, 2.0))
            assert process.poll() in (None, 0), log()[-4000:]
            done += killed_worker + (process.poll() is None)
            print(f"kill {done} after {completed(tmp_path, runs.cases)} micro-batches", flush=True)
    assert done >= min(kills, 2)
    print(f"{done} kills", flush=True)
    runs.same_as_light()


def _wait_for_a_micro_batch(process: subprocess.Popen[bytes], runs: Runs) -> None:
    before = completed(runs.directory, runs.cases)
    eventually(
        lambda: completed(runs.directory, runs.cases) > before or process.poll() is not None,
        "a micro-batch",
        seconds=600,
        shown=log_of(runs.directory).read_text,
    )


def _is_daemon(process: psutil.Process | None) -> bool:
    """Return whether a process is Spark's daemon, or a worker that was forked of it."""
    return process is not None and any("daemon" in part for part in process.cmdline())


def _kill_a_worker(program_id: int, rng: random.Random) -> bool:
    """Kill a Python worker that runs tasks; return whether there was one."""
    found = []
    for each in psutil.Process(program_id).children(recursive=True):
        try:
            if _is_daemon(each) and _is_daemon(each.parent()):
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    if not found:
        return False
    try:
        rng.choice(found).kill()
    except psutil.NoSuchProcess:
        return False
    return True


#: Spark has two words for it: where the first driver was stopped decides whether it meets the other one in the log of the query's
#: offsets, or before that in the log of the files of Spark's own source.
_SPARK_REFUSES = r"Multiple streaming (jobs detected for \d|queries are concurrently using file:\S+/sources/)"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("windows-written", "the checkpoint was taken over by process "),
        pytest.param("beside-written", "the checkpoint was taken over by process ", marks=pytest.mark.slow),
        pytest.param("windows-between", _SPARK_REFUSES, marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_continues_after_another_was_started_fails(
    start_spark_cluster: StartSparkCluster, name: str, said: str, tmp_path: Path
) -> None:
    cluster, runs = start_spark_cluster(SparkClusterOptions(workers=2)), Runs(tmp_path, [name], 3000)
    options = {"conf": {"spark.cores.max": "1"}, **runs.options}
    log = log_of(tmp_path).read_text
    with program(cluster, tmp_path, runs.cases, options, module=MODULE) as first:
        eventually(lambda: completed(tmp_path, runs.cases) > 1, "two micro-batches", shown=log, seconds=400)
        stopped = stop_program(first.pid)
        done = completed(tmp_path, runs.cases)
        with program(cluster, tmp_path, runs.cases, options, module=MODULE) as second:
            eventually(
                lambda: completed(tmp_path, runs.cases) > done + 3, "the second driver goes on", shown=log, seconds=400
            )
            assert second.poll() is None, "it had ended before the first one continued"
            assert first.poll() is None
            wake(stopped)
            assert first.wait() != 0
            assert re.search(said, log())
            ended_well(second, tmp_path)
    runs.same_as_light()
