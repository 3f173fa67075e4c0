"""The writer around a sink: caching, flushing, splitting, retrying, bisecting, deduplicating."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Checkpoint, Position, Queue, QueueRemoved
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError, JobFailedError, RetriableError
from headrace.interfaces.sink import SinkBatch, SinkSettings, StaleWriterError
from headrace.runtime import sink_writer
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
    made.writer.close(flush=False)


def test_rows_wait_until_a_checkpoint(harness: Harness) -> None:
    harness.writer.write(rows([0, 1]))
    assert harness.sink.rows == []
    harness.writer.on_system(Checkpoint(1))
    assert harness.values == [0, 10]


def test_without_a_flush_interval_rows_are_inserted_at_once_by_no_other_thread() -> None:
    made = Harness(MemorySink(SinkSettings(batch_size=3, flush_interval=timedelta(0))), auto_flush=True)
    before = threading.active_count()
    made.writer.write(rows([0, 1, 2, 3]))
    assert made.values == [0, 10, 20, 30]
    made.sink.failures = [JobError("the table is gone")]
    with pytest.raises(JobError, match="the table is gone"):
        made.writer.write(rows([4]))
    with pytest.raises(JobError, match="the table is gone"):  # nothing is stored behind rows that are not
        made.writer.write(rows([5]))
    assert threading.active_count() == before
    made.writer.close(flush=False)
    assert made.values == [0, 10, 20, 30]


def test_no_call_gets_more_than_batch_size_rows(harness: Harness) -> None:
    harness.writer.write(rows(list(range(8))))
    harness.writer.flush()
    assert [len(batch) for batch in harness.sink.batches] == [3, 3, 2]
    assert harness.values == [offset * 10 for offset in range(8)]


def test_a_full_cache_flushes_at_once_but_for_a_batch_that_is_not_full(harness: Harness) -> None:
    harness.writer.write(rows(list(range(10))))
    assert harness.values == [offset * 10 for offset in range(9)]
    assert harness.writer.waiting_rows() == 1
    harness.writer.write(rows([10, 11]))
    harness.writer.flush()
    assert [len(batch) for batch in harness.sink.batches] == [3, 3, 3, 3]
    assert harness.values == [offset * 10 for offset in range(12)]


class Gate(MemorySink):
    """A sink that keeps its callers waiting until it is opened."""

    def __init__(self, settings: SinkSettings) -> None:
        super().__init__(settings)
        self.called, self.opened_gate = threading.Event(), threading.Event()

    def batch_insert(self, batch: SinkBatch) -> None:
        self.called.set()
        assert self.opened_gate.wait(60)
        super().batch_insert(batch)


def behind(sink: MemorySink) -> Harness:
    made = Harness(sink)
    made.writer = SinkWriter(
        sink, "to_memory", on_dead_letters=made._take, clock=made.clock, auto_flush=False, write_behind=True
    )
    return made


def test_a_full_cache_is_written_behind_while_the_next_one_is_filled() -> None:
    sink = Gate(SinkSettings(batch_size=3, max_cached_rows=3))
    made = behind(sink)
    made.writer.write(rows([0, 1, 2, 3]))  # would never return if it inserted itself
    assert sink.called.wait(60)
    made.writer.write(rows([4]))
    assert made.values == []
    sink.opened_gate.set()
    made.writer.on_system(Checkpoint(1))
    assert made.values == [0, 10, 20, 30, 40]
    assert [len(batch) for batch in sink.batches] == [3, 2]
    made.writer.close()


def test_an_error_of_what_is_written_behind_is_raised_by_the_next_call() -> None:
    calls: list[Callable[[Harness], object]] = [
        lambda made: made.writer.flush(),
        lambda made: made.writer.write(rows([9, 10, 11, 12])),
    ]
    for then in calls:
        sink = MemorySink(SinkSettings(batch_size=3, max_cached_rows=3))
        sink.failures = [JobError("the table is gone")]
        made = behind(sink)
        made.writer.write(rows([0, 1, 2]))
        with pytest.raises(JobError, match="the table is gone"):
            then(made)
        made.writer.close(flush=False)
        assert made.values == []


def test_bad_rows_of_what_is_written_behind_are_dead_letters_before_the_checkpoint() -> None:
    class Refusing(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            if 20 in batch.frame["v"]:
                raise ValueError("too hot")
            super().batch_insert(batch)

    made = behind(Refusing(SinkSettings(batch_size=4, max_cached_rows=4)))
    for offset in range(0, 12, 2):
        made.writer.write(rows([offset, offset + 1]))
    made.writer.on_system(Checkpoint(1))
    assert made.values == [offset * 10 for offset in range(12) if offset != 2]
    assert [letter["offset"] for letter in made.dead] == [2]
    made.writer.close()


def test_what_is_written_behind_has_ended_when_its_queue_is_dropped_or_the_writer_closed() -> None:
    ends: list[Callable[[SinkWriter], object]] = [
        lambda writer: writer.on_system(QueueRemoved(QUEUE)),
        lambda writer: writer.discard(QUEUE),
        lambda writer: writer.close(flush=False),
    ]
    for end in ends:
        sink = Gate(SinkSettings(batch_size=2, max_cached_rows=2))
        made = behind(sink)
        made.writer.write(rows([0, 1]))
        assert sink.called.wait(60)
        threading.Timer(0, sink.opened_gate.set).start()
        end(made.writer)
        assert made.values == [0, 10]
        made.writer.close()


def test_after_a_failure_a_sink_that_is_away_is_not_waited_for() -> None:
    waits, ended = threading.Event(), threading.Event()

    class Waiting(ManualClock):
        def wait(self, event: threading.Event, seconds: float) -> bool:
            waits.set()
            assert event.wait(60)
            ended.set()
            return True

    sink = MemorySink(SinkSettings(batch_size=2, max_cached_rows=2))
    sink.failures = [RetriableError("the server is away") for _ in range(100)]
    writer = SinkWriter(
        sink, "to_memory", on_dead_letters=lambda _: None, clock=Waiting(), auto_flush=False, write_behind=True
    )
    writer.write(rows([0, 1]))
    assert waits.wait(60)
    writer.close(flush=False)
    assert ended.is_set()
    assert sink.rows == []


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
    sink = MemorySink(SinkSettings(flush_interval=timedelta(microseconds=1)))
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


class Counting(MemorySink):
    """A sink that tells when it has so many rows."""

    def __init__(self, wanted: int) -> None:
        super().__init__(SinkSettings(flush_interval=timedelta(seconds=1)))
        self.wanted, self.all_came = wanted, threading.Event()

    def batch_insert(self, batch: SinkBatch) -> None:
        super().batch_insert(batch)
        if len(self.rows) == self.wanted:
            self.all_came.set()


def _flush_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("flush to_memory")]


def test_very_many_queues_share_a_flush_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "_OWN_THREADS_MAX", 2)
    sink = Counting(100)
    made = Harness(sink, auto_flush=True)
    before = len(_flush_threads())
    queues = [Queue(f"q{number}", "src") for number in range(50)]
    for offset in range(2):
        for queue in queues:
            made.writer.write(rows([offset], queue=queue))
    assert len(_flush_threads()) == before + 3
    assert sink.all_came.wait(60)  # nobody flushes but the threads
    for queue in queues:
        made.writer.on_system(QueueRemoved(queue))
    made.writer.close()
    assert len(_flush_threads()) == before
    assert sorted(made.values) == [0] * 50 + [10] * 50


def test_a_queue_is_dropped_when_the_shared_thread_has_inserted_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "_OWN_THREADS_MAX", 0)
    sink = Gate(SinkSettings(flush_interval=timedelta(microseconds=1)))
    made = Harness(sink, auto_flush=True)
    made.writer.write(rows([0]))
    assert sink.called.wait(60)
    dropping = threading.Thread(target=made.writer.discard, args=(QUEUE,))
    dropping.start()
    dropping.join(0.05)
    assert dropping.is_alive()
    sink.opened_gate.set()
    dropping.join(60)
    assert made.values == [0]
    made.writer.close()


def test_an_error_in_the_shared_thread_is_raised_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "_OWN_THREADS_MAX", 0)
    sink = MemorySink(SinkSettings(flush_interval=timedelta(microseconds=1)))
    sink.failures = [JobError("the table is gone")]
    made = Harness(sink, auto_flush=True)
    made.writer.write(rows([0]))
    thread = made.writer._shared_thread
    assert thread is not None
    thread.join(60)
    with pytest.raises(JobError, match="the table is gone"):
        made.writer.write(rows([1]))
    made.writer.close(flush=False)


def test_a_writer_that_was_closed_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "_OWN_THREADS_MAX", 0)
    sink = Counting(2)
    made = Harness(sink, auto_flush=True)
    for offset in range(2):
        made.writer.write(rows([offset]))
        made.writer.close()
    assert made.values == [0, 10]


@pytest.mark.parametrize("whole_cache", [True, False])
def test_behind_rows_that_were_not_stored_nothing_is_stored(whole_cache: bool) -> None:
    """The rest of a full cache waits for the next call, and rows may have come meanwhile: the position would move past what is lost."""
    sink = MemoryTransactionalSink(SinkSettings(batch_size=2, max_cached_rows=3, flush_interval=timedelta(0)))
    sink.failures = [JobError("the topic is gone")]
    harness = Harness(sink)
    if whole_cache:
        with pytest.raises(JobError, match="the topic is gone"):
            harness.writer.write(rows([0, 1, 2]))
    else:
        harness.writer.write(rows([0]))
        with pytest.raises(JobError, match="the topic is gone"):
            harness.writer.flush()
        harness.writer.write(rows([1]))
    for flush in (harness.writer.flush_stale, harness.writer.flush):
        with pytest.raises(JobError, match="the topic is gone"):
            flush()
    harness.writer.close(flush=False)
    assert harness.values == []
    assert sink.last_offset(QUEUE) is None


class Fencing(MemoryTransactionalSink):
    """As a topic that is written in transactions: who asks for its position shuts out whoever asked before."""

    def __init__(self, stored: dict[Queue, Position], owners: dict[Queue, MemorySink]) -> None:
        super().__init__(SinkSettings(max_cached_rows=1, retry_timeout=timedelta(0)), stored)
        self.owners = owners

    def batch_insert(self, batch: SinkBatch) -> None:
        if self.owners.get(batch.queue) is not self:
            raise StaleWriterError("another writer has taken over", queue=batch.queue.id)
        super().batch_insert(batch)

    def last_offset(self, queue: Queue) -> Position | None:
        self.owners[queue] = self
        return super().last_offset(queue)


def test_two_writers_that_shut_each_other_out_do_not_do_so_for_ever() -> None:
    """Both believe that the queue is theirs, and try again after equal times, one shortly after the other."""
    stored: dict[Queue, Position] = {}
    owners: dict[Queue, MemorySink] = {}
    one, two = (Harness(Fencing(stored, owners)) for _ in range(2))
    one.writer.write(rows([0]))
    two.writer.write(rows([0, 1]))
    one.writer.write(rows([1, 2]))
    two.writer.write(rows([2]))
    assert (one.values, two.values) == ([0, 20], [10])
