"""Checkpoints and state in S3: what light gives, whatever is killed. Spark and workers have one setting of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.program import CONF, ROOT
from tests.cluster.running import cases_of, ended_well, lay_out, same_as_light, without_spark
from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.s3 import S3Server
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.timeout(900)
#: Without state, and with windows.
NAMES = ["where", "tumbling"]
CLOUD = "spark-hadoop-cloud"


def settings(server: S3Server, jars: Sequence[Path], more: Mapping[str, str]) -> dict[str, str]:
    return {**server.conf, "spark.jars": ",".join(map(str, jars)), **more}


@contextmanager
def program(
    master: str, directory: Path, checkpoints: str, conf: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the cases in a process of its own. Nothing in its environment says how to reach S3: only Spark's settings do."""
    command = [
        sys.executable,
        "-m",
        "tests.cluster.s3_program",
        master,
        str(directory / "cluster"),
        checkpoints,
        *NAMES,
    ]
    environment = {name: value for name, value in without_spark().items() if not name.startswith("AWS_")}
    with (directory / "log.txt").open("a") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "CONF": json.dumps(conf), "AWS_EC2_METADATA_DISABLED": "true"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def has_completed(server: S3Server, place: str, name: str) -> bool:
    """Return whether a micro-batch of a case has been completed."""
    path = f"{place.removeprefix('s3a://')}/{name}/spark/commits/0"
    return bool(server.file_system().get_file_info(path).is_file)


def files_of(server: S3Server, place: str) -> list[str]:
    from pyarrow import fs

    return [
        info.path for info in server.file_system().get_file_info(fs.FileSelector(place, recursive=True)) if info.is_file
    ]


@pytest.mark.parametrize("cloud", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_driver_that_is_killed_goes_on_from_s3(
    s3_server: S3Server, s3_bucket: str, s3_jars: list[Path], tmp_path: Path, cloud: bool
) -> None:
    jars = [jar for jar in s3_jars if cloud or not jar.name.startswith(CLOUD)]
    lay_out(tmp_path, cases_of(NAMES))
    place, conf = f"s3a://{s3_bucket}/jobs", settings(s3_server, jars, {})
    with program("local[2]", tmp_path, place, conf) as process:
        eventually(lambda: has_completed(s3_server, place, "tumbling") or process.poll() is not None, "a micro-batch")
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-4000:]
        process.kill()
    with program("local[2]", tmp_path, place, conf) as process:
        ended_well(process, tmp_path)
    same_as_light(tmp_path, cases_of(NAMES))
    stored = files_of(s3_server, s3_bucket)
    assert [path for path in stored if "/tumbling/shards/" in path and path.endswith(".delta")]
    assert s3_server.secret_key not in (tmp_path / "log.txt").read_text()
    assert not [path for path in os.listdir(ROOT) if path.startswith("s3a")]


@pytest.mark.slow
def test_an_executor_that_is_killed_goes_on_from_s3(
    s3_server: S3Server, s3_bucket: str, s3_jars: list[Path], start_spark_cluster: StartSparkCluster, tmp_path: Path
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=2))
    lay_out(tmp_path, cases_of(NAMES))
    place, conf = f"s3a://{s3_bucket}/jobs", settings(s3_server, s3_jars, CONF)
    with program(cluster.master, tmp_path, place, conf) as process:
        eventually(lambda: has_completed(s3_server, place, "tumbling") or process.poll() is not None, "a micro-batch")
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-4000:]
        cluster.executors()[0].kill()
        ended_well(process, tmp_path)
    same_as_light(tmp_path, cases_of(NAMES))
