"""Ranges that are cut into pieces: who reads what, and that nobody sees it in the results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import BrokenQueueError, RetriableError
from headrace.interfaces.source import Reader
from headrace_spark.transit import ranges
from headrace_spark.transit.carried_ranges import carried, ranges_in
from headrace_spark.transit.envelopes import Envelope
from headrace_spark.transit.ranges import Cuts, QueueRange, cut, numbered, packed, pieces_of
from headrace_spark.workers.shipping import PLACES_PER_RANGE, in_order
from micro_batches import MicroBatches, forget_all
from spark_parts import CountingSource, LineSink

from tests.effort import one_in

pytestmark = pytest.mark.usefixtures("_no_kept_parts")
A, B, C = (Queue(name, "source") for name in "abc")
SCHEMA = {"n": "int64", "queue": "string"}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIECE_RECORDS_MIN", 3)


@pytest.mark.parametrize(
    ("shares", "tasks", "pieces"),
    [
        ({A: 1_000_000}, 4, {A: 4}),
        ({A: 1_000_000}, 1, {A: 1}),
        ({A: 500_000, B: 500_000}, 2, {A: 1, B: 1}),
        ({A: 900_000, B: 50_000, C: 50_000}, 4, {A: 4, B: 1, C: 1}),
        ({A: 300_000, B: 300_000, C: 300_000}, 4, {A: 2, B: 2, C: 2}),
        ({A: 39_999}, 16, {A: 1}),
        ({A: 40_000}, 16, {A: 2}),
        ({A: 0}, 4, {A: 1}),
        ({}, 4, {}),
    ],
)
def test_a_queue_is_cut_when_cores_would_have_nothing_to_do(
    shares: dict[Queue, int], tasks: int, pieces: dict[Queue, int]
) -> None:
    assert pieces_of(shares, tasks) == pieces


class Log(Reader):
    """A queue whose offsets have gaps: every third is missing. It tells positions up to ``told``, and fails from ``fails_at``."""

    def __init__(self, told: int = 10**6, fails_at: int = 10**6, error: Exception | None = None) -> None:
        self.at, self.told, self.fails_at, self.error = 0, told, fails_at, error

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        raise AssertionError("planning reads nothing")

    def seek(self, position: ReadPosition) -> None:
        self.at = position.offset

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self.at)

    earliest = 0

    @property
    def latest(self) -> int:
        return self.told

    def position_after(self, max_records: int) -> ReadPosition:
        if self.error is not None and self.at >= self.fails_at:
            raise self.error
        return ReadPosition(min(self.told, self.at + max_records * 3 // 2))


def offsets(positions: list[ReadPosition]) -> list[int]:
    return [position.offset for position in positions]


def test_positions_between_pieces() -> None:
    start, end = ReadPosition(0), ReadPosition(450)
    assert offsets(cut(Log(), start, end, 3)) == [225, 393], "about equal, as far as gaps allow"
    assert offsets(cut(Log(told=100), start, end, 3)) == [100], "the reader tells no more"
    assert cut(Log(told=0), start, end, 3) == []
    assert cut(Log(), start, end, 1) == []
    assert cut(Log(), start, ReadPosition(1), 3) == []


@pytest.mark.parametrize("error", [BrokenQueueError("damaged"), RetriableError("away")])
def test_a_queue_that_fails_while_it_is_cut_is_left_whole(error: Exception) -> None:
    assert cut(Log(fails_at=100, error=error), ReadPosition(0), ReadPosition(450), 4) == []


def test_pieces_of_a_range_that_was_planned() -> None:
    cuts = Cuts()
    start, end = ReadPosition(10), ReadPosition(100)
    cuts.add(A, start, end, [ReadPosition(40), ReadPosition(70)])
    made = cuts.pieces(QueueRange(A, start, end))
    assert [(each.start.offset, each.end.offset) for each in made] == [(10, 40), (40, 70), (70, 100)]
    for other in (QueueRange(A, start, ReadPosition(99)), QueueRange(B, start, end)):
        assert cuts.pieces(other) == [other], "nothing is known of it: another process has planned it"
    for number in range(2 * ranges._RANGES_MAX):
        cuts.add(B, ReadPosition(number), end, [ReadPosition(number + 1)] if number < 99 else [])
    assert len(cuts._known) <= ranges._RANGES_MAX
    cuts.add(B, ReadPosition(98), end, [])
    assert len(cuts.pieces(QueueRange(B, ReadPosition(98), end))) == 1, "it was planned again, whole"


def test_ranges_of_a_queue_are_numbered_and_packed() -> None:
    parts = [QueueRange(A, ReadPosition(at), ReadPosition(at + size)) for at, size in ((0, 50), (50, 60), (110, 40))]
    told = QueueRange(A, ReadPosition(150), ReadPosition(150), broken="damaged")
    made = numbered([*parts, told, QueueRange(B, ReadPosition(0), ReadPosition(70))])
    assert [each.number for each in made] == [0, 1, 2, 3, 0]
    tasks = packed(made, 2)
    assert sorted(sum(map(len, task)) for task in tasks) == [110, 110]
    assert all(task == sorted(task, key=lambda each: (each.queue, each.number)) for task in tasks), "readers go forward"
    assert sorted((each.queue, each.number) for task in tasks for each in task) == [
        (A, 0),
        (A, 1),
        (A, 2),
        (A, 3),
        (B, 0),
    ]
    assert list(ranges_in([carried(tasks[0]), carried(tasks[1])])) == [*tasks[0], *tasks[1]]


def jumbled(source: CountingSource, sink: LineSink) -> hr.Job:
    """Count in windows of 10 s over times that go back by up to 40 s, of which 15 s are waited for; what is late comes too."""
    stream = hr.stream("test", "jumbled").from_(source, format="json", schema=SCHEMA)
    timed = stream.with_columns(ts="TO_TIMESTAMP(FROM_UNIXTIME(n + MOD(n * 37, 41)))", k="MOD(n, 7)")
    windows = timed.key_by("k").window(hr.tumbling("10 s", on="ts"), late="15 s")
    return windows.agg(n="count(*)", s="sum(n)").to(sink)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_windows_and_what_is_late_are_the_same_when_ranges_are_cut(
    source: CountingSource, tmp_path: Path, seed: int
) -> None:
    source.set_count("a", 600 + seed)
    source.set_count("b", 40)
    found: list[Any] = []
    for cuts in (False, True):
        sink = LineSink(tmp_path / f"lines-{cuts}")
        sink.prepare(None)
        run = MicroBatches(
            jumbled(source, sink), tmp_path / f"run-{cuts}", seed=seed, parallelism=4, cuts_ranges=cuts, batch_records=5
        )
        late = 0
        while run.run_batch(60 + 31 * seed):
            late += sum(figures["late_rows"] or 0 for figures in run.shard_figures().values())
        rows = Counter(tuple(sorted(row.items())) for row in sink.rows())
        found.append((rows, late))
        forget_all()
    assert found[0] == found[1]
    assert found[0][1] > 0, "some rows are late"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", one_in(2, range(4)))
def test_rows_of_a_queue_come_to_a_sink_in_order_when_its_range_is_cut(
    source: CountingSource, tmp_path: Path, seed: int
) -> None:
    counts = {"a": 500, "b": 10}
    for queue, count in counts.items():
        source.set_count(queue, count)
    sink = LineSink(tmp_path / "lines")
    sink.prepare(None)
    job = hr.stream("test", "ordered").from_(source, format="json", schema=SCHEMA).where("n % 3 != 0").to(sink)
    run = MicroBatches(job, tmp_path / "run", seed=seed, parallelism=3, cuts_ranges=True)
    sizes = []
    while run.run_batch(100):
        sizes.append(sum(sum(counts.records.values()) for counts in run.counts))
    assert sum(sizes) == 510
    rows = sink.rows()
    for queue, count in counts.items():
        assert [row["n"] for row in rows if row["queue"] == queue] == [n for n in range(count) if n % 3]


def envelopes_of(queue: Queue, number: int, rows: int, ends: str = "end") -> list[Envelope]:
    kinds: list[Any] = ["begin", *["rows"] * rows, ends]
    first = number * PLACES_PER_RANGE
    return [Envelope(kind, queue, 0, 0, place=first + place) for place, kind in enumerate(kinds)]


def test_envelopes_are_put_in_order_and_go_on_as_soon_as_it_is_their_turn() -> None:
    whole = [*envelopes_of(A, 0, 2), *envelopes_of(A, 1, 0), *envelopes_of(A, 2, 3), *envelopes_of(A, 3, 0, "gone")]
    other = envelopes_of(B, 0, 4)
    for seed in range(20):
        mixed = [*whole, *other]
        random.Random(seed).shuffle(mixed)
        made = list(in_order(mixed))
        assert [each for each in made if each.queue == A] == whole
        assert [each for each in made if each.queue == B] == other
    taken = 0

    def coming() -> Iterator[Envelope]:
        nonlocal taken
        for each in whole:
            taken += 1
            yield each

    for number, _ in enumerate(in_order(coming())):
        assert taken == number + 1, "nothing that comes in order waits"
    with pytest.raises(AssertionError):
        list(in_order(whole[1:]))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("tasks", [1, 2, 4])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_range_of_a_rotated_file_is_read_in_pieces_and_whole(tmp_path: Path, tasks: int, restarted: bool) -> None:
    log, sink = tmp_path / "app.log", LineSink(tmp_path / "out")
    sink.prepare(None)

    def add(begin: int, end: int) -> None:
        with log.open("a") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in range(begin, end))

    def rotate() -> None:
        for number in (1, 0):
            named = tmp_path / f"app.log.{number}" if number else log
            if named.exists():
                named.rename(tmp_path / f"app.log.{number + 1}")

    add(0, 10)
    pipe = hr.stream("test", "rotated").from_file(str(log), rotate_wait="0 s", format="json", schema={"n": "int64"})
    run = MicroBatches(
        pipe.to(sink), tmp_path / "run", until=None, parallelism=tasks, cuts_ranges=True, retry_seconds=1.0
    )
    for _ in range(3):
        run.run_batch(1000)
    for first, last in ((10, 30), (30, 60)):
        rotate()
        add(first, last)
    most = 0
    while True:
        start = run.offsets
        end = run.planner.next_end(start, 1000)
        if end == start:
            break
        most = max(most, len(run.planner.partitions(start, end)))
        if restarted:  # the micro-batch was planned, and nothing of it was done
            forget_all()
            run.restarted()
        run.run(start, end, run.next_batch)
        run.offsets, run.next_batch = end, run.next_batch + 1
    assert [row["n"] for row in sink.rows()] == list(range(60))
    assert most == tasks
