"""Jobs with keyed stages on Spark: restarts, faults, shards, second stages, joins, silent queues, the clock."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import headrace as hr
import pytest
from headrace.flow.messages import Batch
from headrace.flow.schema import Schema
from headrace.foundation import faults
from headrace.foundation.errors import CheckpointError, OptionError
from headrace.interfaces.backend import JobState
from headrace.interfaces.operator import Operator, OperatorSpec
from headrace.jobs.dsl import Stream
from headrace.jobs.keyed import joined, shuffled
from keyed_parts import WINDOW_SECONDS, Clocked, Pairs, timed, windowed
from spark_parts import CountingSource, LineSink, WindowSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
SCHEMA = {"n": "int64", "queue": "string"}


@pytest.fixture
def windows(tmp_path: Path) -> WindowSink:
    return WindowSink(tmp_path / "windows.db")


def stream_of(source: CountingSource, name: str, keys: int = 7) -> Stream:
    return hr.stream("keyed", name).from_(source, format="json", schema=SCHEMA).with_columns(k=f"n % {keys}")


def windows_of(counts: dict[str, int], keys: int = 7) -> list[tuple[int, int, int]]:
    found = Counter((n % keys, n // WINDOW_SECONDS) for count in counts.values() for n in range(count))
    return sorted((k, w, n) for (k, w), n in found.items())


def test_windows_over_restarts(source: CountingSource, windows: WindowSink, tmp_path: Path) -> None:
    source.set_count("a", 1000)
    source.set_count("b", 700)
    job = windowed(timed(stream_of(source, "restarts"))).to(windows)
    state = tmp_path / "state"
    handle = job.start("spark", until="end", checkpoint=state, shards=3, max_micro_batch_records=400)
    report = handle.wait()
    assert windows.stored() == windows_of({"a": 1000, "b": 700})
    assert (report.state, report.records_read, dict(report.rows_written)) == (
        JobState.FINISHED, 1700, {"to_window": len(windows.stored())},
    )  # fmt: skip
    status = handle.status()
    assert [queue.queue for queue in status.queues] == ["counting/a", "counting/b"]
    assert (status.state_rows, status.late_rows) == (0, 0)
    assert status.watermark == datetime.fromtimestamp(699, tz=UTC)

    source.set_count("c", 300)
    source.set_count("a", 1001)
    with pytest.raises(CheckpointError, match="with 3 shards, but the job asks for 4"):
        job.run("spark", checkpoint=state, shards=4)
    again = job.run("spark", checkpoint=state, parallelism=1)
    assert again.late_rows == 200 + 100, "the test's windows up to the watermark are closed"
    assert again.rows_skipped == 0

    other = windowed(windowed(timed(stream_of(source, "restarts")))).to(windows)
    with pytest.raises(CheckpointError, match="keyed stages were key_by; now they are key_by, key_by-2"):
        other.run("spark", checkpoint=state)
    with pytest.raises(OptionError, match="shards"):
        job.run("spark", shards=0)


def test_workers_that_are_killed_around_the_state(source: CountingSource, windows: WindowSink, tmp_path: Path) -> None:
    counts = {"a": 4000, "b": 3000}
    for queue, count in counts.items():
        source.set_count(queue, count)
    places = {"lane.after_process": 4, "shard.after_process": 3, "shard.before_state": 5, "shard.after_state": 7}
    failing = FailingOnce(tmp_path / "failed", places)
    first_stage = windowed(timed(stream_of(source, "killed")).apply(failing)).apply(failing)
    second = windowed(first_stage.with_columns(k="k % 2"), seconds=500).to(windows)
    options = dict(checkpoint=tmp_path / "state", shards=2, max_micro_batch_records=500, max_batch_records=100)
    report = second.run("spark", **options)
    assert {path.name for path in (tmp_path / "failed").iterdir()} == places.keys(), "each was passed so often"
    first = {(k, w) for k, w, _ in windows_of(counts)}
    results = Counter((k % 2, w // 5) for k, w in first)
    assert windows.stored() == sorted((k, w, n) for (k, w), n in results.items())
    assert (report.records_read, dict(report.rows_written)) == (7000, {"to_window": len(results)})


class FailingOnce(OperatorSpec):
    """Lets everything pass, and kills one process at each of some places, when it passes there so often."""

    name = "failing_once"

    def __init__(self, directory: Path, places: dict[str, int]) -> None:
        self.directory = directory
        self.places = places

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def open(self, schema: Schema | None) -> Operator:
        # Every process that reads or has a shard comes by here.
        self.directory.mkdir(exist_ok=True)
        if not isinstance(faults._faults, _KillOnce):
            faults._faults = _KillOnce(self)
        return _Passing()


class _Passing(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]


class _KillOnce(faults.Faults):
    def __init__(self, spec: FailingOnce) -> None:
        super().__init__("")
        self._spec = spec
        self._seen: Counter[str] = Counter()

    def passed(self, place: str) -> None:
        self._seen[place] += 1
        if self._seen[place] < self._spec.places.get(place, 10**9):
            return
        try:
            (self._spec.directory / place).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def test_queues_that_come_and_fall_silent(source: CountingSource, tmp_path: Path) -> None:
    sink = LineSink(tmp_path / "lines")

    def fired() -> set[object]:
        return {row["w"] for row in sink.rows()}

    source.set_count("a", 250)
    source.set_count("silent", 0)
    job = windowed(timed(stream_of(source, "silent"), idle_timeout="200 ms")).to(sink)
    with job.start("spark", checkpoint=tmp_path / "state", discovery_interval="50 ms", shards=2) as handle:
        eventually(lambda: fired() == {0, 1}, "windows up to the watermark of the queue that is not silent")
        eventually(lambda: handle.status().watermark == datetime.fromtimestamp(249, tz=UTC), "watermark")
        assert handle.status().state_rows == 7
        source.set_count("new", 400)
        eventually(lambda: handle.status().records_read == 650, "rows of a queue that came")
        eventually(lambda: fired() >= {0, 1, 2}, "windows after the others fell silent")
        late = handle.status().late_rows
    assert late == 200, "what the new queue has for windows that are closed"


def test_two_sides_and_the_clock(source: CountingSource, tmp_path: Path) -> None:
    other = CountingSource(tmp_path / "others")
    source.set_count("a", 30)
    other.set_count("x", 20)
    right = hr.stream("keyed", "sides").from_(other, format="json", schema=SCHEMA, name="others")
    left = stream_of(source, "sides")
    pairs, ticks = LineSink(tmp_path / "pairs"), LineSink(tmp_path / "ticks")
    joined_job = joined(left, right.with_columns(k="n % 7"), [("k", "k")], Pairs(), "pairs").to(pairs)
    clocked = shuffled(left, ("k",)).apply(Clocked()).to(ticks, name="ticks")
    with joined_job.also(clocked).start("spark", checkpoint=tmp_path / "state", shards=2):
        eventually(lambda: sum(int(str(row["n"])) for row in ticks.rows()) == 30, "a tick without data")
    wanted = [(a % 7, a + b) for a in range(30) for b in range(20) if a % 7 == b % 7]
    assert sorted((row["k"], row["n"]) for row in pairs.rows()) == sorted(wanted)
