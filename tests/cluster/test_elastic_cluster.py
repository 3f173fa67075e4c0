"""Executors that come and go while a job runs, and copies of tasks that run at the same time: nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.cluster.freezing import freezing_case, hold, let_go
from tests.cluster.meeting import STAGES, ask_to_meet, attempts_met, meeting_case, rows_of
from tests.cluster.running import completed, ended_well, lay_out, log_of, program, same_as_light
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.mysql import MySQLServer
from tests.servers.spark_cluster import SparkClusterOptions

_ROWS, _HELD_AT = 800, 500
_LAUNCHED = "Asked to launch executor"
pytestmark = pytest.mark.timeout(900)
_DECOMMISSION = {"spark.decommission.enabled": "true"}
_ELASTIC = {
    **_DECOMMISSION,
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "100",
}
#: Every task that takes longer than 100 ms gets a copy on another worker.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.01",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.task.duration.threshold": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.cores": "2",
    "spark.task.maxFailures": "100",
}


@pytest.mark.slow
def test_machines_that_are_taken_away_and_added_lose_and_double_nothing(
    start_spark_cluster: StartSparkCluster, tmp_path: Path
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=3, later_workers=1, conf=_DECOMMISSION))
    case = freezing_case(_ROWS, _HELD_AT)
    lay_out(tmp_path, [case])
    place = tmp_path / "cluster" / case.name
    hold(place)
    options: dict[str, Any] = {"conf": _ELASTIC, "freezes": [_ROWS, _HELD_AT], "max_micro_batch_records": 50}
    with program(cluster, tmp_path, [case], options) as process:
        said = log_of(tmp_path).read_text
        eventually(lambda: completed(tmp_path, [case]) > 1, "two micro-batches", shown=said)
        cluster.decommission(0)
        eventually(lambda: "decommission" in cluster.log("master").lower(), "the master knows", shown=said)
        added = cluster.add_worker()
        # The job waits in a micro-batch: it cannot end before it has an executor on the new machine.
        eventually(lambda: _LAUNCHED in cluster.log(added), "an executor on the new machine", shown=said)
        assert process.poll() is None
        let_go(place)
        ended_well(process, tmp_path)
    assert _LAUNCHED in cluster.log("worker-0")
    same_as_light(tmp_path, [case])


def test_two_attempts_of_a_task_at_the_same_time_double_nothing(
    start_spark_cluster: StartSparkCluster, mysql_server: MySQLServer, mysql_database: str, tmp_path: Path
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=2, cores=2, own_addresses=True))
    place = {"host": mysql_server.host, "port": mysql_server.port, "user": mysql_server.user}
    into = {
        **place,
        "password": mysql_server.password,
        "database": mysql_database,
        "table": "counts",
        "create_table": True,
    }
    case = meeting_case(600, 150)
    lay_out(tmp_path, [case])
    directory = tmp_path / "cluster" / case.name
    ask_to_meet(directory)
    options = {
        "conf": _SPECULATION,
        "meets": [600, 150, into],
        "max_micro_batch_records": 60,
        "parallelism": 2,
        "shards": 2,
    }
    with program(cluster, tmp_path, [case], options) as process:
        ended_well(process, tmp_path)
    met = attempts_met(directory)
    assert all(met[stage] > 0 for stage in STAGES), met
    same_as_light(tmp_path, [case])
    with (
        pymysql.connect(**place, password=mysql_server.password, database=mysql_database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT `key`, id, first, second FROM counts")
        found = sorted(cursor.fetchall(), key=str)
    assert found == sorted(rows_of(tmp_path / "light" / case.name), key=str)
