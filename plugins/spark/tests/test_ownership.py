"""A run or a task that was taken for dead and continues later: it stores nothing, and overwrites nothing that counts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.sink import SinkBatch
from headrace_spark.backend import SparkBackend
from headrace_spark.checkpoints import ownership
from headrace_spark.checkpoints.ownership import Ownership, Spans, lock_of, spans_below
from headrace_spark.checkpoints.state_files import StateFiles, _ArrowFiles, state_files
from keyed_parts import found, stream_of, timed, windowed, windows_of
from micro_batches import MicroBatches, another_process, line_sink
from pyarrow import fs
from spark_parts import CountingSource, DatabaseSink, LineSink

pytestmark = pytest.mark.usefixtures("_no_kept_parts")


sink = line_sink


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_LOOK_AGAIN_SECONDS", -1.0)


def claimed(run: MicroBatches, directory: Path, number: int, spans: Spans) -> None:
    """Let a run own the checkpoint as ``SparkCheckpoint.claim`` does."""
    claim = directory / "spark" / "runs" / str(number)
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(json.dumps({"content": {"host": "here", "process": number, "at": "now"}}))
    owned = Ownership("shop.counts", directory.as_uri(), number, by_driver=True, by_workers=True)
    assert run.payload.keyed is not None
    run.payload = replace(run.payload, ownership=owned, keyed=replace(run.payload.keyed, spans=spans))


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*.delta")}


def test_a_task_of_a_micro_batch_that_is_completed_stores_nothing(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 500)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", shards=2)
    claimed(run, tmp_path / "run", 1, Spans())
    run.run_batch(100)
    start, end = run.offsets, run.planner.next_end(run.offsets, 100)
    zombie = run.before_sinks(start, end, run.next_batch)  # it has its input, and nothing of it is done
    run.run(start, end, run.next_batch)
    commits = tmp_path / "run" / "spark" / "commits"
    commits.mkdir()
    (commits / "1").touch()
    before, rows = files_of(tmp_path), found(sink)
    with another_process(), pytest.raises(CheckpointError, match="micro-batch 1 was completed by another attempt"):
        list(zombie[0])
    assert files_of(tmp_path) == before
    assert found(sink) == rows


def test_a_run_that_was_replaced_overwrites_nothing_that_counts(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 500)
    place = tmp_path / "run"
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), place, shards=2)
    claimed(run, place, 1, Spans().followed_by(1, 0))
    run.run_batch(100)
    start, end, batch = run.offsets, run.planner.next_end(run.offsets, 100), run.next_batch
    earlier = run.payload
    claimed(run, place, 2, Spans().followed_by(1, 0).followed_by(2, batch))
    run.restarted()
    with another_process():
        run.run(start, end, batch)
        run.offsets, run.next_batch = end, batch + 1
        before = files_of(tmp_path)
    later, run.payload = run.payload, earlier
    with another_process(), pytest.raises(CheckpointError, match="taken over by process 2 on here at now"):
        run.run(start, end, batch)
    with pytest.raises(CheckpointError, match="taken over"):
        earlier.check_owned_on_driver()
    assert files_of(tmp_path) == before
    # Even if it does not look: its files have other names.
    run.payload = replace(earlier, ownership=None)
    with another_process():
        list(run.before_sinks(start, end, batch)[0])
    assert before.items() < files_of(tmp_path).items()
    run.payload = later
    with another_process():
        run.run_to_end(100)
    assert found(sink) == windows_of({"a": 500})


def test_micro_batches_belong_to_the_last_run_that_began_with_them_or_before() -> None:
    spans = Spans().followed_by(1, 0).followed_by(2, 7).followed_by(3, 7).followed_by(4, 9)
    runs = {batch: list(spans.runs(batch)) for batch in (0, 6, 7, 8, 9, 10)}
    assert runs == {0: [1, 0], 6: [1], 7: [3, 2, 1], 8: [3], 9: [4, 3], 10: [4]}


def test_spans_stay_few() -> None:
    spans = Spans()
    for run in range(1, 50):
        spans = spans.followed_by(run, 5)
    assert spans.spans == ((0, 0), (5, 47), (5, 48), (5, 49))
    for run in range(50, 3000):
        spans = spans.followed_by(run, run)
    assert len(spans.spans) < 1_010
    assert next(spans.runs(2500)) == 2500


@pytest.mark.spark
def test_a_checkpoint_is_claimed_by_one_run_after_the_other(tmp_path: Path) -> None:
    from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
    from headrace_spark.processes.session import session_for
    from headrace_spark.processes.settings import SparkSettings

    session = session_for(SparkSettings(master="local[2]")).session
    # As on a shared disk: nobody locks it.
    first, second = (SparkCheckpoint(session, f"file://{tmp_path}/state", local=False, job="job") for _ in range(2))
    for each in (first, second):
        each.open()
        each.check()
    first.claim()
    owned = first.ownership(keyed=True)
    assert owned is not None
    assert owned.by_driver
    owned.check_on_driver()
    first.check_owned()
    second.claim()
    for check in (owned.check_on_driver, first.check_owned, lambda: owned.check_in_worker(3)):
        with pytest.raises(CheckpointError, match=r"the checkpoint was taken over by process \d+ on ") as raised:
            check()
        assert "one driver of a job at a time" in str(raised.value)
    assert second.spans.spans == ((0, 0), (0, 1), (0, 2))
    second.check_owned()
    second.keep_definitions({}, {})
    # A restart of the same handle that went no further than its claim.
    again = SparkCheckpoint(session, f"file://{tmp_path}/state", local=False, job="job")
    again.open()
    again.check(second)
    again.claim()
    second.check_owned()
    with pytest.raises(CheckpointError, match="taken over"):
        first.check_owned()
    # A start that was killed while it made its claim.
    (tmp_path / "state" / "spark" / "runs" / "4").touch()
    third = SparkCheckpoint(session, f"file://{tmp_path}/state", local=False, job="job")
    third.open()
    third.check()
    third.claim()
    assert third.spans.spans[-1] == (0, 5)
    files = state_files((tmp_path / "state").as_uri())
    assert spans_below(files) == third.spans
    claim = tmp_path / "state" / "spark" / "runs" / "5"
    for content, why in (("{}", "runs/5.* is damaged"), (claim.read_text().replace("[0, 5]", "[0, 6]"), "checksum")):
        claim.write_text(content)
        with pytest.raises(CheckpointError, match=why):
            third.check()
        with pytest.raises(CheckpointError, match=why):
            spans_below(files)


def each_row(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
    state["n"] = state.get("n", 0) + 1
    assert state["n"] == row["n"] // 5 + 1, "state is missing"
    yield {"n": row["n"]}


class CompletingSink(DatabaseSink):
    """As if an earlier run of the job had made the same rows, and completed the second micro-batch at this moment."""

    def insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
        super().insert(connection, batch)
        commits = Path("state/spark/commits")
        if (commits / "0").exists() and not (commits / "1").exists():
            (commits / "1").write_bytes((commits / "0").read_bytes())


@pytest.mark.spark
@pytest.mark.parametrize("keyed", [True, False])
def test_a_run_starts_again_if_an_earlier_one_completes_the_same_micro_batch(
    source: CountingSource, tmp_path: Path, caplog: pytest.LogCaptureFixture, keyed: bool
) -> None:
    """It had looked whether it owns the checkpoint just before this run claimed it."""
    source.set_count("a", 300)
    sink = CompletingSink(tmp_path / "rows.db")
    stream = stream_of(source)
    if keyed:
        stream = stream.key_by("k").process(each_row, schema={"n": "int64"})
    options: dict[str, Any] = {"shards": 1} if keyed else {}
    stream.to(sink).run(
        master="local[2]",
        checkpoint="state",
        max_micro_batch_records=100,
        parallelism=1,
        show_progress=False,
        **options,
    )
    assert "an earlier run of the job has completed the same micro-batch; it is started again" in caplog.text
    assert sorted(n for _, n in sink.stored()) == list(range(300))


@pytest.mark.parametrize("of_arrow", [False, True])
def test_files_tell_whether_they_exist(tmp_path: Path, of_arrow: bool) -> None:
    (tmp_path / "a").touch()
    files: StateFiles = _ArrowFiles(fs.LocalFileSystem(), str(tmp_path), renames=True)
    if not of_arrow:
        files = state_files(tmp_path.as_uri())
    assert (files.exists("a"), files.exists("b"), files.exists("c/d")) == (True, False, False)


def test_the_lock_of_a_lost_process_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    lock = lock_of(str(tmp_path))
    SparkBackend.take_from_lost_process(str(tmp_path))  # there is none
    lock.parent.mkdir()
    lock.touch()
    (lock.parent / "runs").mkdir()
    SparkBackend.take_from_lost_process(str(tmp_path))
    SparkBackend.take_from_lost_process("s3://bucket/checkpoint")
    assert [each.name for each in lock.parent.iterdir()] == ["runs"]
