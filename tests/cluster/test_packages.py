"""The package of a job: workers whose Python has no packages run it, and give what light gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.cluster.running import without_spark
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.timeout(900)
#: Every executor unpacks 500 MB.
ONE_WORKER = SparkClusterOptions(workers=1, cores=2)
JOB = """
import os
import sys
import headrace as hr
import words

SEEN = {"host": "string", "ts": "timestamp", "len": "int64", "module": "string"}


def measured(row):
    import later  # no other place names it

    module = os.path.relpath(later.__file__, os.getcwd())
    return {"host": row["host"], "ts": row["ts"], "len": words.length(row["cmd"]), "module": module}


def job(place: str) -> hr.Job:
    rows = hr.stream("tests", "packaged").from_file(
        f"{place}/in/*.ndjson", format="json", schema={"host": "string", "cmd": "string", "ts": "timestamp"}
    )
    return written(rows, place)


def written(rows: hr.Stream, place: str) -> hr.Job:
    seen = rows.map(measured, schema=SEEN)
    minutes = seen.watermark("ts", delay="1 s").key_by("host").window(hr.tumbling("1 min", on="ts"))
    counts = minutes.agg(n="count(*)", longest="max(len)")
    return seen.to_file(f"{place}/seen", format="json").also(counts.to_file(f"{place}/counts", format="json"))


if __name__ == "__main__":
    place, backend, master, archive = sys.argv[1:]
    if backend == "light":
        job(place).run("light")
    elif backend == "submitted":  # spark-submit has said everything
        job(place).run(checkpoint=f"{place}/checkpoint")
    else:
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m",
                "spark.executorEnv.HEADRACE_PYTHON": os.environ["PLAIN_PYTHON"]}
        job(place).run(master=master, archive=archive, conf=conf, checkpoint=f"{place}/checkpoint")
"""
FRAMES = """
import os
import sys
import headrace as hr
from job import measured, SEEN, written
from pyspark.sql import SparkSession

place, master, python = sys.argv[1:]
conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC", "spark.executorEnv.HEADRACE_PYTHON": python}
os.environ["PYSPARK_PYTHON"] = python  # spark.pyspark.python is read by spark-submit alone
spark = SparkSession.builder.master(master).config(map=conf).getOrCreate()
frame = spark.read.schema("host STRING, cmd STRING, ts TIMESTAMP").json(f"{place}/in")
written(hr.stream("tests", "frames").from_dataframe(frame), place).run(archive="job.tar.gz")
seen = hr.stream("tests", "rows").from_dataframe(frame).map(measured, schema=SEEN).to_dataframe(archive="job.tar.gz")
assert seen.count() == 1200
assert len(spark.sparkContext.listArchives) == 1
assert spark.sparkContext.parallelize([1]).map(lambda one: sys.executable).collect() == [python]
"""
FILES = {
    "frames.py": FRAMES,
    "job.py": JOB,
    "words.py": "def length(text):\n    return len(text)\n",
    "later.py": "",
    "not_needed.py": "",
}


def plain_python(place: Path) -> str:
    """Return a Python of the same version that has no packages, not even pip."""
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    for name in ("headrace", "polars", "pyarrow"):
        assert subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode != 0
    return python


@pytest.fixture(scope="module")
def job_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a job, its modules and its package."""
    place = tmp_path_factory.mktemp("job")
    for name, text in FILES.items():
        (place / name).write_text(text)
    command = [str(Path(sys.executable).with_name("headrace")), "package", "job.py", "--set", f"place={place}"]
    done = subprocess.run([*command, "-o", "job.tar.gz"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'archive="job.tar.gz"' in done.stdout
    assert "its files     job.py, later.py, words.py" in done.stderr
    return place


def lay_out(place: Path) -> Path:
    (place / "in").mkdir(parents=True)
    for file in range(4):
        rows = [
            {"host": f"h{n % 7}", "cmd": "x" * (n % 31), "ts": f"2026-05-06 10:{n // 60:02}:{n % 60:02}"}
            for n in range(file, 1200, 4)
        ]
        (place / "in" / f"{file}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def rows_in(place: Path) -> list[dict[str, Any]]:
    lines = [line for file in place.glob("*.json") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in sorted(lines)]


def run(command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=directory, env={**without_spark(), **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def same_as_light(job_directory: Path, found: Path, light: Path) -> None:
    run([sys.executable, "job.py", str(lay_out(light)), "light", "", ""], job_directory)
    assert len(rows_in(light / "counts")) > 100
    assert rows_in(found / "counts") == rows_in(light / "counts")
    seen, wanted = rows_in(found / "seen"), rows_in(light / "seen")
    assert {re.sub("-[0-9a-f]{12}/", "/", row.pop("module")) for row in seen} == {"environment/job/later.py"}
    assert {row.pop("module") for row in wanted} == {"later.py"}
    assert sorted(seen, key=str) == sorted(wanted, key=str)
    assert len(seen) == 1200


def test_workers_with_a_plain_python_run_a_packaged_job(
    start_spark_cluster: StartSparkCluster, job_directory: Path, tmp_path: Path
) -> None:
    cluster, python = start_spark_cluster(ONE_WORKER), plain_python(tmp_path / "plain")
    place = lay_out(tmp_path / "cluster")
    command = [sys.executable, "job.py", str(place), "spark", cluster.master, "job.tar.gz"]
    run(command, job_directory, PLAIN_PYTHON=python)
    same_as_light(job_directory, place, tmp_path / "light")


@pytest.mark.slow
def test_a_session_that_runs_already_gets_the_package_for_the_job_alone(
    start_spark_cluster: StartSparkCluster, job_directory: Path, tmp_path: Path
) -> None:
    cluster, python = start_spark_cluster(ONE_WORKER), plain_python(tmp_path / "plain")
    place = lay_out(tmp_path / "cluster")
    run([sys.executable, "frames.py", str(place), cluster.master, python], job_directory)
    same_as_light(job_directory, place, tmp_path / "light")


@pytest.mark.slow
def test_spark_submit_needs_only_the_archive(
    start_spark_cluster: StartSparkCluster, job_directory: Path, tmp_path: Path
) -> None:
    cluster, python = start_spark_cluster(ONE_WORKER), plain_python(tmp_path / "plain")
    place = lay_out(tmp_path / "cluster")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--archives", "job.tar.gz#environment", "--conf", "spark.driver.host=127.0.0.1"]
    submit += ["--conf", "spark.executor.memory=512m", "--conf", f"spark.executorEnv.HEADRACE_PYTHON={python}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run([*submit, "job.py", str(place), "submitted", "", ""], job_directory, PATH=path)
    same_as_light(job_directory, place, tmp_path / "light")
