"""Executors, workers, the master and the program are killed at random; the results are light's."""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.cases import larger_cases
from tests.cluster.running import Named, completed, ended_well, lay_out, log_of, program, same_as_light
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkCluster, SparkClusterOptions

#: Kills come faster here than Spark expects: it gives a job up when a task fails four times, or a stage four times in a row.
_CONF = {"spark.task.maxFailures": "100", "spark.stage.maxConsecutiveAttempts": "100"}
#: A master gives an application up that has no executor after ten failed starts of one, unless it is told not to.
CLUSTER = SparkClusterOptions(
    recovers=True, conf={"spark.deploy.maxExecutorRetries": "-1", "spark.worker.timeout": "10"}
)
EVERY_KIND = ("executor", "worker", "master", "program")
#: Executors are killed most often, as on real clusters; the others take long to come back.
_WEIGHTS = (10, 3, 2, 3)


#: Spark ends a query so when it must run a stage again and a part of the next one has been kept already. Who runs it starts it again.
_GIVES_UP = "A shuffle map stage with indeterminate output was failed and retried"


class Storm:
    """A program that runs cases on a cluster, and kills of it."""

    def __init__(
        self,
        cluster: SparkCluster,
        directory: Path,
        cases: Sequence[Named],
        options: Mapping[str, Any],
        seed: int,
        module: str = "tests.cluster.program",
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._cases = cases
        self._options: dict[str, Any] = {"conf": _CONF, **options}
        self._module = module
        self._rng = random.Random(seed)
        self._pause = threading.Event()
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._completed_before = 0
        self._given_up = 0
        #: How often the program has ended because Spark gave its query up, and was started again.
        self.times_given_up = 0
        self.kills: Counter[str] = Counter()
        self.log: list[str] = []

    def run(self, wanted: Sequence[str] | int) -> None:
        """Run all cases to their end, and kill meanwhile: either one of each of the given kinds, or at most so many at random."""
        due = list(wanted) if not isinstance(wanted, int) else None
        with self._running:
            self._start()
            while self._goes_on() and (due if due is not None else self.kills.total() < wanted):  # type: ignore[operator]
                kind = due[0] if due else self._rng.choices(EVERY_KIND, _WEIGHTS)[0]
                if self._kill(kind):
                    self.kills[kind] += 1
                    self.log.append(f"{kind} after {completed(self._directory, self._cases)} micro-batches")
                    print(f"kill {self.kills.total()}: {self.log[-1]}", flush=True)
                    self._cluster.start()
                    if due:
                        del due[0]
                self._pause.wait(self._rng.uniform(0.2, 1.5))
            assert not due, f"the program ended before {due} could be killed; {self.kills}"
            assert self._process is not None
            while self._goes_on():
                self._process.wait()
            ended_well(self._process, self._directory)

    def _start(self) -> None:
        """Start the program, for the first time or from its checkpoints."""
        self._completed_before = completed(self._directory, self._cases)
        self._process = self._running.enter_context(
            program(self._cluster, self._directory, self._cases, self._options, module=self._module)
        )
        eventually(
            lambda: completed(self._directory, self._cases) > self._completed_before or not self._alive(),
            "a first micro-batch",
            seconds=600,
            shown=lambda: log_of(self._directory).read_text()[-3000:],
        )

    def _goes_on(self) -> bool:
        """Return whether the program runs; it is started again if Spark has given its query up."""
        while not self._alive() and self._was_given_up():
            self._start()
        return self._alive()

    def _was_given_up(self) -> bool:
        """Return whether the program has ended because Spark gave its query up, as it says in its log since it was last asked."""
        if self._process is None or not self._process.returncode:
            return False
        before, self._given_up = self._given_up, log_of(self._directory).read_text().count(f"failure: {_GIVES_UP}")
        if self._given_up > before:
            self.times_given_up += 1
            print(f"given up by Spark after {completed(self._directory, self._cases)} micro-batches", flush=True)
        return self._given_up > before

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _kill(self, kind: str) -> bool:
        """Kill a process of a kind; return whether there was one."""
        if kind == "program":
            assert self._process is not None
            self._process.kill()
            if self._process.wait() >= 0:
                return False  # it had ended by itself
            self._start()
            return True
        if kind == "executor":
            return self._kill_executor()
        label = "master" if kind == "master" else f"worker-{self._rng.randrange(self._cluster.worker_count)}"
        assert self._cluster.is_running(label)
        self._cluster.kill(label)
        return self._alive()

    def _kill_executor(self) -> bool:
        running = [each for each in self._cluster.executors() if _runs(each)]
        if not running:
            return False
        victim = self._rng.choice(running)
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            return False
        eventually(lambda: not _runs(victim), "the killed executor has ended")
        return self._alive()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def options_of(rows: int) -> dict[str, Any]:
    """Return the options of the program for cases of so many rows."""
    return {"rows": rows, "max_micro_batch_records": 50}


@pytest.mark.timeout(900)
def test_one_of_each_is_killed(start_spark_cluster: StartSparkCluster, tmp_path: Path) -> None:
    cases = [case for case in larger_cases(4000) if case.name == "join-within"]
    lay_out(tmp_path, cases)
    storm = Storm(start_spark_cluster(CLUSTER), tmp_path, cases, options_of(4000), seed=1)
    storm.run(EVERY_KIND)
    assert storm.kills == Counter(EVERY_KIND)
    same_as_light(tmp_path, cases)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_with_one_executor_goes_on_when_it_is_killed(
    start_spark_cluster: StartSparkCluster, tmp_path: Path
) -> None:
    """With Spark's own settings. Rows that the executor held for the next stage are gone, and Spark then ends the query."""
    cases = [case for case in larger_cases(4000) if case.name in ("sql", "join-within")]
    lay_out(tmp_path, cases)
    cluster = start_spark_cluster(SparkClusterOptions(workers=1, cores=2, conf=CLUSTER.conf))
    storm = Storm(cluster, tmp_path, cases, {**options_of(4000), "conf": {}}, seed=3)
    storm.run(["executor"] * 8)
    assert storm.times_given_up == 0
    print(f"started again {log_of(tmp_path).read_text().count('it is started again')} times", flush=True)
    same_as_light(tmp_path, cases)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_a_hundred_kills_at_random(start_spark_cluster: StartSparkCluster, tmp_path: Path) -> None:
    cluster, total, turn = start_spark_cluster(CLUSTER), Counter[str](), 0
    while total.total() < 100:
        turn += 1
        place, rows = tmp_path / str(turn), 2000
        cases = larger_cases(rows)
        lay_out(place, cases)
        storm = Storm(cluster, place, cases, options_of(rows), seed=turn)
        storm.run(100 - total.total())
        total += storm.kills
        print(f"turn {turn}: {dict(storm.kills)}", flush=True)
        same_as_light(place, cases)
    print(f"{total.total()} kills: {dict(total)}", flush=True)
    assert set(total) == set(EVERY_KIND)
