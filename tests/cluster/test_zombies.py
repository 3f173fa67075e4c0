"""Executors and drivers that are stopped, replaced by others, and continue: what they still write harms neither state nor sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cases import larger_cases
from tests.cluster.freezing import Frozen, ask_to_freeze, freezing_case, stop_program, wake
from tests.cluster.running import completed, ended_well, lay_out, log_of, program, same_as_light
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.timeout(900)
#: How soon a process that does not answer is taken for dead.
_CLUSTER = SparkClusterOptions(conf={"spark.worker.timeout": "6"})
_CONF = {
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.task.maxFailures": "100",
}
ROWS, FROZEN_AT = 1200, 200


def state_files(directory: Path, batch_id: int) -> dict[str, bytes]:
    """Return the state files of micro-batches up to one, by path."""
    files = (directory / "checkpoint" / "shards").rglob("[0-9]*.*")
    return {str(path): path.read_bytes() for path in files if int(path.name.partition(".")[0]) <= batch_id}


def test_an_executor_that_continues_after_its_task_was_given_to_another_stores_nothing(
    start_spark_cluster: StartSparkCluster, tmp_path: Path
) -> None:
    cluster, case = start_spark_cluster(_CLUSTER), freezing_case(ROWS, FROZEN_AT)
    lay_out(tmp_path, [case])
    place = tmp_path / "cluster" / case.name
    ask_to_freeze(place)
    options: dict[str, Any] = {"conf": _CONF, "max_micro_batch_records": 50, "freezes": [ROWS, FROZEN_AT]}
    with program(cluster, tmp_path, [case], options) as process:
        frozen = eventually(
            lambda: Frozen.find(place), "a worker process has stopped", shown=log_of(tmp_path).read_text
        )
        assert frozen is not None
        batch_id = completed(tmp_path, [case])
        assert batch_id < FROZEN_AT // 50 + 5
        eventually(
            lambda: completed(tmp_path, [case]) > batch_id + 3,
            "the job goes on without it",
            shown=log_of(tmp_path).read_text,
        )
        before = state_files(place, batch_id)
        assert not frozen.woken
        frozen.wake_worker()
        eventually(lambda: frozen.woken, "the process continues")
        refused = f"a task was rejected: micro-batch {batch_id} was completed by another attempt"
        eventually(lambda: refused in log_of(tmp_path).read_text(), refused, shown=log_of(tmp_path).read_text)
        assert process.poll() is None, "the job had ended before the process continued"
        frozen.wake_rest()
        ended_well(process, tmp_path)
        assert state_files(place, batch_id) == before
    same_as_light(tmp_path, [case])


@pytest.mark.parametrize("name", ["tumbling", pytest.param("where", marks=pytest.mark.slow)])
def test_a_driver_that_continues_after_another_was_started_fails_and_stores_nothing(
    start_spark_cluster: StartSparkCluster, name: str, tmp_path: Path
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=2))
    cases = [case for case in larger_cases(ROWS) if case.name == name]
    lay_out(tmp_path, cases)
    options: dict[str, Any] = {"conf": {"spark.cores.max": "1"}, "rows": ROWS, "max_micro_batch_records": 50}
    with program(cluster, tmp_path, cases, options) as first:
        eventually(lambda: completed(tmp_path, cases) > 1, "two micro-batches", shown=log_of(tmp_path).read_text)
        stopped = stop_program(first.pid)
        done = completed(tmp_path, cases)
        with program(cluster, tmp_path, cases, options) as second:
            eventually(
                lambda: completed(tmp_path, cases) > done + 3,
                "the second driver goes on",
                shown=log_of(tmp_path).read_text,
            )
            assert second.poll() is None, "it had ended before the first one continued"
            assert first.poll() is None
            wake(stopped)
            assert first.wait() == 1
            said = log_of(tmp_path).read_text()
            assert f"the checkpoint was taken over by process {second.pid} on " in said
            assert "Run only one driver of a job at a time" in said
            ended_well(second, tmp_path)
    same_as_light(tmp_path, cases)
