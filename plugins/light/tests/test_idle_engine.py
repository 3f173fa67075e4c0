"""What a job does while nothing comes: how often it looks, seen by a clock that only moves when somebody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, RawBatch
from headrace.foundation.clock import ManualClock
from headrace.interfaces.backend import JobHandle, RunOptions
from headrace.interfaces.readers import ForwardingReader
from headrace.interfaces.settings import parse_duration
from headrace.interfaces.source import StartPosition
from headrace.testing import MemorySink, MemorySource
from headrace_file.settings import FileSourceSettings
from headrace_file.source import FileSource
from headrace_light.backend import LightBackend
from headrace_light.pauses import Pauses
from headrace_light.settings import LightSettings

from tests.eventually import eventually

LOOKS = 40


class EngineClock(ManualClock):
    """A clock that moves when the engine waits; other threads of a job, such as those that flush, do not move it."""

    def __init__(self) -> None:
        super().__init__(1_000.0)
        self.waited: list[float] = []
        #: While it is set waiting does not move the clock.
        self.stands = False

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not threading.current_thread().name.startswith("headrace test."):
            return event.wait(0.001)
        if self.stands:
            return event.wait(0.001)
        self.waited.append(seconds)
        return super().wait(event, seconds)


class WatchedSource(MemorySource):
    """A source that notes when it is looked at. ``waits``: its readers wait for records as long as they may."""

    def __init__(self, clock: ManualClock, names: Sequence[str], *, waits: bool, look_seconds: float = 0.0) -> None:
        super().__init__({name: [] for name in names})
        self.clock = clock
        self.waits = waits
        self.look_seconds = look_seconds
        self.looks: dict[str, list[float]] = {name: [] for name in names}

    def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
        return _WatchedReader(self, queue.name, super().open(queue, start))


class _WatchedReader(ForwardingReader):
    def __init__(self, source: WatchedSource, name: str, reader: hr.Reader) -> None:
        super().__init__(reader)
        self._source, self._name = source, name

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        clock = self._source.clock
        self._source.looks[self._name].append(clock.monotonic())
        clock.advance(self._source.look_seconds)
        found = self._reader.poll(max_records, timedelta(0))
        if found is None and self._source.waits:
            clock.wait(threading.Event(), timeout.total_seconds() - self._source.look_seconds)
            self._source.looks[self._name].append(clock.monotonic())
        return found


@contextmanager
def running(job: hr.Job, clock: ManualClock, **settings: object) -> Iterator[JobHandle]:
    options = RunOptions(until=None)
    backend = LightBackend(LightSettings.of(settings, plugin="light"), clock)
    with backend.start(job.plan(options), options) as handle:
        yield handle


@pytest.mark.parametrize("longest", ["200 ms", "50 ms"])
@pytest.mark.parametrize("look_seconds", [0.0, 0.01])
@pytest.mark.parametrize("waits", [True, False], ids=["reader waits", "reader does not wait"])
@pytest.mark.parametrize("names", ["a", "ab"], ids=["one queue", "two queues"])
def test_idle_queues_are_looked_at_as_often_as_the_option_says(
    names: str, waits: bool, look_seconds: float, longest: str, tmp_path: Path
) -> None:
    clock = EngineClock()
    source = WatchedSource(clock, names, waits=waits, look_seconds=look_seconds)
    job = hr.stream("test", "idle").from_(source, format="json", schema={"n": "int64"}).to(MemorySink())
    with running(job, clock, idle_wait_max=longest):
        eventually(lambda: all(len(looks) >= LOOKS for looks in source.looks.values()), "looks")
    limit = parse_duration(longest).total_seconds() + look_seconds * len(names)
    for looks in source.looks.values():
        gaps = [after - before for before, after in pairwise(looks)]
        assert max(gaps) <= limit + 1e-6
        assert sum(gaps[10:]) >= (len(gaps) - 10) / 2 * limit / 2, "an idle job looks again and again without a pause"


def pauses(longest: float, *, bounded: bool = False) -> tuple[Pauses, ManualClock]:
    clock = ManualClock()
    return Pauses(clock, threading.Event(), timedelta(seconds=longest), bounded=bounded), clock


def elapsed(clock: ManualClock, action: Callable[[], object]) -> float:
    begun = clock.monotonic()
    action()
    return round(clock.monotonic() - begun, 6)


def test_pauses_grow_and_begin_anew() -> None:
    made, clock = pauses(0.2)
    assert [elapsed(clock, made.rest) for _ in range(10)] == [
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.2, 0.2
    ]  # fmt: skip
    made.begin_anew()
    assert [elapsed(clock, made.rest) for _ in range(19)] == [0.001] * 16 + [0.002, 0.004, 0.008]


def test_what_a_reader_has_waited_is_not_waited_again() -> None:
    made, clock = pauses(0.2)
    for _ in range(10):
        made.rest()
    assert made.inside() == timedelta(seconds=0.2)
    assert elapsed(clock, lambda: made.rest(0.2)) == 0
    assert elapsed(clock, lambda: made.rest(0.05)) == 0.15
    assert elapsed(clock, lambda: made.rest(0.3)) == 0.1, "a slow server is not asked without end"
    assert elapsed(clock, lambda: made.rest(5.0)) == 0.2


def test_a_long_pause_does_not_hold_up_the_clock_of_keyed_stages() -> None:
    made, clock = pauses(60.0)
    for _ in range(20):
        made.rest()
    assert made.inside() == timedelta(seconds=1)
    assert elapsed(clock, lambda: made.rest(ticking=True)) == 1
    assert elapsed(clock, made.rest) == 60


def test_a_bounded_run_pauses_shortly() -> None:
    made, clock = pauses(10.0, bounded=True)
    assert max(elapsed(clock, made.rest) for _ in range(20)) == 0.02


def test_a_source_that_wakes_in_vain_is_not_waited_for() -> None:
    made, clock = pauses(0.2)
    assert [made.rest_in(lambda wait: None) for _ in range(8)] == [True, True, True, False, True, True, True, False]
    slept = lambda wait: clock.advance(wait.total_seconds())  # noqa: E731
    assert all(made.rest_in(slept) for _ in range(20))


def test_a_followed_file_is_looked_at_as_often_as_two_are(tmp_path: Path) -> None:
    """The engine waits for one file inside its reader, and adds nothing to that wait."""
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 1}\n')
    clock, sink = EngineClock(), MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
    source = FileSource(FileSourceSettings.of({"path": str(path)}, plugin="file"), clock=clock)
    job = hr.stream("test", "follow").from_(source, format="json", schema={"n": "int64"}).to(sink)
    with running(job, clock):
        eventually(lambda: len(clock.waited) > 100, "the job is idle")
        with path.open("a") as file:
            file.write('{"n": 2}\n')
        eventually(lambda: len(sink.rows) == 2, "both rows")
    assert max(clock.waited) <= 0.2


def test_a_queue_is_not_silent_because_the_records_of_all_queues_take_long() -> None:
    """Each batch takes longer than ``idle_timeout``, and each queue has more: no row is late."""
    clock, sink = EngineClock(), MemorySink()
    lines = [b'{"ts": "2026-01-01 00:00:%02d"}' % second for second in range(60)]
    schema = {"ts": "timestamp"}
    source = MemorySource({"a": lines[:30], "b": lines[:30], "c": lines[30:]})
    stream = hr.stream("test", "slow").from_(source, format="json", schema=schema)

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        clock.advance(10)
        return row

    slowly = stream.map(slow, schema=schema).select("ts", k="1").watermark("ts", idle_timeout="5 s")
    job = slowly.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)").to(sink)
    options = RunOptions(until="end", max_batch_records=5, show_progress=False)
    report = LightBackend(LightSettings(), clock).start(job.plan(options), options).wait()
    assert report.late_rows == 0
    assert [row["n"] for row in sink.rows] == [20, 20, 20, 10, 10, 10]


def test_after_a_long_look_at_very_many_queues_there_is_a_long_pause_within_the_option() -> None:
    made, clock = pauses(0.2)
    assert abs(elapsed(clock, lambda: made.rest(round_seconds=0.01)) - 0.09) < 1e-9
    assert elapsed(clock, lambda: made.rest(round_seconds=1.0)) == 0.2


def test_a_queue_that_was_silent_at_the_stop_is_waited_for_after_it(tmp_path: Path) -> None:
    """Both queues are silent when the job is stopped. What has come meanwhile is not late because the other queue is read first."""
    source, sink = MemorySource({"a": [_at(0)], "b": [_at(1)]}), MemorySink()
    schema = {"ts": "timestamp", "n": "int64"}
    stream = hr.stream("test", "silent").from_(source, format="json", schema=schema)
    stream = stream.watermark("ts", idle_timeout="10 ms")
    job = stream.key_by("n").window(hr.tumbling("1 s", on="ts")).agg(rows="count(*)").to(sink)
    with job.start("light", checkpoint=tmp_path) as handle:
        eventually(lambda: handle.status().records_read == 2, "the first records")
        eventually(lambda: bool(sink.rows), "the window that closes when nothing is waited for")
    for second in range(10, 20):
        source.append("a", _at(second))
        source.append("b", _at(second))
    report = job.run("light", checkpoint=tmp_path)
    assert report.late_rows == 0
    assert sum(row["rows"] for row in sink.rows) == 22


def _at(second: int) -> bytes:
    return b'{"ts": "2026-01-01T10:00:%02dZ", "n": %d}' % (second, second)
