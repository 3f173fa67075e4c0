"""Savepoints of jobs over streaming DataFrames: the job that starts from one goes on as if it had never stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from frame_parts import Files, begin, events, light_result
from headrace.foundation.errors import CheckpointError, OptionError
from headrace.interfaces.backend import JobHandle
from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
from headrace_sql.operators.frames import FrameSource
from spark_parts import CountingSource, DatabaseSink, WindowSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
ROWS = events(400)


def windowed(stream: hr.Stream) -> hr.Stream:
    timed = stream.with_columns(k="n % 4").watermark("at")
    counts = timed.key_by("k").window(hr.tumbling("70 s", on="at")).agg(n="COUNT(*)", least="MIN(n)")
    made: hr.Stream = counts.select("k", "least / 10 AS w", "n").with_columns(w="CAST(w AS BIGINT)")
    return made


def expected(before: int) -> list[tuple[int, int, int]]:
    """Return what light makes of all rows: windows before one."""
    rows = light_result(windowed(begin("light").from_(FrameSource.of(ROWS))))
    return sorted(row for row in rows if row[1] < before)


def wait_for(sink: WindowSink, windows: int, handle: JobHandle) -> None:
    eventually(lambda: len(sink.stored()) >= 4 * windows, "closed windows", shown=handle.status)


def test_a_stopped_job_goes_on_with_other_shards(files: Files, tmp_path: Path) -> None:
    sink, savepoint = WindowSink(tmp_path / "windows.db"), tmp_path / "savepoint"
    files.add(ROWS[:100], parts=3)
    stream = windowed(begin("saved").from_dataframe(files.stream()))
    handle = stream.to(sink).start("spark", checkpoint=tmp_path / "one", shards=2)
    wait_for(sink, 9, handle)
    handle.stop(savepoint=savepoint)
    assert handle.wait().error is None
    files.add(ROWS[100:200], parts=2)
    with stream.to(sink).start("spark", checkpoint=tmp_path / "two", shards=3, from_savepoint=savepoint) as handle:
        wait_for(sink, 19, handle)
        eventually(lambda: handle.status().records_read >= 100, "both micro-batches are completed")
        assert handle.status().records_read == 100, "what was read before is not read again"
    files.add(ROWS[200:300], parts=2)
    with stream.to(sink).start("spark", checkpoint=tmp_path / "two", from_savepoint=savepoint) as handle:
        wait_for(sink, 29, handle)
    assert sink.stored() == expected(29)
    with pytest.raises(CheckpointError, match="up to entry"):
        stream.to(sink).start("spark", checkpoint=tmp_path / "three", from_savepoint=savepoint)
    with pytest.raises(CheckpointError, match="already started, and not from the savepoint"):
        stream.to(sink).start("spark", checkpoint=tmp_path / "one", from_savepoint=savepoint)


def test_a_savepoint_of_a_job_that_goes_on_begins_a_fork(files: Files, source: CountingSource, tmp_path: Path) -> None:
    """Both read a DataFrame and a source of headrace; the fork has another name and another sink."""
    source.set_count("a", 100)
    files.add(ROWS[:100], parts=3)

    def job(name: str, sink: WindowSink) -> hr.Job:
        counted = begin(name).from_(source, format="json", schema={"n": "int64", "queue": "string"}, name="counted")
        timed = counted.with_columns(at=pl.lit(ROWS["at"][0]) + pl.duration(seconds=7 * pl.col("n")))
        frames = begin(name).from_dataframe(files.stream()).select("n", "at")
        return windowed(frames.union(timed.select("n", "at"))).to(sink)

    first, second = WindowSink(tmp_path / "first.db"), WindowSink(tmp_path / "second.db")
    with job("first", first).start("spark", checkpoint=tmp_path / "one", shards=3) as handle:
        wait_for(first, 9, handle)
        eventually(lambda: handle.status().records_read == 200, "the micro-batch is completed")
        handle.savepoint(tmp_path / "savepoint")
        files.add(ROWS[100:200], parts=2)
        source.set_count("a", 200)
        wait_for(first, 19, handle)
    start = {"checkpoint": tmp_path / "two", "shards": 1, "from_savepoint": tmp_path / "savepoint"}
    with job("second", second).start("spark", **start) as handle:
        wait_for(second, 10, handle)
    twice = Counter((k, w, 2 * n) for k, w, n in expected(19))
    assert Counter(first.stored()) == twice
    assert Counter(second.stored()) == Counter({row: 1 for row in twice if row[1] >= 9})


def test_rows_without_state_go_on_once(files: Files, sink: DatabaseSink, tmp_path: Path) -> None:
    files.add(ROWS[:60], parts=2)
    stream = begin("plain").from_dataframe(files.stream()).where("n % 3 <> 0")
    handle = stream.to(sink).start("spark", checkpoint=tmp_path / "one", parallelism=2)
    eventually(lambda: len(sink.stored()) == 40, "all rows")
    handle.stop(savepoint=tmp_path / "savepoint")
    handle.wait()
    files.add(ROWS[60:90])
    report = stream.to(sink).run(
        "spark", checkpoint=tmp_path / "two", parallelism=3, from_savepoint=tmp_path / "savepoint"
    )
    assert report.records_read == 30
    assert sorted(n for _, n in sink.stored()) == [n for n in range(90) if n % 3]


def test_a_start_that_was_interrupted_is_made_anew(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.add(ROWS[:100], parts=3)
    sink, savepoint = WindowSink(tmp_path / "windows.db"), tmp_path / "savepoint"
    stream = windowed(begin("again").from_dataframe(files.stream()))
    handle = stream.to(sink).start("spark", checkpoint=tmp_path / "one", shards=2)
    wait_for(sink, 9, handle)
    handle.stop(savepoint=savepoint)

    def killed(self: SparkCheckpoint, content: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SparkCheckpoint, "keep_frames", killed)
        with pytest.raises(KeyboardInterrupt):
            stream.to(sink).start("spark", checkpoint=tmp_path / "two", from_savepoint=savepoint)
    with pytest.raises(CheckpointError, match="a start from a savepoint was interrupted"):
        stream.to(sink).start("spark", checkpoint=tmp_path / "two")
    files.add(ROWS[100:200], parts=2)
    with stream.to(sink).start("spark", checkpoint=tmp_path / "two", from_savepoint=savepoint) as handle:
        wait_for(sink, 19, handle)
    assert sink.stored() == expected(19)


def test_what_a_savepoint_cannot_begin(files: Files, source: CountingSource, tmp_path: Path) -> None:
    files.add(ROWS[:100], parts=3)
    sink, savepoint = WindowSink(tmp_path / "windows.db"), tmp_path / "savepoint"
    stream = windowed(begin("refused").from_dataframe(files.stream()))
    handle = stream.to(sink).start("spark", checkpoint=tmp_path / "one", shards=2)
    wait_for(sink, 9, handle)
    handle.stop(savepoint=savepoint)
    batch = windowed(begin("refused").from_dataframe(files.read())).to(sink)
    with pytest.raises(OptionError, match="reads batch DataFrames cannot start from a savepoint"):
        batch.run("spark", from_savepoint=savepoint)
    counted = begin("refused").from_(source, format="json", schema={"n": "int64", "queue": "string"}, name="dataframe")
    timed = counted.with_columns(at=pl.lit(ROWS["at"][0]) + pl.duration(seconds=7 * pl.col("n")))
    with pytest.raises(CheckpointError, match="was a DataFrameSource when the savepoint was taken"):
        windowed(timed).to(sink).run("light", from_savepoint=savepoint, checkpoint=tmp_path / "light")
    two = begin("refused").from_dataframe(files.stream()).select("n", "at")
    more = two.union(begin("refused").from_dataframe(files.stream(), name="more").select("n", "at"))
    with pytest.raises(CheckpointError, match="read dataframe, and now reads dataframe, more"):
        windowed(more).to(sink).start(
            "spark", checkpoint=tmp_path / "two", from_savepoint=savepoint, allow_changed_input=True
        )
