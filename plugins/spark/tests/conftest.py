"""Shared by the tests of the Spark backend. They use one Spark, which is started by the first test that needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# What workers import must be importable here by the same name.
sys.path.insert(0, str(Path(__file__).parent))

from frame_parts import Files
from headrace_spark.processes.session import session_for
from headrace_spark.processes.settings import SparkSettings
from pyspark.sql import SparkSession
from spark_parts import CountingSource, DatabaseSink


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("spark"):
        session_for(SparkSettings())  # Java stays in the directory where it is started; that of a test is removed
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _no_kept_parts() -> Iterator[None]:
    """Close what this process keeps between micro-batches. For tests that run stages without Spark."""
    yield
    from micro_batches import forget_all

    forget_all()


@pytest.fixture
def source(tmp_path: Path) -> CountingSource:
    made = CountingSource(tmp_path / "queues")
    made.directory.mkdir()
    return made


@pytest.fixture
def sink(tmp_path: Path) -> DatabaseSink:
    return DatabaseSink(tmp_path / "rows.db")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session as a user has one: with Spark's own settings where they matter."""
    tuned = session_for(SparkSettings()).session
    session = tuned.newSession()
    for name in ("spark.sql.streaming.checkpointFileManagerClass", "spark.sql.adaptive.enabled"):
        if value := tuned.conf.get(name, ""):
            session.conf.set(name, value)  # tests wait for many checkpoints
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return session


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "files")
