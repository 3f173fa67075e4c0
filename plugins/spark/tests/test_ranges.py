"""Ranges that are cut into pieces: who reads what, and that nobody sees it in the results."""

from __future__ import annotations

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
from headrace_spark import ranges
from headrace_spark.lanes import carried, ranges_in
from headrace_spark.ranges import Cuts, QueueRange, cut, numbered, packed, pieces_of
from micro_batches import MicroBatches, forget_all
from spark_parts import CountingSource, LineSink

A, B, C = (Queue(name, "source") for name in "abc")
SCHEMA = {"n": "int64", "queue": "string"}


@pytest.fixture(autouse=True)
def _no_kept_parts() -> Iterator[None]:
    yield
    forget_all()


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


def test_positions_between_pieces() -> None:
    reader = Log()
    assert cut(reader, 300, 3) == [ReadPosition(150), ReadPosition(262)], (
        "pieces are about equal where offsets have gaps"
    )
    assert reader.position == ReadPosition(262)
    reader = Log(told=100)
    assert cut(reader, 300, 3) == [ReadPosition(100)], "it tells no more: the next file, or the end"
    assert cut(Log(told=0), 300, 3) == []
    assert cut(Log(), 300, 1) == []


@pytest.mark.parametrize("error", [BrokenQueueError("damaged"), RetriableError("away")])
def test_a_queue_that_fails_while_it_is_cut_is_left_whole(error: Exception) -> None:
    reader = Log(fails_at=100, error=error)
    assert cut(reader, 300, 4) == []
    assert reader.position == ReadPosition(0)


def test_pieces_of_a_range_that_was_planned() -> None:
    cuts = Cuts()
    start, end = ReadPosition(10), ReadPosition(100)
    cuts.add(A, start, end, [ReadPosition(40), ReadPosition(70), ReadPosition(100)])
    made = cuts.pieces(QueueRange(A, start, end))
    assert [(each.start.offset, each.end.offset) for each in made] == [(10, 40), (40, 70), (70, 100)]
    for other in (QueueRange(A, start, ReadPosition(99)), QueueRange(B, start, end)):
        assert cuts.pieces(other) == [other], "nothing is known of it: another process has planned it"
    for number in range(2 * ranges._RANGES_MAX):
        cuts.add(B, ReadPosition(number), end, [ReadPosition(number + 1)] if number < 99 else [])
    cuts.add(A, start, end, [])
    assert len(cuts._known) <= ranges._RANGES_MAX


def test_ranges_of_a_queue_are_numbered_and_packed() -> None:
    parts = [QueueRange(A, ReadPosition(at), ReadPosition(at + size)) for at, size in ((0, 50), (50, 60), (110, 40))]
    told = QueueRange(A, ReadPosition(150), ReadPosition(150), broken="damaged")
    made = numbered([*parts, told, QueueRange(B, ReadPosition(0), ReadPosition(70))])
    assert [each.number for each in made] == [0, 1, 2, 3, 0]
    tasks = packed(made, 2)
    assert sorted(sum(map(len, task)) for task in tasks) == [110, 110]
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
@pytest.mark.parametrize("seed", range(6))
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
@pytest.mark.parametrize("seed", range(4))
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
