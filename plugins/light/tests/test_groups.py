"""Sources that share their queues among instances: what the engine does when a group gives, takes, or does not answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, JobFailedError, PlanError, RetriableError
from headrace.interfaces.backend import JobHandle, JobState
from headrace.interfaces.readers import ForwardingReader
from headrace.interfaces.source import EARLIEST, LATEST, GroupListener, GroupSource, StartPosition
from headrace.testing import MemorySink, MemorySource, MemoryTransactionalSink

from tests.eventually import eventually


class MemoryGroup(MemorySource, GroupSource):
    """A group of one whose broker a test plays: what is put into ``events`` happens in the next ``poll_group``."""

    def __init__(self, queues: Mapping[str, list[bytes]]) -> None:
        super().__init__(queues)
        self.offsets: dict[str, int] = {}
        self.commits = 0
        self.events: list[Callable[[GroupListener], None]] = []
        self.commit_error: Exception | None = None
        self.poll_error: Exception | None = None
        #: What the next calls of ``join`` raise.
        self.join_errors: list[Exception] = []
        self.joined = 0
        self.on_leave: Callable[[GroupListener], None] | None = None
        self._listener: GroupListener | None = None
        self._changed = threading.Event()

    def named(self, *names: str) -> list[Queue]:
        return [Queue(name, self.node_name) for name in names]

    def happen(self, event: Callable[[GroupListener], None]) -> None:
        self.events.append(event)

    def give(self, *names: str) -> None:
        self.happen(lambda listener: listener.assigned(self.named(*names)))

    def take(self, *names: str, lost: bool = False) -> None:
        self.happen(lambda listener: listener.revoked(self.named(*names), lost=lost))

    def join(self, listener: GroupListener) -> None:
        self.joined += 1
        if self.join_errors:
            raise self.join_errors.pop(0)
        self._listener = listener

    def poll_group(self, timeout: timedelta) -> None:
        assert self._listener is not None
        if self.poll_error is not None:
            raise self.poll_error
        while self.events:
            self.events[0](self._listener)
            self.events.pop(0)
        if timeout:
            time.sleep(timeout.total_seconds())

    def leave(self) -> None:
        if self.on_leave is not None and self._listener is not None:
            self.on_leave(self._listener)

    def close(self) -> None:
        self.leave()

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.commits += 1
        self.offsets.update({queue.name: position.offset for queue, position in positions.items()})

    def committed(self, queue: Queue) -> ReadPosition | None:
        offset = self.offsets.get(queue.name)
        return None if offset is None else ReadPosition(offset)


def bodies(*numbers: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def start(source: MemoryGroup, sink: MemorySink, **options: Any) -> JobHandle:
    job = hr.stream("test", "group").from_(source, format="json", schema={"n": "int64"}).to(sink)
    return job.start("light", **{"checkpoint_interval": "1 ms", **options})


def numbers(sink: MemorySink) -> list[int]:
    return sorted(row["n"] for row in sink.rows)


def soon() -> MemorySink:
    return MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=1)))


def never() -> MemorySink:
    return MemorySink(hr.SinkSettings(flush_interval=timedelta(hours=1)))


def test_only_what_is_given_is_read() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2), "b": bodies(10)}), soon()
    with start(source, sink):
        source.give("a")
        eventually(lambda: numbers(sink) == [1, 2], "a is read")
        source.give("b")
        eventually(lambda: numbers(sink) == [1, 2, 10], "b is read")
    assert source.offsets == {"a": 2, "b": 1}


def test_what_is_taken_is_stored_and_committed_first() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2)}), never()
    with start(source, sink, checkpoint_interval="1 h") as handle:
        source.give("a")
        eventually(lambda: handle.status().records_read == 2, "a is read")
        source.take("a")
        eventually(lambda: numbers(sink) == [1, 2] and source.offsets == {"a": 2}, "stored and committed")
        source.append("a", *bodies(3))
        source.give("a")
        eventually(lambda: handle.status().records_read == 3, "it came back")
        assert [(queue.queue, queue.records) for queue in handle.status().queues] == [("memorygroup/a", 3)]
    assert numbers(sink) == [1, 2, 3]


def test_of_what_is_lost_nothing_more_is_written_or_committed() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2), "b": bodies(10)}), never()
    with start(source, sink, checkpoint_interval="1 h") as handle:
        source.give("a", "b")
        eventually(lambda: handle.status().records_read == 3, "both are read")
        source.take("a", lost=True)
        eventually(lambda: not source.events, "a is lost")
    assert numbers(sink) == [10]
    assert source.offsets.get("a", 0) == 0
    assert source.offsets["b"] == 1


def test_it_goes_on_where_another_instance_has_committed() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2, 3, 4)}), soon()
    source.offsets["a"] = 1
    with start(source, sink):
        source.give("a")
        eventually(lambda: numbers(sink) == [2, 3, 4], "read from the commit on")
        source.take("a")
        eventually(lambda: not source.events, "a is another's")
        source.append("a", *bodies(5, 6))
        source.offsets["a"] = 5
        source.give("a")
        eventually(lambda: numbers(sink) == [2, 3, 4, 6], "the other had read 5")


def test_where_a_queue_begins_is_committed_at_once() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2)}), soon()
    source.start = LATEST
    with start(source, sink, checkpoint_interval="1 h"):
        source.give("a")
        eventually(lambda: source.offsets == {"a": 2}, "committed before the first record")


def test_queues_that_appeared_since_the_start_are_read_from_their_beginning() -> None:
    source, sink = MemoryGroup({"a": bodies(1)}), soon()
    source.start = LATEST
    with start(source, sink):
        source.append("new", *bodies(7))
        source.give("a", "new")
        eventually(lambda: numbers(sink) == [7], "the new queue's first record")
    assert source.opened == [("a", LATEST), ("new", EARLIEST)]


class Together(MemoryGroup):
    """A group whose queues are those of one topic."""

    def begins_with(self, queue: Queue) -> str | None:
        return "topic"


def test_a_group_begins_at_one_moment_in_all_queues() -> None:
    source, sink = Together({"a": bodies(1), "b": bodies(2)}), soon()
    source.start = LATEST
    with start(source, sink, checkpoint_interval="1 h"):
        source.give("a")
        eventually(lambda: source.offsets == {"a": 1, "b": 1}, "both are committed, though b is not given")
        source.append("b", *bodies(3))
        source.give("b")
        eventually(lambda: numbers(sink) == [3], "what came since")


def test_a_queue_without_commit_in_a_group_that_has_some_is_new_to_every_instance() -> None:
    source, sink = Together({"a": bodies(1), "new": bodies(7)}), soon()
    source.start = LATEST
    source.offsets["a"] = 1
    with start(source, sink):
        source.give("a", "new")
        eventually(lambda: numbers(sink) == [7], "the new queue's first record")
    assert source.opened == [("a", ReadPosition(1)), ("new", EARLIEST)]


def test_a_group_begins_when_its_broker_takes_commits() -> None:
    source, sink = Together({"a": bodies(1)}), soon()
    source.start = LATEST
    source.commit_error = RetriableError("the coordinator is away")
    with start(source, sink):
        source.give("a")
        eventually(lambda: bool(source.opened), "it has looked where that is")
        source.append("a", *bodies(2))
        source.commit_error = None
        eventually(lambda: source.offsets == {"a": 2}, "the beginning is committed")
        source.append("a", *bodies(3))
        eventually(lambda: numbers(sink) == [3], "what came since")


def test_commits_that_fail_are_made_up_for() -> None:
    source, sink = MemoryGroup({"a": bodies(1)}), soon()
    source.commit_error = RetriableError("the coordinator is away")
    with start(source, sink):
        source.give("a")
        eventually(lambda: numbers(sink) == [1], "a is read")
        assert source.offsets == {}
        source.commit_error = None
        eventually(lambda: source.offsets == {"a": 1}, "committed without further records")


def test_a_broker_that_is_away_is_waited_for() -> None:
    source, sink = MemoryGroup({"a": bodies(1)}), soon()
    source.poll_error = RetriableError("connection refused")
    with start(source, sink) as handle:
        source.give("a")
        assert handle.status().state is JobState.RUNNING
        source.poll_error = None
        eventually(lambda: numbers(sink) == [1], "a is read")


def test_a_group_that_cannot_be_joined_is_waited_for() -> None:
    source, sink = MemoryGroup({"a": bodies(1)}), soon()
    source.join_errors = [RetriableError("connection refused")] * 3
    source.give("a")
    with start(source, sink):
        eventually(lambda: numbers(sink) == [1], "a is read")
    assert source.joined == 4


def test_a_group_that_cannot_be_joined_within_the_time_for_the_start_fails_the_job() -> None:
    source = MemoryGroup({"a": bodies(1)})
    source.join_errors = [RetriableError("connection refused")] * 1000
    handle = start(source, soon(), start_timeout="300 ms")
    with pytest.raises(JobFailedError, match="connection refused") as caught:
        handle.wait(timedelta(seconds=20))
    assert "start_timeout" in str(caught.value)
    assert source.joined > 1


def test_a_job_that_waits_for_its_group_can_be_stopped() -> None:
    source = MemoryGroup({"a": bodies(1)})
    source.join_errors = [RetriableError("connection refused")] * 1000
    handle = start(source, soon(), start_timeout="1 h")
    eventually(lambda: source.joined > 1, "it waits")
    handle.stop(timedelta(seconds=20))
    assert handle.wait().state is JobState.STOPPED


def test_what_is_no_outage_ends_the_waiting_for_a_group() -> None:
    source = MemoryGroup({"a": bodies(1)})
    source.join_errors = [RetriableError("connection refused"), JobError("no permission for group 'g'")]
    with pytest.raises(JobFailedError, match="no permission"):
        start(source, soon()).wait(timedelta(seconds=20))


@pytest.mark.parametrize("what", ["poll_error", "commit_error"])
def test_a_broker_that_stays_away_fails_the_job(what: str) -> None:
    source = MemoryGroup({"a": bodies(1)})
    setattr(source, what, RetriableError("connection refused"))
    source.give("a")
    handle = start(source, soon(), retry_timeout="20 ms")
    with pytest.raises(JobFailedError, match="connection refused"):
        handle.wait(timedelta(seconds=20))


def test_after_a_failure_nothing_is_committed() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2)}), MemorySink(hr.SinkSettings(flush_interval=timedelta(hours=1)))
    source.on_leave = lambda listener: listener.revoked(source.named("a"))
    sink.failures = [JobError("the table is gone")]
    handle = start(source, sink, checkpoint_interval="200 ms")
    source.give("a")
    with pytest.raises(JobFailedError, match="the table is gone"):
        handle.wait(timedelta(seconds=20))
    assert source.offsets.get("a", 0) == 0


def test_queues_given_back_while_leaving_are_stored_and_committed() -> None:
    source, sink = MemoryGroup({"a": bodies(1, 2)}), never()
    source.on_leave = lambda listener: listener.revoked(source.named("a"))
    with start(source, sink, checkpoint_interval="1 h") as handle:
        source.give("a")
        eventually(lambda: handle.status().records_read == 2, "a is read")
    assert (numbers(sink), source.offsets) == ([1, 2], {"a": 2})
    assert handle.wait().state is JobState.STOPPED


def test_a_queue_that_cannot_be_begun_is_left_to_the_source() -> None:
    class Away(MemoryGroup):
        away = True

        def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
            if queue.name == "a" and self.away:
                raise RetriableError("connection refused")
            return super().open(queue, start)

    refused: list[str] = []
    source, sink = Away({"a": bodies(1), "b": bodies(10)}), soon()

    def assign_one_by_one(listener: GroupListener) -> None:
        for queue in source.named("a", "b"):
            try:
                listener.assigned([queue])
            except RetriableError:
                refused.append(queue.name)

    with start(source, sink):
        source.happen(assign_one_by_one)
        eventually(lambda: numbers(sink) == [10], "b is read")
        assert refused == ["a"]
        source.away = False
        source.happen(assign_one_by_one)
        eventually(lambda: numbers(sink) == [1, 10], "a is read")


def test_a_bounded_run_does_not_join_and_goes_on_from_the_further_position(tmp_path: Any) -> None:
    source = MemoryGroup({"a": bodies(1, 2, 3)})
    source.offsets["a"] = 1
    sink = MemorySink()
    job = hr.stream("test", "group").from_(source, format="json", schema={"n": "int64"}).to(sink)
    job.run("light", checkpoint=tmp_path)
    assert (numbers(sink), source.offsets) == ([2, 3], {"a": 3})
    source.offsets["a"] = 0  # the last commit was lost
    source.append("a", *bodies(4))
    job.run("light", checkpoint=tmp_path)
    assert (numbers(sink), source.offsets) == ([2, 3, 4], {"a": 4})


def test_an_instance_that_lost_its_queue_does_not_write_behind_its_successor() -> None:
    stored: dict[Queue, Any] = {}
    source = MemoryGroup({"a": bodies(1, 2)})
    sink = MemoryTransactionalSink(hr.SinkSettings(flush_interval=timedelta(hours=1)), stored=stored)
    with start(source, sink, checkpoint_interval="1 h") as handle:
        source.give("a")
        eventually(lambda: handle.status().records_read == 2, "a is read")
        source.take("a", lost=True)
        eventually(lambda: not source.events, "a is lost")
    assert (sink.rows, stored) == ([], {})


class RebalancingGroup(MemoryGroup):
    """A group whose readers rebalance inside their ``poll``, and then still give what they had fetched before."""

    def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
        return _RebalancingReader(self, super().open(queue, start))


class _RebalancingReader(ForwardingReader):
    def __init__(self, group: MemoryGroup, reader: hr.Reader) -> None:
        super().__init__(reader)
        self._group = group

    def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
        found = self._reader.poll(max_records, timeout)
        if found is not None:
            self._group.poll_group(timedelta(0))
        return found


@pytest.mark.parametrize("lost", [False, True])
def test_a_queue_that_is_taken_away_while_it_is_polled_is_its_next_owners(lost: bool) -> None:
    source, sink = RebalancingGroup({"a": bodies(1), "b": []}), soon()
    job = hr.stream("test", "group").from_(source, format="json", schema={"n": "int64"}).where("n > 0").to(sink)
    with job.start("light", checkpoint_interval="1 h") as handle:
        source.give("a", "b")
        eventually(lambda: numbers(sink) == [1], "a is read")
        source.take("a", lost=lost)
        source.append("a", *bodies(2))
        eventually(lambda: not source.events, "a is taken away while its second record is polled")
        source.append("b", *bodies(10))
        eventually(lambda: numbers(sink) == [1, 10], "the instance goes on")
        assert source.offsets.get("a", 0) == (0 if lost else 1)
        source.offsets["a"] = 1
        source.give("a")
        eventually(lambda: numbers(sink) == [1, 2, 10], "the record comes with the queue")
        assert handle.status().state is JobState.RUNNING


def test_another_job_of_the_same_stream_is_refused_while_one_runs() -> None:
    """It would take the membership away from the first, which would read nothing any more without an error."""
    source, sink, other_sink = MemoryGroup({"a": bodies(1)}), soon(), soon()
    stream = hr.stream("test", "first").from_(source, format="json", schema={"n": "int64"})
    other = stream.where("n > 1").to(other_sink)
    with stream.to(sink).start("light") as handle:
        source.give("a")
        eventually(lambda: numbers(sink) == [1], "a is read")
        for until in (None, "end"):
            with pytest.raises(PlanError, match=r"the running job 'test\.first' reads with the same source object"):
                other.start("light", until=until)
        source.append("a", *bodies(2))
        eventually(lambda: numbers(sink) == [1, 2], "the first job reads on")
        assert handle.status().state is JobState.RUNNING
    source.append("a", *bodies(3))
    with other.start("light"):
        source.give("a")
        eventually(lambda: numbers(other_sink) == [3], "once the first has stopped the other reads on for the group")


class NamedGroup(MemoryGroup):
    def memberships(self) -> Collection[str]:
        return [f"group {self.reader_name!r}", "group 'given'"]


def test_two_sources_that_would_share_the_queues_of_a_group_are_refused() -> None:
    pipe = hr.stream("test", "first")
    sources = [NamedGroup({"a": bodies(1)}) for _ in range(2)]
    job = hr.job(*(pipe.from_(each, format="json", schema={"n": "int64"}).to(soon()) for each in sources))
    with pytest.raises(
        PlanError,
        match="'namedgroup' and 'namedgroup-2' are members of the same group 'given': each of them would get only a part",
    ):
        job.start("light")
    assert [each.joined for each in sources] == [0, 0]
    assert job.run("light").records_read == 2, "a bounded run joins no group"


def test_a_plan_of_another_job_changes_nothing_for_one_that_runs() -> None:
    """In the other job the source has another id, because there is one before it with the same label."""
    source, sink = MemoryGroup({"a": bodies(1), "b": bodies(2)}), soon()
    pipe = hr.stream("test", "first")
    stream = pipe.from_(source, format="json", schema={"n": "int64"}, name="log")
    before = pipe.from_(MemorySource({"q": []}), format="json", schema={"n": "int64"}, name="log")
    with stream.to(sink).start("light") as handle:
        source.give("a")
        eventually(lambda: numbers(sink) == [1], "a is read")
        assert list(before.union(stream).to(soon()).plan().sources) == ["log", "log-2"]
        assert source.node_name == "log-2"
        source.give("b")
        eventually(lambda: numbers(sink) == [1, 2], "b is read")
        source.take("a")
        eventually(lambda: source.offsets.get("a") == 1, "a is given back with its offset")
        assert handle.status().state is JobState.RUNNING


def test_a_queue_that_goes_and_comes_back_while_another_is_polled_is_read_once() -> None:
    source, sink = RebalancingGroup({"a": bodies(1), "b": []}), soon()
    with start(source, sink) as handle:
        source.give("a", "b")
        eventually(lambda: numbers(sink) == [1], "a is read")
        source.append("b", *bodies(10))
        source.take("a", "b")
        source.give("b", "a")
        source.append("a", *bodies(2, 3))
        source.append("b", *bodies(11))
        eventually(lambda: numbers(sink) == [1, 2, 3, 10, 11], "everything")
        assert handle.status().state is JobState.RUNNING
    assert numbers(sink) == [1, 2, 3, 10, 11]


def test_an_edited_job_goes_on_where_its_group_has_committed_and_is_refused_in_a_new_group(tmp_path: Path) -> None:
    bodies = [json.dumps({"n": n}).encode() for n in range(30)]

    def run(source: MemoryGroup, least: int) -> int:
        stream = hr.stream("test", "edited").from_(source, format="json", schema={"n": "int64"}, name="in")
        stream.where(f"n >= {least}").to_file(tmp_path / "out", format="json").run("light")
        return sum(len(path.read_text().splitlines()) for path in (tmp_path / "out").glob("part-*"))

    group = MemoryGroup({"a": bodies[:10]})
    assert run(group, 0) == 10
    group.append("a", *bodies[10:])
    assert run(group, 25) == 10 + 5
    with pytest.raises(JobError, match="the output of another job with the same name"):
        run(MemoryGroup({"a": bodies}), 20)
