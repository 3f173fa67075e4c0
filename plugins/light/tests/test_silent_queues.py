"""Queues of a job are silent for longer than ``idle_timeout``, and come back together: nothing of what came is late."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import headrace as hr
import pytest
from headrace.flow.messages import Queue, RawBatch
from headrace.interfaces.backend import JobHandle, RunOptions
from headrace.interfaces.readers import ForwardingReader
from headrace.interfaces.source import StartPosition
from headrace.testing import MemorySink, MemorySource
from headrace_light.backend import LightBackend
from headrace_light.settings import LightSettings
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_idle_engine import EngineClock

from tests.effort import examples
from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

SCHEMA = {"ts": "timestamp", "n": "int64"}
QUEUES = "abcd"
IDLE_SECONDS = 5


class GatedSource(MemorySource):
    """A source whose readers stand still while a test holds ``gate``."""

    def __init__(self, queues: Sequence[str]) -> None:
        super().__init__({name: [] for name in queues})
        self.gate = threading.Lock()

    def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
        return _GatedReader(self, super().open(queue, start))


class _GatedReader(ForwardingReader):
    def __init__(self, source: GatedSource, reader: hr.Reader) -> None:
        super().__init__(reader)
        self._source = source

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        with self._source.gate:
            return self._reader.poll(max_records, timedelta(0))


def _body(second: int, number: int) -> bytes:
    minute, second = divmod(second, 60)
    return b'{"ts": "2026-01-01T10:%02d:%02dZ", "n": %d}' % (minute, second, number)


#: What comes between two silences: (queue, second behind the begin of the burst), in the order of time.
Burst = list[tuple[str, int]]
BURSTS = st.lists(
    st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 30)), min_size=1, max_size=12).map(
        lambda burst: sorted(burst, key=lambda each: each[1])
    ),
    min_size=2,
    max_size=5,
)


def _silence(clock: EngineClock, handle: JobHandle, records: int) -> None:
    eventually(lambda: handle.status().records_read == records, "what has come is processed")
    until = clock.monotonic() + 3 * IDLE_SECONDS
    eventually(lambda: clock.monotonic() >= until, "a silence")


def _late_rows(bursts: Sequence[Burst], checkpoint: Path | None = None, **options: int) -> int:
    clock, source, sink = EngineClock(), GatedSource(QUEUES), MemorySink()
    stream = hr.stream("test", "silences").from_(source, format="json", schema=SCHEMA)
    stream = stream.watermark("ts", idle_timeout=timedelta(seconds=IDLE_SECONDS))
    job = stream.key_by("n").window(hr.tumbling("1 s", on="ts")).agg(rows="count(*)").to(sink)
    run = RunOptions(until=None, max_batch_records=3, show_progress=False)
    records = 0
    with LightBackend(LightSettings.of(options), clock).start(job.plan(run), run) as handle:
        for number, burst in enumerate(bursts):
            with source.gate:
                for queue, second in burst:
                    source.append(queue, _body(60 * number + second, second % 3))
            records += len(burst)
            _silence(clock, handle, records)
        late = handle.status().late_rows
    assert late is not None
    return late


@settings(max_examples=examples(25, least=4))
@given(BURSTS)
def test_nothing_is_late_after_silences(bursts: list[Burst]) -> None:
    assert _late_rows(bursts) == 0


def test_nothing_is_late_after_silences_with_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    burst = [(queue, second) for second in range(20) for queue in "dcba"]
    assert _late_rows([burst, burst, burst[:1], burst], workers=2) == 0
