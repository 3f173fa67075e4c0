"""Jobs whose workers have a Python of their own, at a path that the driver does not have: as in the package of a job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from frame_parts import Files, begin, events
from pyspark.sql import SparkSession
from spark_parts import CountingSource, DatabaseSink

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _python_of_workers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark start a Python that runs tasks and nothing else. Here the directory of executors is that of Java."""
    gateway: Any = spark.sparkContext._gateway
    path = tmp_path / "only_workers" / "python"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *" pyspark.worker") exec {sys.executable} "$@";; esac\n'
        'echo "the driver has no such Python" >&2; exit 127\n'
    )
    path.chmod(0o755)
    relative = os.path.relpath(path, Path(f"/proc/{gateway.proc.pid}/cwd").resolve(strict=True))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", relative)


def test_the_rows_of_a_job_as_a_dataframe(spark: SparkSession, source: CountingSource) -> None:
    source.set_count("a", 5)
    rows = begin("packaged").from_(source, format="json", schema={"n": "int64"}).to_dataframe(spark, batch=True)
    assert sorted(row["n"] for row in rows.collect()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataframe_into_a_sink(files: Files, sink: DatabaseSink, tmp_path: Path, streaming: bool) -> None:
    files.add(events(20), parts=2)
    frame = files.stream() if streaming else files.read()
    begin("packaged").from_dataframe(frame).to(sink).run("spark", checkpoint=tmp_path / "state")
    assert sorted(n for _, n in sink.stored()) == list(range(20))


def test_a_source_into_a_sink(spark: SparkSession, source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 5)
    begin("packaged").from_(source, format="json", schema={"n": "int64"}).to(sink).run("spark", session=spark)
    assert sorted(n for _, n in sink.stored()) == [0, 1, 2, 3, 4]
