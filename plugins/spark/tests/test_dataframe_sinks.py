"""Jobs that read DataFrames and write to sinks of headrace: exactly once though rows come in another order, state, batch runs."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from frame_parts import Files, begin, events, light_result
from headrace.foundation.errors import CheckpointError, JobFailedError, OptionError, PlanError
from headrace.interfaces.backend import JobState
from headrace_spark import JobFigures, JobProgress
from headrace_spark.processes.session import session_of
from headrace_spark.processes.session_packages import run_by
from headrace_spark.queries.handle import SparkHandle
from headrace_sql.operators.frames import FrameSource
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType
from spark_parts import DatabaseSink, LineSink, WindowSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark


def numbers(sink: DatabaseSink) -> list[int]:
    return sorted(n for _, n in sink.stored())


def forget_commit(checkpoint: Path, number: int) -> None:
    """Let Spark run a completed micro-batch again, as after a crash before its end was stored."""
    commits = checkpoint / "spark" / "commits"
    (commits / str(number)).unlink()
    (commits / f".{number}.crc").unlink(missing_ok=True)


def rewritten(files: Files, number: int) -> None:
    """Bring the rows of a file into another order."""
    path = files.place / f"{number:04}.parquet"
    times = path.stat().st_atime, path.stat().st_mtime
    pl.read_parquet(path).reverse().write_parquet(path)
    os.utime(path, times)


# Every run has the same of DataFrames beside sources in test_dataframes_beside_sources.py.
@pytest.mark.slow
def test_each_row_once_though_a_micro_batch_comes_again_in_another_order(
    files: Files, sink: DatabaseSink, tmp_path: Path
) -> None:
    files.add(events(90), parts=3)
    state = tmp_path / "state"

    def run() -> hr.JobReport:
        stream = begin("exactly").from_dataframe(files.stream()).where("n % 3 <> 0")
        return stream.to(sink).run("spark", checkpoint=state, parallelism=3)

    report = run()
    expected = [n for n in range(90) if n % 3]
    assert numbers(sink) == expected
    assert (report.state, report.records_read, sum(report.rows_written.values())) == (JobState.FINISHED, 90, 60)
    # The last micro-batch had stored only a part of its rows when the driver ended.
    with closing(sqlite3.connect(sink.path)) as connection, connection:
        [(queue, position)] = connection.execute("SELECT queue, MAX(position) FROM rows").fetchall()
        gone = connection.execute("DELETE FROM rows WHERE queue = ? AND position = ?", (queue, position)).rowcount
        before = connection.execute("SELECT MAX(position) FROM rows WHERE queue = ?", (queue,)).fetchone()[0]
        connection.execute("UPDATE ends SET position = ?, part = 999 WHERE queue = ?", (before, queue))
    assert gone > 0
    assert numbers(sink) != expected
    forget_commit(state, 2)
    rewritten(files, 2)
    again = run()
    assert numbers(sink) == expected, "what was missing is there, and nothing twice"
    assert (sum(again.rows_written.values()), again.rows_skipped) == (gone, 20 - gone)
    files.add(events(95)[90:])
    assert run().records_read == 5
    assert numbers(sink) == [n for n in range(95) if n % 3]


@pytest.mark.slow
def test_the_order_of_partitions_is_kept_on_request(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, numPartitions=2).selectExpr("id AS n")
    for keep in (True, False):
        sink = LineSink(tmp_path / str(keep))
        begin("order").from_dataframe(frame, keep_order=keep).to(sink).run("spark")
        found = [row["n"] for row in sink.rows()]
        assert sorted(found) == list(range(1000))
        halves = [[n for n in found if n < 500], [n for n in found if n >= 500]]
        assert (halves == [sorted(half) for half in halves]) == keep


def windowed(stream: hr.Stream) -> hr.Stream:
    timed = stream.with_columns(k="n % 4").watermark("at")
    counts = timed.key_by("k").window(hr.tumbling("70 s", on="at")).agg(n="COUNT(*)", least="MIN(n)")
    made: hr.Stream = counts.select("k", "least / 10 AS w", "n").with_columns(w="CAST(w AS BIGINT)")
    return made


def test_windows_of_a_stream_in_a_sink(files: Files, tmp_path: Path) -> None:
    rows = events(200)
    files.add(rows[:100], parts=2)
    sink = WindowSink(tmp_path / "windows.db")
    state = tmp_path / "state"
    stream = windowed(begin("kept").from_dataframe(files.stream()))
    expected = sorted(light_result(windowed(begin("light").from_(FrameSource.of(rows)))))
    handle = stream.to(sink).start("spark", checkpoint=state, shards=2)
    eventually(lambda: handle.status().records_read == 100, "all rows")
    eventually(lambda: len(sink.stored()) == 4 * 9, "closed windows")
    assert handle.status().watermark is not None
    handle.stop()
    assert handle.wait().state is JobState.STOPPED
    forget_commit(state, 1)
    files.add(rows[100:], parts=2)
    with stream.to(sink).start("spark", checkpoint=state) as handle:
        eventually(lambda: len(sink.stored()) == 4 * 19, "windows up to the watermark")
    assert sink.stored() == sorted(row for row in expected if row[1] < 19)
    with pytest.raises(CheckpointError, match="with 2 parts, but the job asks for 3"):
        stream.to(sink).start("spark", checkpoint=state, shards=3)
    with pytest.raises(PlanError, match="would never close the last windows"):
        stream.to(sink).run("spark", checkpoint=state)
    timed = begin("kept").from_dataframe(files.stream()).with_columns(k="n % 4").watermark("at")
    other = timed.key_by("k").window(hr.tumbling("10 s", on="at")).agg(n="COUNT(*)", w="MIN(n)").select("k", "w", "n")
    with pytest.raises(CheckpointError, match="was stored by another definition of it"):
        other.to(sink).start("spark", checkpoint=state)


def test_a_batch_closes_all_windows_and_continues_after_a_failure(files: Files, tmp_path: Path) -> None:
    rows = events(150)
    files.add(rows, parts=3)
    expected = sorted(light_result(windowed(begin("light").from_(FrameSource.of(rows)))))
    sink = WindowSink(tmp_path / "windows.db")
    report = windowed(begin("bounded").from_dataframe(files.read())).to(sink).run("spark", shards=2)
    assert sink.stored() == expected
    assert (report.records_read, sum(report.rows_written.values())) == (150, len(expected))

    numbered = DatabaseSink(tmp_path / "numbers.db")

    def backfill() -> hr.JobReport:
        stream = begin("backfill", bad_records="stop").from_dataframe(files.read()).select("n")
        return stream.to(numbered).run("spark", checkpoint=tmp_path / "backfill", parallelism=3)

    refused = Path(numbered.path + ".refused")
    refused.write_text("149")
    with pytest.raises(JobFailedError, match="refuses a row"):
        backfill()
    there = len(numbered.stored())
    assert 0 < there < 150
    refused.unlink()
    report = backfill()
    assert (sum(report.rows_written.values()), report.rows_skipped) == (150 - there, there)
    assert numbers(numbered) == list(range(150))
    backfill()
    assert numbers(numbered) == sorted([*range(150), *range(150)]), "a run after the end is another run"


def test_bad_records_and_a_sink_that_is_ahead(files: Files, sink: DatabaseSink, tmp_path: Path) -> None:
    def odd(row: dict[str, int]) -> dict[str, int]:
        if row["n"] % 2 == 0:
            raise ValueError("even")
        return {"n": row["n"]}

    files.add(events(40), parts=2)
    state = tmp_path / "state"

    def job() -> hr.Job:
        stream = begin("bad").from_dataframe(files.stream()).map(odd, schema={"n": "int64"})
        return stream.dead_letters(lambda bad: bad.to_file("bad", format="json")).to(sink)

    report = job().run("spark", checkpoint=state, parallelism=2)
    assert (report.dead_letters, numbers(sink)) == (20, list(range(1, 40, 2)))
    assert [queue.queue for queue in report.queues] == ["dataframe/rows"]
    forget_commit(state, 1)
    rewritten(files, 1)
    job().run("spark", checkpoint=state)
    lines = [line for path in Path("bad").glob("*.json") for line in path.read_text().splitlines()]
    letters = [json.loads(json.loads(line)["row"])["n"] for line in lines]
    assert sorted(letters) == list(range(0, 40, 2)), "dead letters are exactly once too"
    older = state / "spark"
    for name in ("offsets", "commits"):
        for path in (older / name).iterdir():
            path.unlink()
    with pytest.raises(CheckpointError, match="has rows of shard"):
        job().run("spark", checkpoint=state)


def test_sparks_progress_has_the_figures_of_the_job(files: Files, tmp_path: Path) -> None:
    rows = events(200)
    files.add(rows[:100], parts=2)
    stream = windowed(begin("shown").from_dataframe(files.stream()))
    told: list[JobProgress] = []
    handle = stream.to(WindowSink(tmp_path / "windows.db")).start("spark", checkpoint=tmp_path / "state", shards=2)
    assert isinstance(handle, SparkHandle)
    handle.on_progress(told.append)
    eventually(lambda: handle.status().records_read == 100, "all rows")
    files.add(rows[100:])  # figures of a micro-batch are in the progress of the next one

    def shown() -> list[JobFigures]:
        found = [each.figures for each in told if each.figures is not None]
        return [figures for figures in found if figures.records_read == {"dataframe": 100}]

    figures = eventually(shown, "figures")[0]
    assert (figures.dead_letters, figures.late_rows, figures.lag) == (0, 0, {})
    assert figures.rows_written == {"to_window": 36}
    assert figures.watermark == rows["at"][99]
    assert figures.state_rows > 0
    assert figures.state_bytes > 0
    handle.stop()


def test_what_is_no_package_is_refused_for_a_session_on_a_cluster(
    files: Files, sink: DatabaseSink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files.add(events(3))
    job = begin("packed").from_dataframe(files.stream()).to(sink)
    in_use = session_of(files.stream().sparkSession)
    monkeypatch.setattr("headrace_spark.queries.frame_query.session_of", lambda session: replace(in_use, local=False))
    with pytest.raises(OptionError, match="cannot be read"):
        job.run("spark", archive="job.tar.gz")
    (tmp_path / "other.tar.gz").write_bytes(b"")
    with pytest.raises(OptionError, match="is not a package of a job"):
        job.run("spark", archive=str(tmp_path / "other.tar.gz"))


def test_a_function_is_run_by_another_python_than_that_of_the_session(spark: SparkSession) -> None:
    """Which Python runs it is seen in the plan: the path need not be one."""
    function = UserDefinedFunction(
        lambda batches: batches, StructType(), "stage", PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    run_by(function, "./environment/bin/python")
    assert function._judf.func().pythonExec() == "./environment/bin/python"
    assert function._judf.name() == "stage"


def test_on_this_machine_an_archive_is_not_needed(files: Files, sink: DatabaseSink) -> None:
    files.add(events(3))
    begin("unpacked").from_dataframe(files.read()).to(sink).run("spark", archive="job.tar.gz")
    assert len(sink.stored()) == 3
