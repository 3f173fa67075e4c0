"""Jobs over streaming DataFrames with keyed state on a cluster: processes are killed, and drivers continue as zombies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.frame_cases import FRAME_CASES, FrameCase, lay_out_frames, of_light, written_rows
from tests.cluster.freezing import stop_program, wake
from tests.cluster.running import completed, ended_well, log_of, program
from tests.cluster.test_kills import CLUSTER, EVERY_KIND, Storm
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.timeout(900)
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
    runs = Runs(tmp_path, ["beside-written"], 1500)
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
        print(f"turn {turn}: {dict(storm.kills)}\n" + "\n".join(storm.log), flush=True)
        runs.same_as_light()
    print(f"{total.total()} kills: {dict(total)}", flush=True)
    assert set(total) == set(EVERY_KIND)


def _case(name: str) -> FrameCase:
    return next(case for case in FRAME_CASES if case.name == name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("windows-written", "the checkpoint was taken over by process "),
        pytest.param("beside-written", "the checkpoint was taken over by process ", marks=pytest.mark.slow),
        pytest.param("windows-between", "CONCURRENT_STREAM_LOG_UPDATE", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_continues_after_another_was_started_fails(
    start_spark_cluster: StartSparkCluster, name: str, said: str, tmp_path: Path
) -> None:
    cluster, runs = start_spark_cluster(SparkClusterOptions(workers=2)), Runs(tmp_path, [name], 1500)
    options = {"conf": {"spark.cores.max": "1"}, **runs.options}
    log = log_of(tmp_path).read_text
    with program(cluster, tmp_path, runs.cases, options, module=MODULE) as first:
        eventually(lambda: completed(tmp_path, runs.cases) > 1, "two micro-batches", shown=log)
        stopped = stop_program(first.pid)
        done = completed(tmp_path, runs.cases)
        with program(cluster, tmp_path, runs.cases, options, module=MODULE) as second:
            eventually(lambda: completed(tmp_path, runs.cases) > done + 3, "the second driver goes on", shown=log)
            assert second.poll() is None, "it had ended before the first one continued"
            assert first.poll() is None
            wake(stopped)
            assert first.wait() != 0
            assert said in log()
            ended_well(second, tmp_path)
    runs.same_as_light()
