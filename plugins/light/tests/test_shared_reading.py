"""Jobs of one process that read a topic together: each gets every record once, wherever the others are and whatever happens to them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import pytest
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError, JobFailedError, OptionError, RetriableError
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.registry import default_registry
from headrace.interfaces.source import Reader, StartPosition
from headrace.testing import MemorySink, MemoryTransactionalSink
from headrace_contract.memory_topics import MemoryBroker, MemoryTopicSettings, MemoryTopicSource
from headrace_light.shared_reading import feed as feed_module
from headrace_light.shared_reading.decoding import BatchDecoding, Decoders
from headrace_light.shared_reading.feed import Feed
from headrace_light.shared_reading.hub import hubs
from headrace_light.shared_reading.reader import SharedReader
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.eventually import eventually

SCHEMA = {"n": "int64", "t": "string"}


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    broker = MemoryBroker()
    for _ in range(2):
        broker.add_queue("events")
    yield broker
    assert hubs() == [], "the last job closes what was read for all"


def write(broker: MemoryBroker, begin: int, end: int) -> None:
    for number in range(begin, end):
        broker.append("events", number % 2, [json.dumps({"n": number, "t": f"text {number}"}).encode()])


def job(broker: MemoryBroker, name: str, sink: hr.Sink, condition: str = "n >= 0", **options: Any) -> hr.Job:
    source = MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group=f"group-{name}"))
    stream = hr.stream("teams", name, **options).from_(source, format="json", schema=SCHEMA)
    made: hr.Job = stream.where(condition).to(sink)
    return made


def start(made: hr.Job, directory: Path, **options: Any) -> hr.JobHandle:
    given = {"checkpoint_interval": "1 ms", "shared_reading": True, "max_batch_records": 7, **options}
    return made.start("light", checkpoint=directory / made.pipeline, **given)


def sink() -> MemoryTransactionalSink:
    return MemoryTransactionalSink(hr.SinkSettings(flush_interval=timedelta(milliseconds=1)))


def numbers(sink: MemorySink) -> list[int]:
    return sorted(row["n"] for row in sink.rows)


def test_records_are_read_and_decoded_once_for_all(broker: MemoryBroker, tmp_path: Path) -> None:
    sinks = [sink() for _ in range(5)]
    handles = [start(job(broker, f"team-{number}", each), tmp_path) for number, each in enumerate(sinks)]
    write(broker, 0, 200)
    for each in sinks:
        eventually(lambda: numbers(each) == list(range(200)), "every job has all rows")  # noqa: B023
    [hub] = hubs()
    polls, batches = hub.figures()
    # A job that comes a moment later may decode again what all others have done.
    assert 200 / 7 <= polls <= batches < 2 * polls
    for handle in handles:
        assert handle.status().records_read == 200
        handle.stop()
    for number in range(5):
        eventually(lambda: committed(broker, f"group-team-{number}") == 200, "each group has its offsets")  # noqa: B023


def committed(broker: MemoryBroker, group: str) -> int:
    return sum(broker.committed("events", group, number) or 0 for number in range(2))


def test_a_job_that_fails_and_is_started_again_does_not_disturb_the_others(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    fails, good, bad = threading.Event(), sink(), sink()
    fails.set()

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 60 and fails.is_set():
            raise JobError("a test lets it fail")
        return row

    source = MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group="bad"))
    failing = hr.stream("teams", "bad").from_(source, format="json", schema=SCHEMA).map(check, schema=SCHEMA).to(bad)
    other = start(job(broker, "good", good), tmp_path)
    write(broker, 0, 50)
    handle = start(failing, tmp_path)
    eventually(lambda: numbers(bad) == list(range(50)), "it has caught up")
    write(broker, 50, 100)
    with pytest.raises(JobFailedError):
        handle.wait(timedelta(seconds=60))
    eventually(lambda: numbers(good) == list(range(100)), "the other goes on")
    write(broker, 100, 150)
    fails.clear()
    again = start(failing, tmp_path)
    eventually(lambda: numbers(bad) == list(range(150)), "it has every row once")
    eventually(lambda: numbers(good) == list(range(150)), "so has the other")
    for each in (again, other):
        each.stop()


def test_a_job_that_hangs_is_left_behind_and_catches_up(
    broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_light.shared_reading.hub._BYTES_MAX", 0)
    monkeypatch.setattr("headrace_light.shared_reading.hub._QUEUE_BYTES_MIN", 500)
    gate = threading.Event()

    def waits(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 10:
            gate.wait(60)
        return row

    slow, fast = sink(), sink()
    source = MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events"))
    hanging = hr.stream("teams", "slow").from_(source, format="json", schema=SCHEMA).map(waits, schema=SCHEMA).to(slow)
    handles = [start(hanging, tmp_path), start(job(broker, "fast", fast), tmp_path)]
    write(broker, 0, 300)
    eventually(lambda: numbers(fast) == list(range(300)), "the other does not wait for it")
    assert len(slow.rows) < 50
    gate.set()
    eventually(lambda: numbers(slow) == list(range(300)), "it catches up")
    for each in handles:
        each.stop()


def test_bad_bodies_are_those_of_each_job(broker: MemoryBroker, tmp_path: Path) -> None:
    for number in range(60):
        body: dict[str, Any] = {"n": number if number % 5 else "no number", "t": f"text {number}" if number % 3 else 7}
        broker.append("events", number % 2, [json.dumps(body).encode()])
    sinks = [sink() for _ in range(3)]
    conditions = ["n >= 0", "t LIKE 'text%'", "n >= 0 AND t LIKE 'text%'"]
    pipes = [
        hr.stream("teams", f"team-{number}")
        .from_(
            MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group=f"group-{number}")),
            format="json", schema=SCHEMA,
        )
        .where(condition)
        .select(*(name for name in SCHEMA if name in condition.split()))
        .to(sinks[number])
        for number, condition in enumerate(conditions)
    ]  # fmt: skip
    handles = [start(pipe, tmp_path) for pipe in pipes]
    wanted = [48, 40, 32]
    for each, count in zip(sinks, wanted, strict=True):
        eventually(lambda: len(each.rows) == count, "the good rows have come")  # noqa: B023
    for handle, count in zip(handles, wanted, strict=True):
        eventually(lambda: handle.status().dead_letters == 60 - count, "and the bad ones")  # noqa: B023
        handle.stop()


@pytest.mark.parametrize("others", [{"workers": 2}, {"reliability": "high"}])
def test_what_shares_in_another_way_is_refused(broker: MemoryBroker, tmp_path: Path, others: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="shared_reading"):
        start(job(broker, "refused", sink()), tmp_path, **others)


def test_a_savepoint_is_one_of_a_job_that_reads_by_itself(broker: MemoryBroker, tmp_path: Path) -> None:
    write(broker, 0, 20)
    found = sink()
    handle = start(job(broker, "moves", found), tmp_path)
    eventually(lambda: numbers(found) == list(range(20)), "all is read")
    handle.stop(savepoint=tmp_path / "savepoint")
    write(broker, 20, 40)
    options = {"from_savepoint": tmp_path / "savepoint", "shared_reading": False, "until": "end"}
    start(job(broker, "moves", found), tmp_path / "other", **options).wait()
    assert numbers(found) == list(range(40))


# --------------------------------------------------------------------------------------------------------- decoding

BODY = st.sampled_from(
    [b'{"n": 1, "t": "a", "x": 1.5}', b'{"n": "no", "t": "b"}', b'{"n": 3, "t": 4, "x": null}', b'{"x": "no"}', b"no json", b"{}"]
)  # fmt: skip


@given(
    st.lists(BODY, min_size=1, max_size=12),
    st.lists(st.sets(st.sampled_from("ntx"), min_size=1), min_size=1, max_size=4),
)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_decoded_together_is_what_each_job_decodes(bodies: list[bytes], jobs: list[set[str]]) -> None:
    schema = Schema.of({"n": "int64", "t": "string", "x": "float64"})
    codec = default_registry().find("codec", "json")
    codec = codec(codec.Settings())
    count = len(bodies)
    raw = RawBatch(np.arange(count) * 3, ReadPosition(3 * count), bodies=Bodies.of(bodies))
    together = BatchDecoding(Decoders(codec, schema, lambda: set().union(*jobs[:-1]) or {"n"}))
    for wanted in jobs:
        columns = sorted(wanted)
        alone, own = codec.record_decoder(schema, columns), codec.record_decoder(schema, columns)
        expected, found = alone.decode_records(raw), together.decoded(raw, columns, own)
        assert found.frame.equals(expected.frame)
        assert found.frame.schema == expected.frame.schema
        assert list(found.bad) == list(expected.bad)
        every = np.setdiff1d(np.arange(count), [each.row for each in expected.bad])
        rows = [every if each.rows is None else each.rows for each in (found, expected)]
        assert rows[0].tolist() == rows[1].tolist()


# ------------------------------------------------------------------------------------------------------------- feeds


class Log:
    """A queue with gaps, whose server is away now and then."""

    def __init__(self, offsets: list[int], rng: random.Random | None = None) -> None:
        self.offsets = offsets
        self.rng = rng
        self.polls = 0
        self.open_readers = 0

    def open(self, queue: Queue | None, start: StartPosition) -> Reader:
        self.open_readers += 1
        return LogReader(self, start.offset if isinstance(start, ReadPosition) else 0)

    @property
    def end(self) -> int:
        return self.offsets[-1] + 1 if self.offsets else 0


class LogReader(OffsetReader):
    def __init__(self, log: Log, first: int) -> None:
        super().__init__(first)
        self._log = log
        self._closed = False

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        assert not self._closed
        if self._log.rng is not None and self._log.rng.random() < 0.1:
            raise RetriableError("the server is away")
        found = [each for each in self._log.offsets if each >= self._next][:max_records]
        if not found:
            self._next = max(self._next, self._log.end)
            return None
        self._log.polls += 1
        self._next = found[-1] + 1
        return RawBatch(np.array(found), ReadPosition(self._next), bodies=Bodies.of([b"x" * 10] * len(found)))

    @property
    def latest(self) -> int:
        return self._log.end

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._log.open_readers -= 1


class Reading:
    """A job that reads a log through a feed."""

    def __init__(self, log: Log, feed: Feed, at: int) -> None:
        self.log, self.feed, self.begin = log, feed, at
        self.found: list[int] = []
        self.reader = self._open(at)

    def _open(self, at: int) -> SharedReader:
        return SharedReader(self.feed, None, lambda start: self.log.open(None, start), ReadPosition(at))

    def poll(self, max_records: int) -> None:
        try:
            raw = self.reader.poll(max_records, timedelta(0))
        except RetriableError:
            return
        if raw is not None:
            self.found += raw.offsets.tolist()
            assert len(raw) <= max_records
            assert self.reader.position == raw.next_position

    def again(self, at: int) -> None:
        """Begin anew, from an earlier place."""
        self.reader.close()
        self.found = [each for each in self.found if each < at]
        self.reader = self._open(at)

    def repeat(self, at: int) -> None:
        """Read a range again, as after a crash, and go on with a new reader."""
        end = self.reader.position
        self.reader.seek(ReadPosition(at))
        self.reader.limit(end)
        self.found = [each for each in self.found if each < at]
        while self.reader.position.offset < end.offset:
            self.poll(end.offset - self.reader.position.offset)
        position = self.reader.position.offset
        self.reader.close()
        self.reader = self._open(position)

    def check(self) -> None:
        assert self.found == [each for each in self.log.offsets if self.begin <= each < self.reader.position.offset]


STEP = st.tuples(
    st.sampled_from(["poll", "poll", "poll", "poll", "again", "repeat", "write", "begin", "end"]),
    st.integers(0, 3),
    st.integers(1, 9),
)


@given(st.lists(STEP, max_size=80), st.integers(0, 200), st.randoms(use_true_random=False))
@settings(max_examples=examples(150), deadline=None)
def test_whatever_others_do_each_job_reads_every_record_once(
    steps: list[tuple[str, int, int]], bytes_max: int, rng: random.Random
) -> None:
    log = Log([0, 1, 2, 5, 6, 9], rng)
    feed = Feed(Queue("q"), log.open, bytes_max=bytes_max)
    jobs: dict[int, Reading] = {}
    for what, number, count in steps:
        if what == "write":
            log.offsets.append(log.end + count - 1)
            continue
        if what == "begin" or number not in jobs:
            if number in jobs:
                jobs.pop(number).reader.close()
            jobs[number] = Reading(log, feed, rng.randrange(log.end + 1))
        elif what == "end":
            jobs.pop(number).reader.close()
        elif what == "poll":
            jobs[number].poll(count)
        else:
            at = rng.randrange(jobs[number].begin, jobs[number].reader.position.offset + 1)
            (jobs[number].again if what == "again" else jobs[number].repeat)(at)
        for each in jobs.values():
            each.check()
    log.rng = None
    for _ in range(100):
        for each in jobs.values():
            each.poll(5)
    for each in jobs.values():
        each.check()
        assert each.reader.position.offset == log.end
    if jobs:
        before = log.polls
        log.offsets += range(log.end, log.end + 5)
        for each in jobs.values():
            each.poll(5)
            each.check()
        assert log.polls == before + 1, "jobs that have caught up read together"
    for each in jobs.values():
        each.reader.close()
    feed.close()
    assert log.open_readers == 0


def test_jobs_in_threads_read_every_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_KEPT_BATCHES", 1)
    log = Log(list(range(3_000)))
    feed = Feed(Queue("q"), log.open, bytes_max=600)

    def read(number: int) -> Reading:
        rng, reading = random.Random(number), Reading(log, feed, number * 10)
        while reading.reader.position.offset < 3_000:
            reading.poll(rng.randrange(1, 20))
            if rng.random() < 0.01:
                reading.again(reading.reader.position.offset)
        return reading

    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(read, range(4)):
            each.check()
            each.reader.close()
    feed.close()
    assert log.open_readers == 0


def test_the_majority_ahead_takes_the_feed_from_one_that_is_far_behind() -> None:
    log = Log(list(range(1_000)))
    feed = Feed(Queue("q"), log.open, bytes_max=10_000)
    behind = Reading(log, feed, 0)
    behind.poll(10)
    ahead = [Reading(log, feed, 900) for _ in range(3)]
    for _ in range(20):
        behind.poll(10)
        for each in ahead:
            each.poll(10)
    before = log.polls
    log.offsets += range(1_000, 1_010)
    for each in (*ahead, behind):
        each.poll(10)
        each.check()
    assert log.polls == before + 2, "one for those ahead, one for the one that is behind"
    for each in (*ahead, behind):
        each.reader.close()
    feed.close()
