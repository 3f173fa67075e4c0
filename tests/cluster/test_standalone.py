"""Jobs on a standalone cluster: what light gives, whichever process of the cluster is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.cluster.program import CONF, ROOT
from tests.conformance.case import differences, outputs
from tests.conformance.run_cases import CASES
from tests.conformance.running import make, run
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkCluster, SparkClusterOptions

pytestmark = pytest.mark.timeout(900)
NAMES = ["where", "rules-of-several", "tumbling", "join-within"]


def lay_out(directory: Path, names: Sequence[str]) -> None:
    for case in CASES:
        if case.name in names:
            case.lay_out(make(directory / "cluster" / case.name))


def without_spark() -> dict[str, str]:
    """Return the environment without what tells Spark how to start."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}


@contextmanager
def program(cluster: SparkCluster, directory: Path, names: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run cases on a cluster in a process of its own. PYSPARK_PYTHON is not set, and the shell's Python is another one."""
    command = [sys.executable, "-m", "tests.cluster.program", cluster.master, str(directory / "cluster"), *names]
    log_path = directory / "log.txt"
    with log_path.open("a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=without_spark(), stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended_well(process: subprocess.Popen[bytes], directory: Path) -> None:
    process.wait()
    assert process.returncode == 0, (directory / "log.txt").read_text()[-4000:]


def same_as_light(directory: Path, names: Sequence[str]) -> None:
    for case in CASES:
        if case.name in names:
            run(case, make(directory / "light" / case.name), "light")
            found, wanted = (outputs(directory / where / case.name) for where in ("cluster", "light"))
            assert differences(found, wanted) == [], case.name


def has_begun(directory: Path, name: str) -> bool:
    """Return whether a micro-batch of a case has been completed."""
    return (directory / "cluster" / name / "checkpoint" / "spark" / "commits" / "0").exists()


def test_a_cluster_gives_what_light_gives(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    lay_out(tmp_path, NAMES)
    with program(spark_cluster, tmp_path, NAMES) as process:
        ended_well(process, tmp_path)
    same_as_light(tmp_path, NAMES)


def kill_again_and_again(
    process: subprocess.Popen[bytes], directory: Path, name: str, kills: int, kill: Callable[[], bool], seed: int
) -> int:
    """Kill something at random moments from the first completed micro-batch on; return how often until the program ended."""
    rng, pause = random.Random(seed), threading.Event()
    eventually(lambda: has_begun(directory, name) or process.poll() is not None, "the first micro-batch", seconds=120)
    done = 0
    while done < kills and process.poll() is None:
        done += kill()
        pause.wait(rng.uniform(0.5, 2.5))
    return done


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_executors_that_are_killed_lose_and_double_nothing(
    start_spark_cluster: StartSparkCluster, kills: int, tmp_path: Path
) -> None:
    cluster, rng, done, turn = start_spark_cluster(), random.Random(kills), 0, 0

    def kill() -> bool:
        running = cluster.executors()
        if len(running) < 2:  # one stays: a standalone master gives up an application without any
            return False
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
            rng.choice(running).kill()
            return True
        return False

    while done < kills:
        place, turn = tmp_path / str(turn), turn + 1
        lay_out(place, ["tumbling"])
        with program(cluster, place, ["tumbling"]) as process:
            done += kill_again_and_again(process, place, "tumbling", kills - done, kill, seed=turn)
            ended_well(process, place)
        same_as_light(place, ["tumbling"])


def test_a_worker_and_the_master_that_are_killed_lose_and_double_nothing(
    start_spark_cluster: StartSparkCluster, tmp_path: Path
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=2))
    lay_out(tmp_path, ["join-within"])
    with program(cluster, tmp_path, ["join-within"]) as process:
        eventually(lambda: has_begun(tmp_path, "join-within"), "the first micro-batch", seconds=120)
        cluster.kill("worker-0")
        cluster.kill("master")
        assert process.poll() is None, "it ended before anything was killed"
        ended_well(process, tmp_path)
    same_as_light(tmp_path, ["join-within"])


def test_a_program_that_is_killed_goes_on_from_its_checkpoint(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    names = ["tumbling", "where"]
    lay_out(tmp_path, names)
    with program(spark_cluster, tmp_path, names) as process:
        eventually(lambda: has_begun(tmp_path, "tumbling"), "the first micro-batch", seconds=120)
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    with program(spark_cluster, tmp_path, names) as process:
        ended_well(process, tmp_path)
    same_as_light(tmp_path, names)


def test_a_program_that_is_submitted_runs_on_the_cluster(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    lay_out(tmp_path, ["tumbling"])
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", spark_cluster.master]
    submit += [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    program = [str(ROOT / "tests/cluster/program.py"), "submitted", str(tmp_path / "cluster"), "tumbling"]
    # As in a shell in which the virtual environment is activated.
    environment = {**without_spark(), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ended = subprocess.run(
        [*submit, *program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    same_as_light(tmp_path, ["tumbling"])


@pytest.mark.parametrize("python", ["/nowhere/python", "/usr/bin/env"])
def test_a_python_that_workers_do_not_have_is_named(spark_cluster: SparkCluster, python: str, tmp_path: Path) -> None:
    lay_out(tmp_path, ["where"])
    command = [sys.executable, "-m", "tests.cluster.program", spark_cluster.master, str(tmp_path / "cluster"), "where"]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYSPARK_PYTHON": python}, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "Spark did not start the job: " in ended.stderr
    assert python in ended.stderr
    assert "PYSPARK_PYTHON names the Python of Spark's workers" in ended.stderr
