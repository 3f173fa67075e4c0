"""Jobs on a standalone cluster, by ``job.run(master=…)`` and by spark-submit: what light gives. And what errors say."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pymysql
import pyspark
import pytest

from tests.cluster.cases import copy_case, demo_case, larger_cases
from tests.cluster.program import CONF, ROOT, VARIABLE
from tests.cluster.running import completed, ended_well, lay_out, program, same_as_light, without_spark
from tests.conformance.case import Case
from tests.conformance.running import make
from tests.eventually import eventually
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.spark_cluster import SparkCluster

sys.path.append(str(ROOT / "connectors" / "kafka" / "tests"))

from kafka_world import KafkaWorld

pytestmark = pytest.mark.timeout(900)
ROWS, EVENTS = 400, 2000


def submit(
    cluster: SparkCluster,
    directory: Path,
    cases: Sequence[Case],
    options: Mapping[str, Any],
    *more: str,
    program_file: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run cases by spark-submit, as in a shell in which the virtual environment is activated.

    ``program_file``: the jar of a class that runs the program.
    """
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.master, *more]
    command += [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    job_file = str(ROOT / "tests/cluster/program.py")
    # Behind Spark's own class for Python files come the file and where modules are.
    command += [job_file] if program_file is None else [program_file, job_file, str(ROOT)]
    command += ["submitted", str(directory / "cluster")]
    environment = {**without_spark(), "PYTHONPATH": str(ROOT), VARIABLE: json.dumps(options)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    return subprocess.run(
        [*command, *(case.name for case in cases)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "which", [["join-within", "demo"], pytest.param([], marks=pytest.mark.slow)], ids=["a join and rules", "all"]
)
def test_a_cluster_gives_what_light_gives(spark_cluster: SparkCluster, which: list[str], tmp_path: Path) -> None:
    cases = [case for case in (*larger_cases(ROWS), demo_case(EVENTS)) if not which or case.name in which]
    lay_out(tmp_path, cases)
    options = {"rows": ROWS, "demo": EVENTS, "max_micro_batch_records": 1000}
    with program(spark_cluster, tmp_path, cases, options) as process:
        ended_well(process, tmp_path)
    same_as_light(tmp_path, cases)


@pytest.mark.parametrize("which", [["tumbling"], pytest.param([], marks=pytest.mark.slow)], ids=["one", "all"])
def test_a_program_that_is_submitted_gives_what_light_gives(
    spark_cluster: SparkCluster, which: list[str], tmp_path: Path
) -> None:
    cases = [case for case in (*larger_cases(ROWS), demo_case(EVENTS)) if not which or case.name in which]
    lay_out(tmp_path, cases)
    options = {"rows": ROWS, "demo": EVENTS, "max_micro_batch_records": 1000}
    ended = submit(spark_cluster, tmp_path, cases, options)
    assert ended.returncode == 0, ended.stderr[-4000:]
    same_as_light(tmp_path, cases)


# ------------------------------------------------------------------------------------------------ Kafka and MySQL


@pytest.fixture
def kafka_world(kafka_server: KafkaServer) -> Iterator[KafkaWorld]:
    world = KafkaWorld(kafka_server.bootstrap)
    yield world
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("submitted", [False, True], ids=["run", "submitted"])
def test_numbers_from_kafka_are_in_mysql_once(
    spark_cluster: SparkCluster,
    kafka_world: KafkaWorld,
    mysql_server: MySQLServer,
    mysql_database: str,
    topic: str,
    consumer_group: str,
    submitted: bool,
    tmp_path: Path,
) -> None:
    """The program is killed in the middle, and started again from its checkpoint."""
    kafka_world.create_topic(topic, 3)
    for partition in range(3):
        kafka_world.write(topic, [b'{"n": %d}' % n for n in range(partition, 6000, 3)], partition=partition)
    login = {"host": mysql_server.host, "port": mysql_server.port, "user": mysql_server.user}
    mysql = {**login, "password": mysql_server.password, "database": mysql_database}
    kafka = {"topic": topic, "servers": kafka_world.servers, "group": consumer_group}
    case = copy_case(kafka, mysql, "numbers")
    make(tmp_path / "cluster" / case.name)
    options = {"copies": [kafka, mysql, "numbers"], "max_micro_batch_records": 300}
    with program(spark_cluster, tmp_path, [case], options) as process:
        eventually(lambda: completed(tmp_path, [case]) > 2 or process.poll() is not None, "three micro-batches")
        process.kill()
        assert process.wait() < 0, "it ended before it was killed"
    if submitted:
        ended = submit(spark_cluster, tmp_path, [case], options)
        assert ended.returncode == 0, ended.stderr[-4000:]
    else:
        with program(spark_cluster, tmp_path, [case], options) as process:
            ended_well(process, tmp_path)
    copy_case(kafka, mysql, "by_light").build(tmp_path).run("light", checkpoint=tmp_path / "light", show_progress=False)
    with pymysql.connect(**mysql) as connection, connection.cursor() as cursor:
        found = {}
        for table in ("numbers", "by_light"):
            cursor.execute(f"SELECT n FROM {table}")  # noqa: S608
            found[table] = Counter(n for (n,) in cursor.fetchall())
    assert found["numbers"] == found["by_light"] == Counter(n for n in range(6000) if n % 5)


# --------------------------------------------------------------------------------------------- what errors say


def test_cluster_deploy_mode_is_refused_by_spark(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    ended = submit(spark_cluster, tmp_path, [], {}, "--deploy-mode", "cluster")
    assert ended.returncode != 0
    assert "Cluster deploy mode is currently not supported for python applications on standalone clusters" in (
        ended.stderr + ended.stdout
    )


@pytest.mark.slow
def test_a_driver_on_a_worker_is_started_again_when_it_was_killed(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    """What docs/cluster.md does: Spark's class that runs Python files is what is submitted, with --supervise."""
    cases = [case for case in larger_cases(ROWS) if case.name == "tumbling"]
    lay_out(tmp_path, cases)
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    submitted = submit(
        spark_cluster, tmp_path, cases, {"rows": ROWS}, "--deploy-mode", "cluster", "--supervise",
        "--driver-memory", "512m", "--conf", f"spark.pyspark.driver.python={sys.executable}",
        "--conf", f"spark.pyspark.python={sys.executable}", "--class", "org.apache.spark.deploy.PythonRunner",
        program_file=f"file:{jar}",
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr[-4000:]
    eventually(lambda: completed(tmp_path, cases) > 1, "two micro-batches")
    killed = drivers_of(spark_cluster)
    assert len(killed) == 1
    killed[0].kill()
    # The program leaves this file when it has ended well.
    eventually(lambda: (tmp_path / "cluster" / cases[0].name / "done").exists(), "the end of the second driver")
    eventually(lambda: not drivers_of(spark_cluster), "the end of its process")
    same_as_light(tmp_path, cases)


def drivers_of(cluster: SparkCluster) -> list[psutil.Process]:
    """Return the drivers that run on workers of a cluster."""
    found = []
    for process in cluster.executors():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process] if "org.apache.spark.deploy.worker.DriverWrapper" in process.cmdline() else []
    return found


def failing(master: str, directory: Path, **environment: str) -> str:
    """Run a case that cannot start; return what the program says."""
    [case] = [case for case in larger_cases(ROWS) if case.name == "where"]
    lay_out(directory, [case])
    command = [sys.executable, "-m", "tests.cluster.program", master, str(directory / "cluster"), case.name]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    return ended.stderr


@pytest.mark.parametrize("python", ["/nowhere/python", "/usr/bin/env"])
def test_a_python_that_workers_do_not_have_is_named(spark_cluster: SparkCluster, python: str, tmp_path: Path) -> None:
    said = failing(spark_cluster.master, tmp_path, PYSPARK_PYTHON=python)
    assert "Spark did not start the job: " in said
    assert python in said
    assert "PYSPARK_PYTHON names the Python of Spark's workers" in said


@pytest.mark.slow
def test_a_python_without_headrace_is_told(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    for name in ("pyspark", "py4j"):
        (make(tmp_path / "packages") / name).symlink_to(Path(pyspark.__file__).parents[1] / name)
    said = failing(spark_cluster.master, tmp_path, PYSPARK_PYTHON=str(python), PYTHONPATH=str(tmp_path / "packages"))
    assert "ModuleNotFoundError: No module named 'headrace_spark'" in said
    assert "and have headrace with the plug-ins of the job" in said


@pytest.mark.slow
def test_a_master_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """Spark tries for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = failing(f"spark://127.0.0.1:{port}", tmp_path)
    assert f"Spark did not start with master 'spark://127.0.0.1:{port}': All masters are unresponsive" in said
    assert "is this address the one with which the master was started, and does it run?" in said
