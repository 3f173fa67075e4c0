"""The writer around a sink: caching, flushing, splitting, retrying, bisecting, deduplicating."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Checkpoint, Position, Queue, QueueRemoved
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError, JobFailedError, RetriableError
from headrace.interfaces.sink import SinkBatch, SinkSettings
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySink, MemoryTransactionalSink

QUEUE = Queue("q0", "src")


def rows(offsets: list[int], queue: Queue = QUEUE, indexes: list[int] | None = None) -> Batch:
    header = {OFFSET: offsets, INDEX: pl.Series(indexes or [0] * len(offsets), dtype=pl.Int32)}
    return Batch(queue, pl.DataFrame({**header, "v": [offset * 10 for offset in offsets]}))


class Harness:
    """A writer with a clock moved by hand and its dead letters in a list."""

    def __init__(self, sink: MemorySink, *, auto_flush: bool = False) -> None:
        self.clock = ManualClock()
        self.dead: list[dict[str, object]] = []
        self.sink = sink
        self.writer = SinkWriter(sink, "to_memory", on_dead_letters=self._take, clock=self.clock, auto_flush=auto_flush)

    def _take(self, batch: Batch) -> None:
        self.dead += batch.user_frame().to_dicts()

    @property
    def values(self) -> list[int]:
        return [row["v"] for row in self.sink.rows]


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness(MemorySink(SinkSettings(batch_size=3, max_cached_rows=10)))
    yield made
    made.writer.close()


def test_rows_wait_until_a_checkpoint(harness: Harness) -> None:
    harness.writer.write(rows([0, 1]))
    assert harness.sink.rows == []
    harness.writer.on_system(Checkpoint(1))
    assert harness.values == [0, 10]


def test_no_call_gets_more_than_batch_size_rows(harness: Harness) -> None:
    harness.writer.write(rows(list(range(8))))
    harness.writer.flush()
    assert [len(batch) for batch in harness.sink.batches] == [3, 3, 2]
    assert harness.values == [offset * 10 for offset in range(8)]


def test_a_full_cache_flushes_at_once(harness: Harness) -> None:
    harness.writer.write(rows(list(range(10))))
    assert len(harness.sink.rows) == 10


def test_a_cache_with_too_many_bytes_flushes_at_once() -> None:
    made = Harness(MemorySink(SinkSettings(max_cached_bytes=10)))
    made.writer.write(rows([0]))
    assert made.values == [0]


def test_batches_never_mix_queues(harness: Harness) -> None:
    other = Queue("q1", "src")
    harness.writer.write(rows([0, 1]))
    harness.writer.write(rows([0], other))
    harness.writer.flush()
    assert [(batch.queue, len(batch)) for batch in harness.sink.batches] == [(QUEUE, 2), (other, 1)]


def test_stale_rows_are_flushed_without_a_thread(harness: Harness) -> None:
    harness.writer.write(rows([0]))
    harness.writer.flush_stale()
    assert harness.sink.rows == []
    harness.clock.advance(1.0)
    harness.writer.flush_stale()
    assert harness.values == [0]


def test_the_flush_thread_of_a_shard_bounds_staleness() -> None:
    flushed = threading.Event()

    class Told(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            super().batch_insert(batch)
            flushed.set()

    made = Harness(Told(SinkSettings(flush_interval=timedelta(seconds=5))), auto_flush=True)
    made.writer.write(rows([0]))
    assert flushed.wait(10), "the thread did not flush"
    assert made.clock.monotonic() == pytest.approx(5.0)
    made.writer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flush to_memory")]


def test_a_flush_thread_ends_also_when_it_is_told_so_while_it_goes_to_sleep() -> None:
    made = Harness(MemorySink(SinkSettings(flush_interval=timedelta(seconds=5))), auto_flush=True)
    made.writer.write(rows([0]))
    made.writer.flush()
    shard = made.writer._shards[QUEUE]
    thread, before = shard.thread, shard.waiting

    class ToldMeanwhile(threading.Event):
        def clear(self) -> None:
            shard.closing.set()
            self.set()
            super().clear()

    shard.waiting = ToldMeanwhile()
    before.set()
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    made.writer.close()


def test_an_error_in_the_flush_thread_is_raised_by_the_next_call() -> None:
    made = Harness(MemorySink(SinkSettings(flush_interval=timedelta(seconds=5))), auto_flush=True)
    made.sink.failures = [JobError("table is gone")]
    made.writer.write(rows([0]))
    thread = next(thread for thread in threading.enumerate() if thread.name.startswith("flush to_memory"))
    thread.join(10)
    with pytest.raises(JobError, match="table is gone"):
        made.writer.write(rows([1]))
    made.writer.close(flush=False)


def test_replayed_rows_are_dropped(harness: Harness) -> None:
    harness.writer.write(rows([0, 1, 2]))
    harness.writer.write(rows([1, 2, 3]))
    harness.writer.flush()
    assert harness.values == [0, 10, 20, 30]
    assert harness.writer.counts.duplicates_dropped == 2


def test_rows_of_one_record_are_told_apart_by_index(harness: Harness) -> None:
    harness.writer.write(rows([0, 0], indexes=[0, 1]))
    harness.writer.write(rows([0, 0], indexes=[1, 2]))
    harness.writer.flush()
    assert len(harness.sink.rows) == 3


def test_a_transactional_sink_says_what_it_has() -> None:
    made = Harness(MemoryTransactionalSink(stored={QUEUE: Position(1)}))
    made.writer.write(rows([0, 1, 2]))
    made.writer.flush()
    assert made.values == [20]
    assert isinstance(made.sink, MemoryTransactionalSink)
    assert made.sink.stored[QUEUE] == Position(2)


def test_a_stale_writer_asks_again_and_drops_what_the_other_wrote() -> None:
    stored: dict[Queue, Position] = {}
    made = Harness(MemoryTransactionalSink(stored=stored))
    made.writer.write(rows([0]))
    made.writer.flush()
    stored[QUEUE] = Position(2)  # somebody else wrote 1 and 2
    made.writer.write(rows([1, 2, 3]))
    made.writer.flush()
    assert made.values == [0, 30]


def test_retriable_errors_are_retried_with_doubling_waits(harness: Harness) -> None:
    harness.sink.failures = [RetriableError("busy"), RetriableError("busy"), RetriableError("busy")]
    harness.writer.write(rows([0]))
    harness.writer.flush()
    assert harness.values == [0]
    assert harness.clock.monotonic() == pytest.approx(0.1 + 0.2 + 0.4)
    assert harness.writer.counts.retries == 3


def test_a_sink_can_ask_for_a_longer_wait(harness: Harness) -> None:
    harness.sink.failures = [RetriableError("busy", after=timedelta(seconds=7))]
    harness.writer.write(rows([0]))
    harness.writer.flush()
    assert harness.clock.monotonic() == pytest.approx(7.0)


def test_a_sink_that_stays_away_fails_the_job_naming_sink_and_queue(harness: Harness) -> None:
    harness.sink.failures = [RetriableError("connection refused")] * 1000
    harness.writer.write(rows([0]))
    with pytest.raises(JobFailedError, match=r"connection refused.*plugin 'to_memory', queue 'src/q0'"):
        harness.writer.flush()
    assert harness.clock.monotonic() >= 120
    harness.sink.failures = []


def test_bad_rows_are_found_by_halving_and_their_neighbours_stored() -> None:
    class Picky(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            if any(row["v"] in (30, 50) for row in batch.rows()):
                raise ValueError("value not allowed")
            super().batch_insert(batch)

    made = Harness(Picky())
    made.writer.write(rows(list(range(8))))
    made.writer.flush()
    assert made.values == [0, 10, 20, 40, 60, 70]
    assert [(row["queue"], row["offset"], row["reason"], row["error"]) for row in made.dead] == [
        ("src/q0", 3, "value not allowed", "ValueError"),
        ("src/q0", 5, "value not allowed", "ValueError"),
    ]
    assert made.dead[0]["row"] == '{"v":30}'
    assert made.dead[0]["origin"] == "to_memory"


def test_a_job_error_is_not_blamed_on_the_rows(harness: Harness) -> None:
    harness.sink.failures = [JobError("no permission")]
    harness.writer.write(rows([0, 1]))
    with pytest.raises(JobError, match="no permission"):
        harness.writer.flush()
    assert harness.dead == []


def test_a_removed_queue_is_flushed_and_forgotten(harness: Harness) -> None:
    harness.writer.write(rows([5]))
    harness.writer.on_system(QueueRemoved(QUEUE))
    assert harness.values == [50]
    harness.writer.write(rows([1]))  # it comes back from an older position: this sink cannot know what it has
    harness.writer.flush()
    assert harness.values == [50, 10]


def test_the_sink_is_opened_at_the_first_row_and_closed_once() -> None:
    made = Harness(MemorySink())
    assert made.sink.opened == 0
    made.writer.write(rows([0]))
    assert made.sink.opened == 1
    made.writer.close()
    made.writer.close()
    assert made.sink.closed == 1
    assert made.values == [0]


def test_after_a_failure_nothing_more_is_written() -> None:
    made = Harness(MemorySink())
    made.writer.write(rows([0]))
    made.writer.close(flush=False)
    assert made.sink.rows == []


def test_rows_that_the_flush_thread_could_not_insert_are_never_taken_for_stored() -> None:
    sink = MemorySink(SinkSettings(flush_interval=timedelta(0)))
    sink.failures = [JobError("the table is gone")]
    harness = Harness(sink)
    harness.writer.write(rows([0]))
    [shard] = harness.writer._shards.values()
    free, flushed = threading.Event(), threading.Event()

    class SlowToComeBack:
        """The shard's lock: whoever gives it back in the flush thread stands still until the other thread was let in."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()
            if threading.current_thread() is thread:
                free.set()
                flushed.wait(10)

    shard.insert_lock = SlowToComeBack()  # type: ignore[assignment]
    thread = threading.Thread(target=harness.writer._flush_when_stale, args=(shard,))
    thread.start()
    assert free.wait(10)
    try:
        with pytest.raises(JobError, match="the table is gone"):
            harness.writer.on_system(Checkpoint(1))
    finally:
        flushed.set()
        thread.join()


def test_a_discarded_queue_is_not_written_any_more(harness: Harness) -> None:
    harness.writer.write(rows([0, 1]))
    harness.writer.write(rows([7], queue=Queue("q1", "src")))
    harness.writer.write(rows([0], queue=QUEUE.branched("dead-letters-x")))
    harness.writer.discard(QUEUE)
    harness.writer.flush()
    assert harness.values == [70]
    harness.writer.write(rows([1, 2]))
    harness.writer.flush()
    assert harness.values == [70, 10, 20]


def test_whatever_ends_a_flush_thread_is_raised_by_the_next_call() -> None:
    made = Harness(MemorySink(SinkSettings(flush_interval="1 s")), auto_flush=True)  # type: ignore[arg-type]
    made.writer.write(rows([0]))
    [shard] = made.writer._shards.values()
    assert shard.thread is not None
    shard.thread.join(10)
    with pytest.raises(AttributeError, match="total_seconds"):
        made.writer.write(rows([1]))
    made.writer.close(flush=False)
