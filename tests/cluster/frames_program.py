"""Runs jobs over streaming DataFrames on a cluster: python -m tests.cluster.frames_program MASTER DIRECTORY NAME …

``HEADRACE_TEST_CLUSTER`` holds options as JSON: ``conf`` for Spark, ``rows``: of each case's output, at which it is complete.
A case that is done leaves a file ``done``; started again, the program continues with the others.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.cluster.frame_cases import FRAME_CASES, FrameCase, begun, frame, written_rows
from tests.cluster.program import CONF, VARIABLE
from tests.eventually import eventually

#: State and checkpoint lie on a disk that all workers have.
_SHARDS = 3


def main() -> None:
    """Run the cases that the command line names."""
    master, directory, *names = sys.argv[1:]
    given: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    for name, value in {**CONF, **given.get("conf", {})}.items():
        builder = builder.config(name, value)
    spark: SparkSession = (
        builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for case in FRAME_CASES:
        place = Path(directory) / case.name
        if case.name in names and not (place / "done").exists():
            (_between if case.between else _written)(case, spark, place, given["rows"].get(case.name, 0))
            (place / "done").touch()


def _between(case: FrameCase, spark: SparkSession, place: Path, rows: int) -> None:
    """Let Spark write the rows, exactly once by its own checkpoint."""
    stream = case.chain(begun().from_dataframe(frame(spark, place)), place)
    made = stream.to_dataframe(checkpoint=(place / "state").as_uri(), shards=_SHARDS)
    writer = made.writeStream.format("json").option("checkpointLocation", str(place / "checkpoint" / "spark"))
    writer.trigger(availableNow=True).start(str(place / "out")).awaitTermination()


def _written(case: FrameCase, spark: SparkSession, place: Path, rows: int) -> None:
    """Let headrace write the rows, until as many are there as there should be."""
    stream = case.chain(begun().from_dataframe(frame(spark, place)), place)
    job = stream.to_file(str(place / "out"), format="json")
    with job.start("spark", checkpoint=(place / "checkpoint").as_uri(), shards=_SHARDS, show_progress=False) as handle:
        eventually(
            lambda: written_rows(place / "out").total() >= rows or handle.status().state.value == "failed",
            "all rows",
            seconds=600,
            pause_seconds=0.2,  # each look reads all rows
        )
        handle.stop()
        handle.wait()


if __name__ == "__main__":
    main()
