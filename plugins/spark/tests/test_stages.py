"""The source stage and the sink stage as a worker process runs them, without Spark."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, RetriableError
from headrace.runtime.lane import Delivery
from headrace_spark.checkpoints.offsets import JobIdentity
from headrace_spark.transit.carried_ranges import carried, ranges_in
from headrace_spark.transit.envelopes import BLOB_BYTES_MAX, Envelope, from_arrow, of_delivery, to_arrow
from headrace_spark.transit.payload import JobPayload, pickled, unpickled
from headrace_spark.transit.ranges import QueueRange
from headrace_spark.transit.task_counts import TaskCounts
from headrace_spark.workers import lanes, sink_stage
from headrace_spark.workers.lanes import read_ranges
from headrace_spark.workers.sink_stage import write_envelopes
from spark_parts import CountingSource, DatabaseSink

pytestmark = pytest.mark.usefixtures("_no_kept_parts")
QUEUE = Queue("a", "counting")
SCHEMA = {"n": "int64", "queue": "string"}


def payload_of(job: hr.Job, **changes: object) -> JobPayload:
    plan = job.plan()
    values = dict(
        token=uuid.uuid4().hex, identity=JobIdentity.of(plan), sources_bytes=b"",
        plan_bytes=pickled(plan, plan.job_name), import_paths=(), working_directory=None, run_directory="", until=None,
        discovery_seconds=2.0, idle_wait_seconds=0.1, retry_seconds=60.0, batch_records=4, micro_batch_records=100,
        parallelism=1,
    ) | changes  # fmt: skip
    return JobPayload(**values)  # type: ignore[arg-type]


def job_of(source: CountingSource, sink: DatabaseSink) -> hr.Job:
    return hr.stream("test", "stages").from_(source, format="json", schema=SCHEMA).to(sink)


def part(start: int, end: int, **flags: Any) -> QueueRange:
    return QueueRange(QUEUE, ReadPosition(start), ReadPosition(end), **flags)


def run_task(payload: JobPayload, *ranges: QueueRange, batch_id: int = 0, repeated: bool = False) -> TaskCounts:
    """Run a micro-batch of one task as Spark does: the process that gets the ranges reads them and writes."""
    given = from_arrow(to_arrow([carried(ranges)]))
    return write_envelopes(payload, read_ranges(payload, ranges_in(given), batch_id), batch_id, repeated=repeated)


def test_a_job_travels_though_a_module_was_imported_from_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as made:
        made.writestr("headrace_test_in_a_zip.py", "def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    importlib.invalidate_caches()
    double = importlib.import_module("headrace_test_in_a_zip").double
    content = pickled(double, "test.zip")
    assert unpickled(content)(4) == 8
    assert b"headrace_test_in_a_zip" in content, "by name: a new process finds it too"
    assert list(ranges_in([carried([part(3, 13)])])) == [part(3, 13)]


def test_a_worker_sets_what_libraries_read_at_their_import_unless_the_user_has(
    source: CountingSource, sink: DatabaseSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.set_count("a", 1)
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    # As a worker inherits it from a driver that has imported polars, which has set it; and a worker that was forked from such a one.
    inherited = subprocess.run(
        [sys.executable, "-c", "import os, polars; print(os.environ['_RJEM_MALLOC_CONF'])"],
        env={key: value for key, value in os.environ.items() if key != "_RJEM_MALLOC_CONF"},
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    monkeypatch.setenv("_RJEM_MALLOC_CONF", f"{inherited},{inherited}")
    payload_of(job_of(source, sink)).plan()
    assert os.environ["POLARS_MAX_THREADS"] == "7"
    assert "dirty_decay_ms:60000" in os.environ["_RJEM_MALLOC_CONF"]
    monkeypatch.setenv("_RJEM_MALLOC_CONF", f"{inherited},dirty_decay_ms:700")
    payload_of(job_of(source, sink)).plan()
    assert os.environ["_RJEM_MALLOC_CONF"] == f"{inherited},dirty_decay_ms:700", "the user has chosen"


def test_a_range_is_read_and_written_exactly(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    payload = payload_of(job_of(source, sink))
    counts = run_task(payload, part(3, 13))
    assert sink.stored() == [("counting/a", n) for n in range(3, 13)]
    assert counts.written == {"to_database": 10}
    assert (counts.records, counts.ends, counts.skipped) == ({"counting/a": 10}, {"counting/a": 13}, 0)


def test_a_replayed_range_changes_nothing(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    payload = payload_of(job_of(source, sink))
    run_task(payload, part(0, 10))
    again = run_task(payload, part(0, 10))
    retried = run_task(payload, part(0, 10), repeated=True)
    assert len(sink.stored()) == 10
    assert (again.written, again.skipped) == ({"to_database": 0}, 10)
    assert (retried.written, retried.skipped) == ({"to_database": 10}, 0)


def test_lanes_are_kept_and_set_to_where_a_range_begins(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    payload = payload_of(job_of(source, sink))
    run_task(payload, part(0, 10))
    first = lanes._kept[payload.token, QUEUE]
    run_task(payload, part(10, 20))
    assert lanes._kept[payload.token, QUEUE] is first
    run_task(payload, part(30, 40))
    assert lanes._kept[payload.token, QUEUE] is first
    assert [n for _, n in sink.stored()] == [*range(20), *range(30, 40)]
    assert run_task(payload, part(20, 30)).skipped == 10, "what lies before what a sink has is a replay to it"


def test_another_process_may_have_written_meanwhile(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    job = job_of(source, sink)
    here, elsewhere = payload_of(job), payload_of(job)
    run_task(here, part(0, 10))
    run_task(elsewhere, part(10, 20))
    retries = sink_stage._kept[here.token].outlets.writers["to_database"].counts
    run_task(here, part(20, 30))
    assert retries.retries == 0, "what it knew of the queue was old: it must be asked anew, not found out by failing"
    assert [n for _, n in sink.stored()] == [*range(30)]


def test_what_failed_is_not_kept(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    payload = payload_of(job_of(source, sink))
    run_task(payload, part(0, 10))
    (source.directory / ".lost-a").write_text("50", encoding="utf-8")
    with pytest.raises(DataError, match="records are lost"):
        run_task(payload, part(10, 20))
    assert not lanes._kept
    assert not sink_stage._kept


def test_a_queue_that_goes_is_forgotten(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    sink.prepare(None)
    payload = payload_of(job_of(source, sink))
    run_task(payload, part(0, 10))
    run_task(payload, part(10, 10, gone=True))
    assert not lanes._kept
    assert not sink_stage._kept[payload.token].ends


def test_records_that_do_not_come_are_not_waited_for_for_ever(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 5)
    with pytest.raises(RetriableError, match="gave none after 5"):
        list(read_ranges(payload_of(job_of(source, sink), retry_seconds=0.0), [part(0, 10)], 0))


def frame(rows: int, text: str = "x") -> pl.DataFrame:
    return pl.DataFrame({OFFSET: range(rows), INDEX: [0] * rows, "s": [text] * rows}).with_columns(
        pl.col(INDEX).cast(pl.Int32)
    )


def test_large_batches_are_cut_into_blobs() -> None:
    delivery = Delivery("to_x", Batch(QUEUE, frame(1000, "x" * 10_000)))
    envelopes = list(of_delivery(delivery))
    assert len(envelopes) >= 3
    assert max(len(e.payload) for e in envelopes) < 2 * BLOB_BYTES_MAX
    back = [e.delivery().batch.frame for e in from_arrow(to_arrow(envelopes))]
    assert pl.concat(back).equals(delivery.batch.frame)
    assert envelopes[0].first == 0
    assert envelopes[-1].last == 999


def test_envelopes_keep_branches_and_odd_names() -> None:
    queue = Queue("päth/ü\n#1", "src", "dead-letters-x")
    (back,) = from_arrow(to_arrow([Envelope("rows", queue, 1, 2, 3, "to", b"\0\xff")]))
    assert back == Envelope("rows", queue, 1, 2, 3, "to", b"\0\xff")


def test_what_lies_behind_the_range_is_left_out() -> None:
    raw = RawBatch(
        np.array([0, 10, 11, 12]), ReadPosition(13), bodies=Bodies.of([b"a", b"b", b"c", b"d"]),
        times=np.array([1, 2, 3, 4]), keys=[b"k", None, b"l", b"m"], headers=[{}, {"h": b"1"}, {}, {}],
    )  # fmt: skip
    cut = raw.until(ReadPosition(11))
    assert cut.offsets.tolist() == [0, 10]
    assert list(cut.bodies or []) == [b"a", b"b"]
    assert cut.next_position == ReadPosition(11)
    assert cut.times is not None
    assert cut.times.tolist() == [1, 2]
    assert (cut.keys, cut.headers) == ([b"k", None], [{}, {"h": b"1"}])
    assert raw.until(ReadPosition(13)) is raw


def test_a_plan_that_cannot_travel_is_refused(source: CountingSource, sink: DatabaseSink, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", encoding="utf-8") as file:
        job = hr.stream("t", "j").from_(source, format="json", schema=SCHEMA).map(lambda row: file.name).to(sink)
        with pytest.raises(hr.PlanError, match="cannot be sent to Spark's workers"):
            pickled(job.plan(), job.name)


def test_a_process_that_only_hands_ranges_over_need_not_have_polars_in_memory() -> None:
    program = (
        "import sys; from headrace_spark.workers import streaming; from headrace_spark.transit.carried_ranges import carried; "
        "from headrace_spark.transit.envelopes import to_arrow; list(to_arrow([carried([])])); print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
