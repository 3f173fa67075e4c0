"""The light backend: bounded and unbounded runs, checkpoints, queues that come and go, outages, failures, kills."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation import spared_objects
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import CheckpointError, DataError, JobError, JobFailedError, OptionError, RetriableError
from headrace.interfaces.backend import JobState
from headrace.interfaces.operator import OperatorSpec
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink, MemorySource, MemoryTransactionalSink
from headrace_light.backend import LightBackend

from tests.eventually import eventually


def bodies(*numbers: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def job(source: MemorySource, sink: MemorySink, **options: Any) -> hr.Job:
    return hr.stream("test", "light", **options).from_(source, format="json", schema={"n": "int64"}).to(sink)


def numbers(sink: MemorySink) -> list[int]:
    return [row["n"] for row in sink.rows]


def test_a_bounded_run_reads_to_the_end_and_reports() -> None:
    source = MemorySource({"a": bodies(*range(10)), "b": bodies(100, 101)})
    sink = MemorySink()
    report = job(source, sink).run("light", max_batch_records=3)
    assert sorted(numbers(sink)) == [*range(10), 100, 101]
    assert report.state is JobState.FINISHED
    assert report.records_read == 12
    assert dict(report.rows_written) == {"to_memory": 12}
    assert [(queue.queue, queue.offset, queue.lag) for queue in report.queues] == [
        ("memory/a", 10, 0),
        ("memory/b", 2, 0),
    ]
    assert "12 records read" in str(report)


def test_an_empty_source_ends_at_once() -> None:
    sink = MemorySink()
    assert job(MemorySource(), sink).run("light").records_read == 0
    assert job(MemorySource({"a": []}), MemorySink()).run("light").records_read == 0


def test_a_bounded_run_leaves_what_came_after_its_start() -> None:
    source = MemorySource({"a": bodies(1, 2)})

    class Appending(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            super().batch_insert(batch)
            source.append("a", *bodies(99))

    sink = Appending(hr.SinkSettings(max_cached_rows=1))
    job(source, sink).run("light", max_batch_records=1)
    assert numbers(sink) == [1, 2]


def test_a_job_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(1, 2)})
    first = MemorySink()
    job(source, first).run("light", checkpoint=tmp_path)
    source.append("a", *bodies(3))
    source.append("b", *bodies(7))
    second = MemorySink()
    job(source, second).run("light", checkpoint=tmp_path)
    assert numbers(first) == [1, 2]
    assert sorted(numbers(second)) == [3, 7]


def test_without_a_checkpoint_a_job_begins_anew() -> None:
    source = MemorySource({"a": bodies(1, 2)})
    sink = MemorySink()
    job(source, sink).run("light")
    again = MemorySink()
    job(source, again).run("light")
    assert numbers(again) == [1, 2]


def test_start_latest_skips_what_is_there_but_not_what_appears() -> None:
    source = MemorySource({"a": bodies(1, 2)})
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
    built = hr.stream("test", "latest").from_(source, format="json", schema={"n": "int64"}, start="latest").to(sink)
    with built.start("light", discovery_interval=0):
        source.append("a", *bodies(3))
        source.append("new", *bodies(10))
        eventually(lambda: sorted(numbers(sink)) == [3, 10], "the rows that came later")


def test_queues_come_and_go_while_the_job_runs() -> None:
    source = MemorySource({"a": bodies(1)})
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
    handle = job(source, sink).start("light", discovery_interval=0)
    eventually(lambda: numbers(sink) == [1], "first row")
    source.append("b", *bodies(2))
    eventually(lambda: 2 in numbers(sink), "row of the queue added")
    source.remove_queue("b")
    eventually(lambda: len([q for q in handle.status().queues if q.queue == "memory/b"]) == 1, "queue removed")
    source.append("a", *bodies(3))
    eventually(lambda: 3 in numbers(sink), "row after the queue was removed")
    handle.stop()
    assert handle.wait().state is JobState.STOPPED
    assert sorted(numbers(sink)) == [1, 2, 3]


def test_stop_flushes_and_checkpoints(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(*range(100))})
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(hours=1)))
    handle = job(source, sink).start("light", checkpoint=tmp_path, checkpoint_interval="1 h")
    eventually(lambda: handle.status().records_read == 100, "all read")
    handle.stop()
    handle.stop()
    assert len(sink.rows) == 100
    assert sink.closed == 1
    stored = json.loads((tmp_path / "light" / "checkpoint.json").read_text())
    assert stored["queues"] == [{"source": "memory", "queue": "a", "offset": 100}]


def test_a_source_that_is_away_costs_time_not_data() -> None:
    source = MemorySource({"a": bodies(1)})
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
    handle = job(source, sink).start("light", discovery_interval=0)
    eventually(lambda: numbers(sink) == [1], "first row")
    source.outage = RetriableError("connection refused")
    source.append("a", *bodies(2))
    source.outage = None
    eventually(lambda: numbers(sink) == [1, 2], "row after the outage")
    handle.stop()


class _AwayAtTimes(hr.Operator):
    """Says for some batches that a server which it asks is away: at first, and then not any more."""

    failures: list[str] = []  # set by the test

    def process(self, batch: hr.Batch) -> list[hr.Batch]:
        if self.failures:
            raise RetriableError(self.failures.pop())
        return [batch]


class _AwayAtTimesSpec(OperatorSpec):
    name = "away_at_times"

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        return schema

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return _AwayAtTimes()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_an_operator_could_not_do_for_now_is_done_later(tmp_path: Path, keyed: bool, checkpoint: bool) -> None:
    """A function or a table of an operator is away: the records at hand wait, nothing is skipped and nothing doubled."""
    source, sink = MemorySource({"a": bodies(*range(20)), "b": bodies(*range(100, 120))}), MemorySink()
    _AwayAtTimes.failures = ["table away"] * 5
    stream = hr.stream("test", "away").from_(source, format="json", schema={"n": "int64"}).apply(_AwayAtTimesSpec())
    built = (stream.key_by("n").distinct() if keyed else stream).to(sink)
    report = built.run("light", max_batch_records=3, checkpoint=tmp_path if checkpoint else None)
    assert (sorted(numbers(sink)), report.records_read) == ([*range(20), *range(100, 120)], 40)
    assert _AwayAtTimes.failures == []


def test_an_operator_that_is_away_for_long_fails_the_job() -> None:
    _AwayAtTimes.failures = ["table away"] * 10_000
    stream = hr.stream("test", "away").from_(MemorySource({"a": bodies(1)}), format="json", schema={"n": "int64"})
    with pytest.raises(JobFailedError, match=r"server that an operator uses was not available .* table away"):
        stream.apply(_AwayAtTimesSpec()).to(MemorySink()).run("light", retry_timeout="500 ms")


def test_a_source_that_stays_away_fails_the_job_with_its_place() -> None:
    source = MemorySource({"a": bodies(1)})
    source.outage = RetriableError("connection refused")
    with pytest.raises(JobFailedError, match="connection refused"):
        job(source, MemorySink()).run("light", retry_timeout="1 ms")


def test_an_error_fails_the_job_and_is_the_cause() -> None:
    sink = MemorySink()
    sink.failures = [JobError("no permission", hint="grant it")]
    with pytest.raises(JobFailedError, match="no permission") as caught:
        job(MemorySource({"a": bodies(1)}), sink).run("light")
    assert isinstance(caught.value.__cause__, JobError)
    assert "grant it" in str(caught.value)
    assert sink.closed == 1


def test_a_failed_job_says_so_in_its_status() -> None:
    sink = MemorySink()
    sink.failures = [JobError("no permission")]
    handle = job(MemorySource({"a": bodies(1)}), sink).start("light", until="end")
    with pytest.raises(JobFailedError):
        handle.wait(timedelta(seconds=20))
    status = handle.status()
    assert status.state is JobState.FAILED
    assert status.error is not None
    assert "no permission" in status.error


def test_a_sink_that_cannot_be_prepared_stops_the_job_before_anything_is_read() -> None:
    class Broken(MemorySink):
        def prepare(self, schema: hr.Schema | None) -> None:
            raise JobError("unknown table 'alerts'")

    source = MemorySource({"a": bodies(1)})
    with pytest.raises(JobError, match="unknown table"):
        job(source, Broken()).run("light")
    assert source.opened == []


def test_bad_records_can_stop_the_job() -> None:
    source = MemorySource({"a": [*bodies(1), b"{broken"]})
    with pytest.raises(JobFailedError, match="bad record") as caught:
        job(source, MemorySink(), bad_records="stop").run("light")
    assert isinstance(caught.value.__cause__, DataError)
    assert caught.value.__cause__.offset == 1
    assert caught.value.__cause__.queue == "memory/a"


def test_bad_records_go_to_the_dead_letters() -> None:
    source = MemorySource({"a": [*bodies(1), b"{broken", *bodies(2)]})
    bad, sink = MemorySink(), MemorySink()
    built = (
        hr.stream("test", "dead")
        .from_(source, format="json", schema={"n": "int64"})
        .dead_letters(lambda letters: letters.to(bad))
        .to(sink)
    )
    report = built.run("light")
    assert numbers(sink) == [1, 2]
    assert [(row["queue"], row["offset"], row["origin"], row["body"]) for row in bad.rows] == [
        ("memory/a", 1, "memory", b"{broken")
    ]
    assert report.dead_letters == 1
    assert report.queues[0].dead_letters == 1


def test_what_a_sink_refuses_is_in_the_dead_letters_before_its_neighbours_are_forgotten() -> None:
    class Picky(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            if any(row["n"] == 2 for row in batch.rows()):
                raise ValueError("two is not allowed")
            super().batch_insert(batch)

    bad, sink = MemorySink(), Picky()
    built = (
        hr.stream("test", "dead")
        .from_(MemorySource({"a": bodies(1, 2, 3)}), format="json", schema={"n": "int64"})
        .dead_letters(lambda letters: letters.to(bad))
        .to(sink)
    )
    built.run("light")
    assert numbers(sink) == [1, 3]
    assert [(row["offset"], row["reason"], row["row"]) for row in bad.rows] == [(1, "two is not allowed", '{"n":2}')]


def test_a_transactional_sink_drops_what_it_has_after_a_lost_checkpoint() -> None:
    stored: dict[Queue, Position] = {}
    source = MemorySource({"a": bodies(*range(50))})
    job(source, MemoryTransactionalSink(stored=stored)).run("light", max_batch_records=7)
    again = MemoryTransactionalSink(stored=stored)
    source.append("a", *bodies(50))
    job(source, again).run("light")
    assert numbers(again) == [50]


def test_rows_that_were_there_already_are_reported() -> None:
    stored: dict[Queue, Position] = {}
    source = MemorySource({"a": bodies(1, 2)})
    job(source, MemoryTransactionalSink(stored=stored)).run("light")
    source.append("a", *bodies(3))
    report = job(source, MemoryTransactionalSink(stored=stored)).run("light")
    assert (report.rows_skipped, dict(report.rows_written)) == (2, {"to_memorytransactional": 1})
    assert "1 rows to to_memorytransactional (2 were there already)" in str(report)


def test_a_checkpoint_directory_belongs_to_one_job_at_a_time(tmp_path: Path) -> None:
    first, second = (job(MemorySource({"a": bodies(1)}), MemorySink()) for _ in range(2))
    with first.start("light", checkpoint=tmp_path), pytest.raises(CheckpointError, match="in use"):
        second.start("light", checkpoint=tmp_path)
    other = hr.stream("test", "other").from_(MemorySource(), format="json", schema={"n": "int64"}).to(MemorySink())
    with pytest.raises(CheckpointError, match=r"belongs to the job 'test\.light'"):
        other.run("light", checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "damaged"), ('{"format": 99}', "newer version"), ("{}", "damaged")]
)
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "light").mkdir()
    (tmp_path / "light" / "checkpoint.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        job(MemorySource(), MemorySink()).run("light", checkpoint=tmp_path)


def test_options_are_checked_before_the_start() -> None:
    with pytest.raises(OptionError, match=r"(?s)checkpont.*did you mean 'checkpoint'"):
        job(MemorySource(), MemorySink()).run("light", checkpont="x")
    with pytest.raises(OptionError, match="not a duration"):
        job(MemorySource(), MemorySink()).run("light", checkpoint_interval="soon")
    with pytest.raises(OptionError, match="until"):
        job(MemorySource(), MemorySink()).run("light", until="tomorrow")


def test_jobs_of_a_namespace_share_settings(tmp_path: Path) -> None:
    hr.namespace("shared", backend="light", checkpoint=tmp_path)
    try:
        built = hr.stream("shared", "p1").from_(MemorySource({"a": bodies(1)}), format="json", schema={"n": "int64"})
        assert built.to(MemorySink()).run().backend == "light"
        assert (tmp_path / "p1" / "light" / "checkpoint.json").exists()
    finally:
        hr.namespace("shared")


def test_observers_hear_of_the_job() -> None:
    from headrace.interfaces.registry import default_registry

    heard: list[str] = []

    class Observer:
        @hr.hookimpl
        def headrace_job_started(self, job: str, backend: str) -> None:
            heard.append(f"started {job} {backend}")

        @hr.hookimpl
        def headrace_queue_added(self, job: str, queue: Queue) -> None:
            heard.append(f"added {queue}")

        @hr.hookimpl
        def headrace_queue_removed(self, job: str, queue: Queue) -> None:
            heard.append(f"removed {queue}")

        @hr.hookimpl
        def headrace_checkpoint_completed(self, job: str, checkpoint_id: int, seconds: float) -> None:
            heard.append(f"checkpoint {checkpoint_id}")

        @hr.hookimpl
        def headrace_job_stopped(self, job: str, report: hr.JobReport) -> None:
            heard.append(f"stopped {report.state.value} {report.records_read}")

    registry = default_registry()
    observer = Observer()
    registry.register(observer, "observer")
    try:
        job(MemorySource({"a": bodies(1)}), MemorySink()).run("light")
    finally:
        registry._manager.unregister(observer)
    assert heard == [
        "added memory/a",
        "started test.light light",
        "checkpoint 1",
        "removed memory/a",
        "stopped finished 1",
    ]


IDLE_JOB = """
import sys, time, json
import headrace as hr
from headrace.testing import MemorySource, MemorySink
source = MemorySource({f"q{n}": [] for n in range(int(sys.argv[1]))})
handle = hr.stream("test", "idle").from_(source, format="json", schema={"n": "int64"}).to(MemorySink()).start("light")
while handle.status().checkpoint_id == 0:
    time.sleep(0.01)
print(json.dumps({"rss_mb": int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) / 1024}))
handle.stop()
"""


@pytest.mark.parametrize("queues", [1, 50])
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's /proc")
def test_an_idle_job_takes_little_memory(queues: int) -> None:
    found = subprocess.run([sys.executable, "-c", IDLE_JOB, str(queues)], capture_output=True, check=True, text=True)
    figures = json.loads(found.stdout)
    assert figures["rss_mb"] < 200


def test_kill_during_a_run_leaves_a_checkpoint_that_can_be_used(tmp_path: Path) -> None:
    script = f"""
import headrace as hr
from headrace.testing import MemorySource, MemorySink
source = MemorySource({{"a": [b'{{"n": %d}}' % n for n in range(200000)]}})
job = hr.stream("test", "light").from_(source, format="json", schema={{"n": "int64"}}).to(MemorySink())
print(job.run("light", checkpoint={str(tmp_path)!r}, checkpoint_interval="1 ms", max_batch_records=10))
"""
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        file = tmp_path / "light" / "checkpoint.json"
        eventually(file.exists, "first checkpoint")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        stored = json.loads(file.read_text())
        assert stored["job"] == "test.light"
    source = MemorySource({"a": bodies(*range(200_000))})
    sink = MemorySink()
    job(source, sink).run("light", checkpoint=tmp_path)
    assert numbers(sink) == list(range(stored["queues"][0]["offset"], 200_000))


def test_the_first_checkpoint_is_made_at_once_on_a_machine_that_has_just_booted(tmp_path: Path) -> None:
    job = hr.stream("test", "booted").from_(MemorySource({"q": [b"1"]}), format="raw").to(MemorySink())
    options = hr.RunOptions(until=None, checkpoint=str(tmp_path), checkpoint_interval=timedelta(days=100_000))
    with LightBackend(clock=ManualClock()).start(job.plan(options), options) as handle:
        eventually(lambda: (tmp_path / "light" / "checkpoint.json").exists(), "the first checkpoint")
        handle.stop()


@pytest.mark.parametrize("bounded", [True, False])
def test_the_garbage_collector_is_spared_while_a_job_runs_that_does_not_end(
    bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spared_objects, "_jobs", set())
    monkeypatch.setattr(
        spared_objects, "_others_are_spared", False
    )  # those of the tests are, until `gc.unfreeze` below
    # A process with rules spares it for every job.
    monkeypatch.delitem(sys.modules, "headrace_rules.verb", raising=False)
    gc.unfreeze()
    seen: list[int] = []

    def look(row: dict[str, object]) -> dict[str, object]:
        seen.append(gc.get_freeze_count())
        return row

    stream = hr.stream("test", "spared").from_(MemorySource({"q": bodies(1)}), format="json", schema={"n": "int64"})
    handle = stream.map(look).to(MemorySink()).start("light", until="end" if bounded else None, show_progress=False)
    eventually(lambda: bool(seen), "a row")
    handle.stop()
    assert (seen[0] > 1_000) is not bounded
    assert gc.get_freeze_count() == 0
