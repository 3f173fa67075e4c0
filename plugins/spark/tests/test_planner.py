"""Planning of micro-batches, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import BrokenQueueError, CheckpointError, JobError, JobFailedError, RetriableError
from headrace.plan.graph import Plan
from headrace.testing import MemorySink, MemorySource
from headrace_spark.checkpoints.offsets import GONE_MAX, JobIdentity, JobOffsets, KeyedMarks
from headrace_spark.planning.planner import Planner, _shares
from headrace_spark.planning.queue_ends import ENDS, beginning_of, ends_of, ends_to_json
from headrace_spark.transit.marks import MarkKeeper
from headrace_spark.transit.payload import FrameInput, JobPayload, KeyedPlan, sources_of
from headrace_spark.transit.ranges import packed
from headrace_spark.transit.run_directory import RunDirectory

SCHEMA = {"n": "int64"}


def plan_of(*sources: MemorySource, name: str = "planner", **options: Any) -> hr.Job:
    pipeline = hr.stream("test", name)
    first, *others = [pipeline.from_(source, format="json", schema=SCHEMA, **options) for source in sources]
    return (first.union(*others) if others else first).to(MemorySink())


def payload(tmp_path: Path, plan: Plan, **changes: Any) -> JobPayload:
    made = JobPayload(
        token="t", identity=JobIdentity.of(plan), sources_bytes=b"", plan_bytes=b"", import_paths=(),
        working_directory=None, run_directory=str(tmp_path), until=None, discovery_seconds=2.0, idle_wait_seconds=0.1,
        retry_seconds=60.0, batch_records=10, micro_batch_records=100, parallelism=2,
    )  # fmt: skip
    return replace(made, **changes)


def planner_of(tmp_path: Path, *sources: MemorySource, clock: ManualClock | None = None, **changes: Any) -> Planner:
    plan = plan_of(*sources).plan()
    return Planner(payload(tmp_path, plan, **changes), sources_of(plan), clock or ManualClock())


def bodies(count: int) -> list[bytes]:
    return [b'{"n":1}'] * count


def numbers(offsets: JobOffsets) -> Mapping[str, int]:
    return {queue.name: position.offset for queue, position in offsets.queues.items()}


def begun(planner: Planner) -> JobOffsets:
    """Return the offsets after the first micro-batch, which only notes where queues begin."""
    start = planner.initial()
    assert (start, start.queues) == (planner.initial(), {}), "Spark asks for it again"
    end = planner.next_end(through_json(start), None)
    assert all(len(part) == 0 for parts in planner.partitions(start, end) for part in parts)
    return end


def through_json(offsets: JobOffsets) -> JobOffsets:
    return JobOffsets.from_json(json.loads(json.dumps(offsets.to_json())))


def test_records_are_shared_between_queues_that_have_some(tmp_path: Path) -> None:
    planner = planner_of(tmp_path, MemorySource({"a": bodies(1000), "b": bodies(10), "c": [], "d": bodies(1000)}))
    start = begun(planner)
    assert numbers(start) == {"a": 0, "b": 0, "c": 0, "d": 0}
    end = planner.next_end(through_json(start), 100)
    assert numbers(end) == {"a": 45, "b": 10, "c": 0, "d": 45}
    assert numbers(planner.next_end(through_json(end), None)) == {"a": 1000, "b": 10, "c": 0, "d": 1000}


def test_a_micro_batch_is_packed_into_as_many_parts_as_there_are_cores(tmp_path: Path) -> None:
    planner = planner_of(tmp_path, MemorySource({"a": bodies(50), "b": bodies(30), "c": bodies(20), "d": bodies(5)}))
    start = begun(planner)
    end = planner.next_end(start, None)
    parts = planner.partitions(start, end)
    assert sorted(sum(map(len, part)) for part in parts) == [50, 55]
    assert {r.queue.name for part in parts for r in part} == set("abcd")
    assert planner.partitions(end, end) == []


def test_a_queue_that_appears_is_read_from_the_batch_after(tmp_path: Path) -> None:
    source, clock = MemorySource({"a": bodies(3)}), ManualClock()
    planner = planner_of(tmp_path, source, clock=clock)
    start = planner.next_end(begun(planner), None)
    source.append("new", *bodies(7))
    assert planner.next_end(start, None) == start, "queues are looked for only every so often"
    clock.advance(2.0)
    with_new = planner.next_end(start, None)
    assert numbers(with_new) == {"a": 3, "new": 0}
    (part,) = planner.partitions(start, with_new)
    assert (part[0].queue.name, part[0].added, len(part[0])) == ("new", True, 0)
    assert numbers(planner.next_end(through_json(with_new), None)) == {"a": 3, "new": 7}


def test_where_a_job_begins_is_known_before_anything_is_read(tmp_path: Path) -> None:
    source, clock = MemorySource({"a": bodies(3)}), ManualClock()
    latest = plan_of(source, start="latest").plan()
    start = begun(Planner(payload(tmp_path, latest), sources_of(latest), clock))
    assert numbers(start) == {"a": 3}
    source.append("a", *bodies(2))
    source.append("b", *bodies(4))
    after_crash = Planner(payload(tmp_path, latest), sources_of(latest), clock)
    added = after_crash.next_end(through_json(start), None)
    assert numbers(added) == {"a": 5, "b": 0}, "a queue that appears later is read from its beginning"
    assert numbers(after_crash.next_end(added, None)) == {"a": 5, "b": 4}


def test_a_queue_that_goes_leaves_its_position_behind(tmp_path: Path) -> None:
    source, clock = MemorySource({"a": bodies(3), "b": bodies(4)}), ManualClock()
    planner = planner_of(tmp_path, source, clock=clock)
    start = planner.next_end(begun(planner), None)
    gone = source.bodies["b"]
    source.remove_queue("b")
    clock.advance(2.0)
    without = planner.next_end(start, None)
    assert numbers(without) == {"a": 3}
    (part,) = planner.partitions(start, without)
    assert (part[0].queue.name, part[0].gone) == ("b", True)
    source.append("b", *gone, *bodies(1))
    clock.advance(2.0)
    again = planner.next_end(through_json(without), None)
    assert numbers(again) == {"a": 3, "b": 4}
    assert again.gone == {}


def test_positions_of_queues_long_gone_are_forgotten() -> None:
    gone = {Queue(f"q{n}", "memory"): ReadPosition(n) for n in range(GONE_MAX + 5)}
    offsets = JobOffsets.of(JobIdentity.of(plan_of(MemorySource({"a": []})).plan()), {}, gone)
    assert len(offsets.gone) == GONE_MAX
    assert Queue("q0", "memory") not in offsets.gone


def test_a_bounded_run_ends_at_what_was_there_at_its_start(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(5)})
    planner = planner_of(tmp_path, source, until="end")
    end = planner.next_end(begun(planner), 3)
    source.append("a", *bodies(10))
    source.append("b", *bodies(10))
    assert numbers(end) == {"a": 3}
    last = planner.next_end(end, 3)
    assert numbers(last) == {"a": 5}
    assert planner.next_end(last, 3) is last


def test_a_bounded_run_takes_the_ends_that_the_driver_found(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(5), "b": bodies(2)})
    plan = plan_of(source).plan()
    beginning = beginning_of(JobIdentity.of(plan), sources_of(plan))
    ends = ends_of(beginning, sources_of(plan))
    source.append("a", *bodies(5))
    source.append("c", *bodies(5))
    RunDirectory(tmp_path).put(ENDS, json.loads(json.dumps(ends_to_json(ends))))
    planner = planner_of(tmp_path, source, until="end", driver_finds_ends=True, beginning=beginning.to_json())
    end = planner.next_end(planner.initial(), None)
    assert numbers(end) == {"a": 5, "b": 2, "c": 0}
    assert planner.next_end(end, None) is end


def test_a_bounded_run_begins_while_the_driver_still_counts(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(100_000), "b": bodies(70_000)})
    plan = plan_of(source).plan()
    beginning = beginning_of(JobIdentity.of(plan), sources_of(plan))
    planner = planner_of(tmp_path, source, until="end", driver_finds_ends=True, beginning=beginning.to_json())
    first = planner.next_end(planner.initial(), 80_000)
    assert numbers(first) == {"a": 40_000, "b": 40_000}, "each queue gives its whole part"
    RunDirectory(tmp_path).put(ENDS, json.loads(json.dumps(ends_to_json(ends_of(beginning, sources_of(plan))))))
    source.append("b", *bodies(5))
    second = planner.next_end(through_json(first), 80_000)
    assert numbers(second) == {"a": 90_000, "b": 70_000}
    last = planner.next_end(second, 80_000)
    assert numbers(last) == {"a": 100_000, "b": 70_000}
    assert planner.next_end(last, 80_000) is last


@pytest.mark.parametrize("records_max", [None, 30_000, 160_000])
def test_the_ends_are_waited_for_where_a_queue_may_have_less_than_its_part(
    tmp_path: Path, records_max: int | None
) -> None:
    source = MemorySource({"a": bodies(100_000), "b": bodies(70_000)})
    plan = plan_of(source).plan()
    beginning = beginning_of(JobIdentity.of(plan), sources_of(plan))
    planner = planner_of(tmp_path, source, until="end", driver_finds_ends=True, beginning=beginning.to_json())
    assert planner._end_while_ends_are_sought(planner.initial(), records_max) is None


def test_a_bounded_run_finds_the_ends_when_the_driver_could_not(tmp_path: Path) -> None:
    RunDirectory(tmp_path).put(ENDS, None)
    planner = planner_of(tmp_path, MemorySource({"a": bodies(5)}), until="end", driver_finds_ends=True)
    assert numbers(planner.next_end(begun(planner), None)) == {"a": 5}


class SteppingSource(MemorySource):
    """Its readers tell of at most three records at a time, as a reader of rotated files tells of one file."""

    def open(self, queue: Queue, start: Any) -> Any:
        reader: Any = super().open(queue, start)
        plain = reader.position_after
        reader.position_after = lambda records_max: plain(min(records_max, 3))
        return reader


def test_ranges_lead_no_further_than_a_reader_tells(tmp_path: Path) -> None:
    planner = planner_of(tmp_path, SteppingSource({"a": bodies(7), "b": bodies(3)}), until="end")
    end = begun(planner)
    seen = []
    while (following := planner.next_end(end, None)) != end:
        seen.append(dict(numbers(following)))
        end = following
    assert seen == [{"a": 3, "b": 3}, {"a": 6, "b": 3}, {"a": 7, "b": 3}]


def test_a_bounded_run_that_goes_on_reads_queues_that_came_meanwhile(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(5)})
    first = planner_of(tmp_path, source, until="end")
    end = first.next_end(begun(first), None)
    source.append("b", *bodies(2))
    second = planner_of(tmp_path, source, until="end")
    added = second.next_end(through_json(end), None)
    done = second.next_end(through_json(added), None)
    assert numbers(done) == {"a": 5, "b": 2}
    assert second.next_end(done, None) is done


def test_an_idle_planner_waits_and_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    clock = ManualClock()
    planner = planner_of(tmp_path, MemorySource({"a": bodies(1)}), clock=clock)
    start = planner.next_end(begun(planner), None)
    before = clock.monotonic()
    assert planner.next_end(start, None) is start
    assert clock.monotonic() - before >= 1.0
    run = RunDirectory(tmp_path)
    run.ask_to_stop()
    before = clock.monotonic()
    assert planner.next_end(start, None) is start
    assert clock.monotonic() == before
    assert run.drained


def test_a_planner_beside_dataframes_does_not_hold_them_up(tmp_path: Path) -> None:
    clock = ManualClock()
    planner = planner_of(tmp_path, MemorySource({"a": bodies(1)}), clock=clock, frames=FrameInput({"frame": None}))
    start = planner.next_end(begun(planner), None)
    run = RunDirectory(tmp_path)

    def answered_in(batch_id: int) -> float:
        run.add_event("batch", batch_id=batch_id, tasks=[])
        before = clock.monotonic()
        assert planner.next_end(start, None) is start
        return clock.monotonic() - before

    assert (answered_in(0), answered_in(1)) == (0.0, 0.0), (
        "micro-batches come, so something may have come for another one"
    )
    assert 0 < answered_in(1) < 0.2
    run.ask_to_stop()
    run.release()
    assert answered_in(1) > 0.2, "Spark gets no answer before it is stopped"
    assert run.drained


def test_nothing_is_handed_out_after_a_stop_was_asked(tmp_path: Path) -> None:
    planner = planner_of(tmp_path, MemorySource({"a": bodies(100)}))
    start = begun(planner)
    RunDirectory(tmp_path).ask_to_stop()
    assert planner.next_end(start, None) is start


@pytest.mark.parametrize("stops", [False, True])
def test_the_first_micro_batch_has_a_number_of_its_own_although_there_is_nothing_to_do(
    tmp_path: Path, stops: bool
) -> None:
    planner = planner_of(tmp_path, MemorySource({"a": []}))
    beginning = replace(begun(planner), checkpoint="c", number=0)
    if stops:
        RunDirectory(tmp_path).ask_to_stop()
    end = planner.next_end(beginning, None)
    assert (end.queues, end.number) == (beginning.queues, 1)
    assert planner.partitions(beginning, end) in ([], [[]])
    assert planner.next_end(end, None) is end


def test_the_driver_is_told_of_queues_and_ends(tmp_path: Path) -> None:
    source, clock = MemorySource({"a": bodies(3)}), ManualClock()
    planner = planner_of(tmp_path, source, clock=clock)
    start = planner.next_end(begun(planner), None)
    source.append("b", *bodies(1))
    source.remove_queue("a")
    clock.advance(2.0)
    planner.next_end(start, None)
    run = RunDirectory(tmp_path)
    assert list(run.new_events()) == [
        {"kind": "queues", "added": [["memory", "a", 0]], "gone": []},
        {"kind": "latest", "offsets": {"memory/a": 3}},
        {"kind": "queues", "added": [["memory", "b", 0]], "gone": [["memory", "a"]]},
        {"kind": "latest", "offsets": {}},
    ]
    assert list(run.new_events()) == []


class FlakySource(MemorySource):
    """Away for the given number of calls."""

    calls_away = 0

    def queues(self) -> Any:
        if self.calls_away > 0:
            self.calls_away -= 1
            raise RetriableError("the server is away")
        return super().queues()


def test_a_source_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    source, clock = FlakySource({"a": bodies(2)}), ManualClock()
    source.calls_away = 3
    planner = planner_of(tmp_path, source, clock=clock)
    start = begun(planner)
    assert numbers(start) == {"a": 0}
    source.calls_away = 1
    clock.advance(2.0)
    assert numbers(planner.next_end(start, None)) == {"a": 2}, "queues that were known stay"


def test_a_source_that_stays_away_fails_the_job(tmp_path: Path) -> None:
    source = FlakySource({"a": bodies(2)})
    source.calls_away = 1_000
    with pytest.raises(JobFailedError, match=r"not available for 6\d s: the server is away"):
        begun(planner_of(tmp_path, source))


class BreakableSource(MemorySource):
    """Queues in ``broken`` cannot be opened or asked."""

    def __init__(self, bodies: Any) -> None:
        super().__init__(bodies)
        self.broken: set[str] = set()

    def open(self, queue: Queue, start: Any) -> Any:
        self.check_whole(queue.name)
        made = super().open(queue, start)
        reader = BreakableReader(made, self, queue.name)
        return reader

    def check_whole(self, name: str) -> None:
        if name in self.broken:
            raise BrokenQueueError(f"{name} is damaged", hint="mend it")


class BreakableReader:
    def __init__(self, reader: Any, source: BreakableSource, name: str) -> None:
        self._reader, self._source, self._name = reader, source, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("latest", "position_after"):
            self._source.check_whole(self._name)
        return getattr(self._reader, attribute)


def events_of(tmp_path: Path, *kinds: str) -> list[tuple[str, str]]:
    return [(e["kind"], e["queue"]) for e in RunDirectory(tmp_path).new_events() if e["kind"] in kinds]


def test_a_queue_that_cannot_be_read_is_set_aside_and_the_dead_letters_are_told_once(tmp_path: Path) -> None:
    source, clock = BreakableSource({"a": bodies(4), "b": bodies(4)}), ManualClock()
    planner = planner_of(tmp_path, source, clock=clock)
    start = begun(planner)
    source.broken.add("a")
    end = planner.next_end(start, None)
    assert numbers(end) == {"a": 0, "b": 4}
    assert end.broken == {Queue("a", "breakable"): "a is damaged"}
    ranges = {part.queue.name: part for parts in planner.partitions(start, through_json(end)) for part in parts}
    assert (ranges["a"].broken, len(ranges["a"]), len(ranges["b"])) == ("a is damaged", 0, 4)
    clock.advance(5.0)
    source.append("b", b"{}")
    later = planner.next_end(end, None)
    assert numbers(later) == {"a": 0, "b": 5}
    assert [part.queue.name for parts in planner.partitions(end, later) for part in parts] == ["b"]
    source.broken.clear()
    clock.advance(5.0)
    mended = planner.next_end(later, None)
    assert (numbers(mended), mended.broken) == ({"a": 4, "b": 5}, {})
    assert events_of(tmp_path, "broken", "whole") == [("broken", "breakable/a"), ("whole", "breakable/a")]


def test_a_queue_that_cannot_be_opened_is_read_from_its_beginning_when_it_can(tmp_path: Path) -> None:
    source, clock = BreakableSource({"a": bodies(4), "b": bodies(4)}), ManualClock()
    source.broken.add("a")
    planner = planner_of(tmp_path, source, clock=clock)
    start = planner.next_end(planner.initial(), None)
    assert (numbers(start), dict(start.broken)) == ({"b": 0}, {Queue("a", "breakable"): "a is damaged"})
    source.broken.clear()
    clock.advance(5.0)
    second = planner.next_end(start, None)
    assert numbers(second) == {"a": 0, "b": 4}
    assert numbers(planner.next_end(second, None)) == {"a": 4, "b": 4}


def test_a_bounded_run_does_not_wait_for_it(tmp_path: Path) -> None:
    source = BreakableSource({"a": bodies(4), "b": bodies(4)})
    planner = planner_of(tmp_path, source, until="end")
    start = begun(planner)
    source.broken.add("a")
    end = planner.next_end(planner.next_end(start, 4), 4)
    assert numbers(end) == {"a": 0, "b": 4}
    assert planner.next_end(end, 4) == end


def test_a_job_that_such_queues_stop_is_stopped(tmp_path: Path) -> None:
    source = BreakableSource({"a": bodies(4), "b": bodies(4)})
    planner = planner_of(tmp_path, source, stops_on_broken_queues=True)
    start = begun(planner)
    source.broken.add("a")
    with pytest.raises(BrokenQueueError, match="a is damaged") as caught:
        planner.next_end(start, None)
    assert (caught.value.queue, caught.value.offset) == ("breakable/a", 0)


def test_a_job_does_not_begin_when_no_queue_can_be_opened() -> None:
    source = BreakableSource({"a": bodies(4)})
    source.broken.add("a")
    plan = plan_of(source).plan()
    with pytest.raises(JobError, match="a is damaged"):
        beginning_of(JobIdentity.of(plan), sources_of(plan))


def test_offsets_belong_to_a_job_and_its_sources(caplog: pytest.LogCaptureFixture) -> None:
    source = MemorySource({"a": []})
    plan = JobIdentity.of(plan_of(source).plan())
    offsets = through_json(JobOffsets.of(plan, {Queue("a", "memory"): ReadPosition(5, {"at": 7})}))
    offsets.check_belongs_to(plan)
    assert offsets.queues[Queue("a", "memory")] == ReadPosition(5, {"at": 7})
    assert not caplog.records
    with pytest.raises(CheckpointError, match=r"belongs to the job 'test.planner'"):
        offsets.check_belongs_to(JobIdentity.of(plan_of(source, name="other").plan()))
    with pytest.raises(CheckpointError, match=r"was a MemorySource .* is now a FlakySource"):
        offsets.check_belongs_to(_renamed(FlakySource(), "memory"))
    offsets.check_belongs_to(_with_another_source(source))
    assert "the plan has changed" in caplog.text


def _renamed(source: MemorySource, name: str = "renamed") -> JobIdentity:
    stream = hr.stream("test", "planner").from_(source, format="json", schema=SCHEMA, name=name)
    return JobIdentity.of(stream.to(MemorySink()).plan())


def _with_another_source(source: MemorySource) -> JobIdentity:
    return JobIdentity.of(plan_of(source, MemorySource({"z": []})).plan())


def test_the_beginning_that_the_driver_found_is_where_the_planner_begins(tmp_path: Path) -> None:
    plan = plan_of(MemorySource({"a": bodies(5), "b": bodies(2)}), start="latest").plan()
    found = beginning_of(JobIdentity.of(plan), sources_of(plan))
    assert numbers(found) == {"a": 5, "b": 2}
    later = plan_of(MemorySource({"a": bodies(9), "b": bodies(2), "c": bodies(3)}), start="latest").plan()
    planner = Planner(payload(tmp_path, later, beginning=found.to_json()), sources_of(later), ManualClock())
    assert planner.initial() == found
    end = planner.next_end(planner.initial(), None)
    assert numbers(end) == {"a": 9, "b": 2, "c": 0}


@pytest.mark.parametrize("content", [{}, {"format": 1}, {"format": 1, "job": "x", "plan": "y", "sources": 3}, {"a": 5}])
def test_offsets_of_somebody_else_are_refused(content: Any) -> None:
    with pytest.raises(CheckpointError, match="were not written by headrace"):
        JobOffsets.from_json(content)


def test_offsets_of_a_newer_version_are_refused() -> None:
    with pytest.raises(CheckpointError, match="newer version"):
        JobOffsets.from_json({"format": 99, "job": "x"})


def test_shares_never_exceed_what_is_allowed_but_let_every_queue_go_on() -> None:
    queues = [Queue(str(n)) for n in range(5)]
    lags = dict(zip(queues, (1, 100, 5, 1000, 50), strict=True))
    assert sum(_shares(lags, 60).values()) == 60
    assert _shares(lags, None) == lags
    assert set(_shares(lags, 2).values()) == {1}


def test_packing_leaves_no_part_empty() -> None:
    assert packed([], 4) == []


def offsets_of_a_checkpoint(number: int, checkpoint: str = "c1") -> JobOffsets:
    identity = JobIdentity("test.planner", "f00d", {"in": "MemorySource"}, checkpoint)
    marks = KeyedMarks(2, (("key_by",),), base=1_000, time_us=5)
    made = JobOffsets.of(identity, {Queue("a", "in"): ReadPosition(7, {"byte": 70})})
    return replace(made, keyed=marks, checkpoint=checkpoint, number=number)


def test_a_flipped_bit_of_the_offsets_is_noticed() -> None:
    text = json.dumps(offsets_of_a_checkpoint(3).to_json()).encode()
    assert JobOffsets.from_json(json.loads(text)) == offsets_of_a_checkpoint(3)
    for place in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[place // 8] ^= 1 << place % 8
        try:
            value = json.loads(damaged)
        except (ValueError, UnicodeDecodeError):
            continue
        if value != json.loads(text):  # else the bit was of white space, or of how a text is written
            with pytest.raises(CheckpointError):
                JobOffsets.from_json(value)


def test_offsets_of_another_micro_batch_or_checkpoint_do_not_follow() -> None:
    start = offsets_of_a_checkpoint(3)
    Planner.check_follows(start, offsets_of_a_checkpoint(4), "test.planner")
    # An older version of headrace has not numbered them.
    Planner.check_follows(start.begun_in(None), offsets_of_a_checkpoint(4), "test.planner")
    for other in (start, offsets_of_a_checkpoint(5), offsets_of_a_checkpoint(4, "c2")):
        with pytest.raises(CheckpointError, match="are not consecutive"):
            Planner.check_follows(start, other, "test.planner")
    with pytest.raises(CheckpointError, match="belong to different checkpoints"):
        start.check_belongs_to(JobIdentity("test.planner", "f00d", {"in": "MemorySource"}, "c2"))


def test_micro_batches_are_numbered(tmp_path: Path) -> None:
    source = MemorySource({"a": bodies(25)})
    identity = replace(JobIdentity.of(plan_of(source).plan()), checkpoint="c1")
    planner = planner_of(tmp_path, source, identity=identity)
    start = planner.initial()
    assert (start.checkpoint, start.number) == ("c1", 0)
    for number in (1, 2, 3):
        end = planner.next_end(through_json(start), 10)
        assert (end.checkpoint, end.number) == ("c1", number)
        planner.partitions(start, end)
        start = through_json(end)
    with pytest.raises(CheckpointError, match="are not consecutive"):
        planner.partitions(end, end.begun_in("c1"))


def test_entries_begin_and_go_on_behind_what_sinks_have() -> None:
    keyed = KeyedPlan(2, (("key_by",),), {}, None)
    identity = JobIdentity("test.planner", "f00d", {"in": "MemorySource"})
    start = JobOffsets.of(identity, {Queue("a", "in"): ReadPosition(0)})
    end = replace(start, queues={Queue("a", "in"): ReadPosition(7)})
    clock = ManualClock(1.0)

    def base(plan: KeyedPlan, begin: JobOffsets) -> int:
        marks = MarkKeeper(plan, clock, bounded=False).put_on(begin, end, all_read=False).keyed
        assert marks is not None
        return marks.base

    assert base(keyed, start) == 1_000_000
    assert base(replace(keyed, base_least=7_000_000), start) == 7_000_000
    going_on = replace(start, keyed=KeyedMarks(2, (("key_by",),), base=1_000, time_us=5))
    moved = replace(keyed, base_moved=(1_000, 9_000))
    assert (base(keyed, going_on), base(moved, going_on)) == (1_000, 9_000)
    # Once moved it stays, and a micro-batch that does nothing moves nothing.
    assert base(moved, replace(going_on, keyed=replace(going_on.keyed, base=9_000))) == 9_000  # type: ignore[type-var]
    idle = MarkKeeper(moved, clock, bounded=False).put_on(going_on, going_on, all_read=False)
    assert idle == going_on
