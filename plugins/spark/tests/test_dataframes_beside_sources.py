"""Jobs that read DataFrames and sources of headrace together: the rows of light, each once, whatever is run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from frame_parts import BEGIN, Files, begin, collect, events, light_result, result, run_query
from headrace.foundation.errors import CheckpointError, JobFailedError, PlanError
from headrace.interfaces.backend import JobState
from headrace_sql.operators.frames import FrameSource
from spark_parts import CountingSource, DatabaseSink, WindowSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
SCHEMA = {"n": "int64", "queue": "string"}


def forget_commit(checkpoint: Path, number: int) -> None:
    """Let Spark run a completed micro-batch again, as after a crash before its end was stored."""
    commits = checkpoint / "spark" / "commits"
    (commits / str(number)).unlink()
    (commits / f".{number}.crc").unlink(missing_ok=True)


def last_commit(checkpoint: Path) -> int:
    return max(int(path.name) for path in (checkpoint / "spark" / "commits").iterdir() if path.name.isdigit())


def numbers(sink: DatabaseSink) -> Counter[int]:
    return Counter(n for _, n in sink.stored())


def counted(source: CountingSource) -> hr.Stream:
    """Rows of the source as those of ``events``: a number is 7 s."""
    stream = begin("both").from_(source, format="json", schema=SCHEMA, name="counted")
    return stream.with_columns(at=pl.lit(BEGIN) + pl.duration(seconds=7 * pl.col("n"))).select("n", "at")


def per_minute(stream: hr.Stream) -> hr.Stream:
    timed = stream.with_columns(k="n % 4").watermark("at")
    counts = timed.key_by("k").window(hr.tumbling("70 s", on="at")).agg(n="COUNT(*)", least="MIN(n)")
    made: hr.Stream = counts.select("k", "least / 10 AS w", "n").with_columns(w="CAST(w AS BIGINT)")
    return made


def both(frames: hr.Stream, source: CountingSource) -> hr.Stream:
    made: hr.Stream = frames.select("n", "at").union(counted(source))
    return made


@pytest.mark.slow  # a batch is read again in every run
def test_each_row_once_though_micro_batches_come_again(
    files: Files, source: CountingSource, sink: DatabaseSink, tmp_path: Path
) -> None:
    files.add(events(60), parts=3)
    source.set_count("a", 50)
    state = tmp_path / "state"

    def run() -> hr.JobReport:
        frames = begin("both").from_dataframe(files.stream())
        return both(frames, source).where("n % 3 <> 0").to(sink).run("spark", checkpoint=state, parallelism=3)

    report = run()
    expected = Counter([n for n in range(60) if n % 3] + [n for n in range(50) if n % 3])
    assert numbers(sink) == expected
    assert (report.state, report.records_read) == (JobState.FINISHED, 110)
    assert [queue.queue for queue in report.queues] == ["counted/a", "dataframe/rows"]
    forget_commit(state, last_commit(state))
    run()
    assert numbers(sink) == expected, "what came again is there once"
    files.add(events(65)[60:])
    source.set_count("a", 55)
    source.set_count("b", 10)
    assert run().records_read == 20
    assert numbers(sink) == expected + Counter([n for n in [*range(60, 65), *range(50, 55), *range(10)] if n % 3])


def test_windows_over_both_go_on_after_restarts(files: Files, source: CountingSource, tmp_path: Path) -> None:
    rows, state = events(200), tmp_path / "state"
    source.set_count("a", 100)
    files.add(rows[:100], parts=2)
    sink = WindowSink(tmp_path / "windows.db")
    stream = per_minute(both(begin("both").from_dataframe(files.stream()), source))
    handle = stream.to(sink).start("spark", checkpoint=state, shards=2)
    eventually(lambda: handle.status().records_read == 200, "all rows")
    eventually(lambda: len(sink.stored()) == 4 * 9, "closed windows")
    handle.stop()
    assert handle.wait().state is JobState.STOPPED
    forget_commit(state, last_commit(state))
    files.add(rows[100:], parts=2)
    with stream.to(sink).start("spark", checkpoint=state) as handle:
        eventually(lambda: handle.status().records_read >= 100, "the DataFrame's rows")
        assert len(sink.stored()) == 4 * 9, "the watermark is the smaller one of both"
        source.set_count("a", 150)
        eventually(lambda: len(sink.stored()) == 4 * 14, "windows up to the watermark")
        source.set_count("a", 200)
        eventually(lambda: len(sink.stored()) == 4 * 19, "windows up to the watermark")
        source.set_count("new", 200)
        eventually(lambda: handle.status().records_read >= 400, "a new queue")
        assert handle.status().late_rows > 0, "its rows are later than what was closed"
    expected = light_result(per_minute(both(begin("light").from_(FrameSource.of(rows), name="dataframe"), source)))
    # On light the new queue is there from the beginning, so it counts three times there.
    found = Counter(sink.stored())
    assert {(k, w, n * 3 // 2) for k, w, n in found} == {row for row in expected if row[1] < 19}
    assert set(found.values()) == {1}


def joined(frames: hr.Stream, source: CountingSource) -> hr.Stream:
    left, right = frames.select("n", "at"), counted(source).select("n", "at AS when")
    made: hr.Stream = left.watermark("at").join(
        right.watermark("when"), "n", within=("-1 min", "1 min"), time=("at", "when")
    )
    return made


def windows(frames: hr.Stream, source: CountingSource) -> hr.Stream:
    return per_minute(both(frames, source))


Chain = Callable[[hr.Stream, CountingSource], hr.Stream]


@pytest.mark.parametrize("chain", [windows, both, joined])
def test_as_a_dataframe_in_streams_and_batches(
    chain: Chain, files: Files, source: CountingSource, tmp_path: Path
) -> None:
    files.add(events(80), parts=2)
    source.set_count("a", 40)
    source.set_count("b", 30)
    expected = light_result(chain(begin("light").from_(FrameSource.of(events(80)), name="dataframe"), source))
    batch = chain(begin("both").from_dataframe(files.read()), source).to_dataframe(files.spark, shards=2)
    assert not batch.isStreaming
    assert result(collect(batch)) == expected
    stream = chain(begin("both").from_dataframe(files.stream()), source)
    made = stream.to_dataframe(checkpoint=tmp_path / "state", shards=2)
    found = result(run_query(made, tmp_path / "out"))
    assert found
    assert not found - expected, "windows that are still open do not come"
    source.set_count("c", 5)
    assert sum(result(run_query(made, tmp_path / "out")).values()) >= sum(found.values())


def test_a_batch_of_both_reads_the_same_after_a_failure(files: Files, source: CountingSource, tmp_path: Path) -> None:
    files.add(events(150), parts=3)
    source.set_count("a", 100)
    windowed = WindowSink(tmp_path / "windows.db")
    job = windows(begin("both").from_dataframe(files.read()), source).to(windowed)
    report = job.run("spark", shards=2)
    light = both(begin("light").from_(FrameSource.of(events(150)), name="dataframe"), source)
    assert Counter(windowed.stored()) == light_result(per_minute(light))
    assert report.records_read == 250

    sink = DatabaseSink(tmp_path / "numbers.db")

    def backfill() -> hr.JobReport:
        stream = begin("both", bad_records="stop").from_dataframe(files.read()).select("n")
        other = begin("both").from_(source, format="json", schema=SCHEMA, name="counted").select("n")
        return stream.union(other).to(sink).run("spark", checkpoint=tmp_path / "backfill", parallelism=3)

    refused = Path(sink.path + ".refused")
    refused.write_text("99")
    with pytest.raises(JobFailedError, match="refuses a row"):
        backfill()
    there = len(sink.stored())
    assert there < 249
    refused.unlink()
    source.set_count("a", 120)
    source.set_count("b", 3)
    backfill()
    assert numbers(sink) == Counter([*range(150), *range(100)]), "what had come since the first start is not read"
    backfill()
    again = Counter([*range(150), *range(100), *range(100, 120), *range(3)])
    assert numbers(sink) == again + Counter(range(150)), (
        "the DataFrame is read anew, and the sink knows the queues' records"
    )


def test_what_does_not_fit_is_refused(files: Files, source: CountingSource, sink: DatabaseSink, tmp_path: Path) -> None:
    files.add(events(10))
    source.set_count("a", 1)
    state = tmp_path / "state"
    bounded = both(begin("both").from_dataframe(files.read()), source).to(sink)
    with pytest.raises(PlanError, match="reads the batch DataFrame 'dataframe', which ends, and the source 'counted'"):
        bounded.start("spark")
    stream = begin("both").from_dataframe(files.stream()).select("n", "at")
    stream.to(sink).run("spark", checkpoint=state)
    with pytest.raises(CheckpointError, match="a job that read dataframe, and now reads counted, dataframe"):
        both(stream, source).to(sink).run("spark", checkpoint=state)
