"""The writer around a sink: one cache per shard, flushing, splitting, retrying, and dropping what was stored before.

write ─▶ cache of the queue ─▶ flush ─▶ split by batch_size ─▶ batch_insert
              ▲ max rows, max bytes, flush_interval, checkpoint     │ retriable: again, with back-off
              ╰ dedupe by (offset, index)                           ╰ else: halve, bad rows to dead letters;
                                                                      all rows alike: the sink is broken

With ``write_behind`` one thread inserts a full cache, while the caller continues: a sink waits for disks and servers.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.flow.dead_letters import of_rows
from headrace.flow.messages import (
    INDEX,
    OFFSET,
    Batch,
    Checkpoint,
    Position,
    Queue,
    QueueAdded,
    QueueRemoved,
    SystemMessage,
    position_of,
)
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import HeadraceError, JobError, JobFailedError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.foundation.retrying import Backoff, Tries, until_done
from headrace.interfaces.meter import NO_METER, Meter
from headrace.interfaces.metrics import SINK_RETRIES
from headrace.interfaces.sink import Sink, SinkBatch, StaleWriterError, TransactionalSink
from headrace.runtime.lane_figures import stored
from headrace.runtime.sink_faults import SinkFaults

if TYPE_CHECKING:
    import polars as pl

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: So many queues have a flush thread each; later queues share one, because each thread takes memory of the kernel.
_OWN_THREADS_MAX = 64
#: The shared thread looks at its queues so often at most.
_SHARED_LOOK_SECONDS = 0.05
#: How long a writer that was asked to stop continues to search the bad rows of a batch.
_STOP_SECONDS_MAX = 5.0


@dataclass
class WriterCounts:
    """What a writer has done so far. Rows."""

    written: int = 0
    duplicates_dropped: int = 0
    dead_letters: int = 0
    batches: int = 0
    retries: int = 0


@dataclass
class _ShardCache:
    """Rows of one queue that wait for insertion. ``lock`` guards the rows, ``insert_lock`` the order of insertion."""

    queue: Queue
    last: Position | None
    lock: threading.Lock = field(default_factory=lambda: threading.Lock())
    insert_lock: threading.Lock = field(default_factory=lambda: threading.Lock())
    waiting: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)
    frames: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    oldest_seconds: float = 0.0
    #: The greatest position that has entered the cache: rows at or before it are repeated and are dropped.
    seen: Position | None = None
    #: Why rows of the queue were not stored. Nothing behind them is from then on: positions of sinks would move behind them.
    failure: BaseException | None = None
    thread: threading.Thread | None = None


class SinkWriter:
    """Drives one sink in one process. A runtime makes one per sink node, gives it batches and system messages.

    ``write``, ``on_system``, ``flush`` and ``close`` are called by one thread; with ``auto_flush`` one thread per shard
    flushes rows that have waited for ``flush_interval``; with very many shards, most share one thread and wait for each other.
    With ``write_behind`` one thread of the writer flushes full caches, one at a time. If the next cache is full before
    that has ended, ``write`` waits. An error in such a thread is raised by the next call.
    """

    def __init__(
        self,
        sink: Sink,
        name: str,
        *,
        on_dead_letters: Callable[[Batch], None],
        clock: Clock | None = None,
        auto_flush: bool = True,
        write_behind: bool = False,
        stopping: threading.Event | None = None,
        meter: Meter = NO_METER,
    ) -> None:
        self.sink = sink
        self._meter = meter
        self.name = name
        self.counts = WriterCounts()
        self._on_dead_letters = on_dead_letters
        self._clock = clock or SystemClock()
        self._auto_flush = auto_flush
        self._stopping = stopping or threading.Event()
        self._stops_itself = stopping is None
        self._shards: dict[Queue, _ShardCache] = {}
        self._counts_lock = threading.Lock()
        self._sink_lock = contextlib.nullcontext() if sink.concurrent else threading.Lock()
        self._failure: BaseException | None = None
        self._faults = SinkFaults(sink, name)
        self._stop_seconds: float | None = None
        self._opened = False
        #: Queues without their own flush thread, and the thread that flushes them.
        self._sharing: dict[Queue, _ShardCache] = {}
        self._shared_thread: threading.Thread | None = None
        self._shared_waiting, self._shared_closing = threading.Event(), threading.Event()
        self._write_behind = write_behind
        #: Rows wait for nothing, so no thread is needed: each batch is inserted where it is given.
        self._at_once = auto_flush and not write_behind and not sink.settings.flush_interval
        self._inserter: ThreadPoolExecutor | None = None
        self._inserting: Future[None] | None = None

    def open(self) -> None:
        """Open the sink. Called by ``write`` when the runtime has not done so before."""
        if not self._opened:
            self.sink.open()
            self._opened = True

    def write(self, batch: Batch) -> None:
        """Put rows into the cache of their queue, and flush it if that fills it, or if the sink's ``flush_interval`` is 0.

        Blocks while it inserts: back-pressure.

        Of a full cache, whole batches are inserted; the rest stays in the cache.

        Rows at or before the greatest position seen of the queue are dropped: they are a replay.
        """
        self._raise_failure()
        if batch.frame.height == 0:
            return
        shard = self._shard(batch.queue)
        with shard.lock:
            frame = self._without_replayed(batch.frame, shard.seen)
            if frame.height == 0:
                return
            if not shard.frames:
                shard.oldest_seconds = self._clock.monotonic()
            shard.frames.append(frame)
            shard.rows += frame.height
            shard.bytes += int(frame.estimated_size())
            shard.seen = position_of(frame, -1)
            settings = self.sink.settings
            full = shard.rows >= settings.max_cached_rows or shard.bytes >= settings.max_cached_bytes
            if not self._at_once:
                shard.waiting.set()
                self._shared_waiting.set()
        if self._at_once:
            self._flush_shard(shard)
        elif full and self._write_behind:
            self._flush_behind(shard)
        elif full:
            self._flush_shard(shard, whole_batches=True)

    def on_system(self, message: SystemMessage) -> None:
        """Flush at a checkpoint; flush and drop the cache when a queue is removed."""
        if isinstance(message, Checkpoint):
            self.flush()
        elif isinstance(message, QueueRemoved):
            for queue in [q for q in self._shards if q == message.queue or self._is_branch(q, message.queue)]:
                self._drop(queue)
        elif isinstance(message, QueueAdded):
            self._raise_failure()

    def discard(self, queue: Queue) -> None:
        """Drop a queue and its branches with the rows that wait: another process writes them, from where it was committed."""
        self._end_insertion()
        for own in [q for q in self._shards if q == queue or self._is_branch(q, queue)]:
            shard = self._shards.pop(own)
            with shard.lock:
                shard.frames, shard.rows, shard.bytes = [], 0, 0
            self._end_thread(shard)
            self.sink.queue_removed(own)

    def flush(self) -> None:
        """Insert everything that waits. On return it is stored (or dead-lettered)."""
        self._end_insertion()
        self._raise_failure()
        for shard in list(self._shards.values()):
            self._flush_shard(shard)
        self._raise_failure()

    def flush_stale(self) -> None:
        """Insert the rows that have waited for ``flush_interval`` or longer: for runtimes without flush threads."""
        limit = self._clock.monotonic() - self.sink.settings.flush_interval.total_seconds()
        for shard in list(self._shards.values()):
            if shard.rows and shard.oldest_seconds <= limit:
                self._flush_shard(shard)

    def close(self, *, flush: bool = True) -> None:
        """End the threads and close the sink. First insert cached rows, unless the job has failed."""
        try:
            if flush:
                self.flush()
        finally:
            if not flush and self._stops_itself:
                self._stopping.set()  # writes in the background are not tried again, because the job stops
            self._end_shared_thread()
            for shard in self._shards.values():
                self._end_thread(shard)
            if self._inserter is not None:
                self._inserter.shutdown()
                self._inserter = self._inserting = None
            self._shards.clear()
            if self._opened:
                self.sink.close()
                self._opened = False

    def waiting_bytes(self) -> int:
        """Return the size in memory of the rows that wait in the caches."""
        return sum(shard.bytes for shard in list(self._shards.values()))

    def waiting_rows(self) -> int:
        """Return how many rows wait in the caches."""
        return sum(shard.rows for shard in self._shards.values())

    # ------------------------------------------------------------------------------------------------ shards

    def _shard(self, queue: Queue) -> _ShardCache:
        shard = self._shards.get(queue)
        if shard is None:
            self.open()
            last = self._stored_position(queue)
            shard = self._shards[queue] = _ShardCache(queue, last, seen=last)
            if self._auto_flush and not self._at_once:
                self._begin_thread(shard)
        return shard

    def _begin_thread(self, shard: _ShardCache) -> None:
        if len(self._shards) > _OWN_THREADS_MAX:
            self._sharing[shard.queue] = shard
            if self._shared_thread is None:
                run = partial(self._failing, self._flush_all_that_wait)
                self._shared_thread = threading.Thread(target=run, name=f"flush {self.name}", daemon=True)
                self._shared_thread.start()
            return
        name = f"flush {self.name} {shard.queue.id}"
        shard.thread = threading.Thread(target=self._flush_when_stale, args=(shard,), name=name, daemon=True)
        shard.thread.start()

    def _stored_position(self, queue: Queue) -> Position | None:
        if not isinstance(self.sink, TransactionalSink):
            return None
        sink = self.sink
        return self._retrying(lambda: sink.last_offset(queue), queue)

    @staticmethod
    def _is_branch(queue: Queue, of: Queue) -> bool:
        return bool(queue.branch) and (queue.source, queue.name) == (of.source, of.name)

    def _drop(self, queue: Queue) -> None:
        shard = self._shards[queue]
        self._end_insertion()
        self._flush_shard(shard)
        self._end_thread(shard)
        del self._shards[queue]
        self.sink.queue_removed(queue)

    def _end_thread(self, shard: _ShardCache) -> None:
        shard.closing.set()
        shard.waiting.set()
        if self._sharing.pop(shard.queue, None) is not None and threading.current_thread() is not self._shared_thread:
            with shard.insert_lock:  # the shared thread may be inserting its rows
                return
        if shard.thread is not None and shard.thread is not threading.current_thread():
            shard.thread.join()

    def _end_shared_thread(self) -> None:
        self._shared_closing.set()
        self._shared_waiting.set()
        if self._shared_thread is not None and threading.current_thread() is not self._shared_thread:
            self._shared_thread.join()
            self._shared_thread = None
        self._shared_closing.clear()

    def _flush_when_stale(self, shard: _ShardCache) -> None:
        """Run the flush thread of a shard."""
        self._failing(partial(self._flush_what_waits, shard))

    def _failing(self, work: Callable[[], None]) -> None:
        """Run a flush thread; whatever ends it early is raised by the next call of the writer."""
        try:
            work()
        except BaseException as error:  # handed to the thread that drives the job
            self._failure = self._failure or error

    def _flush_what_waits(self, shard: _ShardCache) -> None:
        interval = self.sink.settings.flush_interval.total_seconds()
        while True:
            shard.waiting.wait()
            if shard.closing.is_set():
                return
            with shard.lock:
                due = shard.oldest_seconds + interval - self._clock.monotonic() if shard.rows else 0.0
                if not shard.rows:
                    shard.waiting.clear()
                    if shard.closing.is_set():  # else the call that came just before the clearing would be missed
                        return
                    continue
            if due > 0:
                self._clock.wait(shard.closing, due)
                continue
            self._flush_shard(shard, in_thread=True)

    def _flush_all_that_wait(self) -> None:
        """Flush the queues that share a thread, each when its rows have waited for ``flush_interval``."""
        interval = self.sink.settings.flush_interval.total_seconds()
        while True:
            self._shared_waiting.wait()
            if self._shared_closing.is_set():
                return
            self._shared_waiting.clear()  # before the look: rows that come behind it set it again
            now, due = self._clock.monotonic(), float("inf")
            for shard in list(self._sharing.values()):
                with shard.lock:
                    left = shard.oldest_seconds + interval - now if shard.rows else float("inf")
                if left <= 0 and not shard.closing.is_set() and not self._shared_closing.is_set():
                    self._flush_shard(shard, in_thread=True)
                else:
                    due = min(due, left)
            if due < float("inf"):
                self._shared_waiting.set()
                self._clock.wait(self._shared_closing, max(due, _SHARED_LOOK_SECONDS))

    def _without_replayed(self, frame: pl.DataFrame, seen: Position | None) -> pl.DataFrame:
        import polars as pl

        if seen is None:
            return frame
        first = position_of(frame, 0)
        if first > seen:
            return frame
        fresh = frame.filter(
            (pl.col(OFFSET) > seen.offset) | ((pl.col(OFFSET) == seen.offset) & (pl.col(INDEX) > seen.index))
        )
        with self._counts_lock:
            self.counts.duplicates_dropped += frame.height - fresh.height
        return fresh

    # ------------------------------------------------------------------------------------------------ inserting

    def _flush_behind(self, shard: _ShardCache) -> None:
        """Let the thread of this writer flush a full cache, once it has ended with the one before."""
        self._end_insertion()
        self._raise_failure()
        if self._inserter is None:
            self._inserter = ThreadPoolExecutor(1, f"insert {self.name}")
        self._inserting = self._inserter.submit(self._insert_behind, shard)

    def _insert_behind(self, shard: _ShardCache) -> None:
        try:
            self._flush_shard(shard, in_thread=True, whole_batches=True)
        except BaseException as error:  # handed to the thread that drives the job
            self._failure = self._failure or error

    def _end_insertion(self) -> None:
        """Wait for the thread of this writer, if it inserts."""
        if self._inserting is not None:
            wait([self._inserting])
            self._inserting = None

    def _flush_shard(self, shard: _ShardCache, *, in_thread: bool = False, whole_batches: bool = False) -> None:
        """Insert what waits of a queue. ``whole_batches``: a last call with fewer rows than others is left for later."""
        import polars as pl

        size = self.sink.settings.batch_size
        with shard.insert_lock:
            if shard.failure is not None:
                raise shard.failure
            with shard.lock:
                frames, shard.frames = shard.frames, []
                shard.rows = shard.bytes = 0
            if not frames:
                return
            frame = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")
            left = frame.height % size if whole_batches and frame.height > size else 0
            if left:
                rest, frame = frame.slice(frame.height - left), frame.slice(0, frame.height - left)
                with shard.lock:
                    shard.frames.insert(0, rest)
                    shard.rows += left
                    shard.bytes += int(rest.estimated_size())
            try:
                for begin in range(0, frame.height, size):
                    self._insert(shard, frame.slice(begin, size))
            except BaseException as error:
                # Before the lock is free: another thread may wait for it with rows that come behind these.
                shard.failure = error
                if in_thread:  # and whoever waits for it must not take the rows for stored
                    self._failure = error
                raise

    def _insert(self, shard: _ShardCache, frame: pl.DataFrame) -> None:
        """Insert; halve on an error that is the rows' fault, until the bad rows are found.

        They go to the dead letters together, at the end. Before each call of a transactional sink those found so far go:
        its position moves behind them, so that a replay would not find them again. A sink that can check rows without
        storing them (``check_rows``) is asked for all bad rows first.
        """
        pending = [frame]
        refused: list[tuple[pl.DataFrame, Exception]] = []
        count, tried = 0, 0
        while pending:
            part = self._without_replayed(pending.pop(), shard.last)
            if part.height == 0:
                continue
            if refused and isinstance(self.sink, TransactionalSink):
                count, refused = count + len(refused), self._reject(shard, refused)
            if tried:
                self._check_stopping(shard, part)
            tried += 1
            try:
                self._insert_retrying(shard, part)
            except (JobError, JobFailedError, MemoryError):
                raise
            except Exception as error:  # the rows are to blame, or the sink is broken
                if part.height > 1:
                    good = self._sorted_out(shard, part)
                    pending += _halves(part) if good is None else good
                    continue
                offset = position_of(part, 0).offset
                self._faults.refused(error, shard.queue, offset)
                refused.append((part, error))
                if not pending:
                    self._faults.batch_refused(error, count + len(refused), shard.queue, offset)
        self._reject(shard, refused)

    def _sorted_out(self, shard: _ShardCache, rows: pl.DataFrame) -> list[pl.DataFrame] | None:
        """Store the bad rows as dead letters and return the others; None if the sink cannot tell, or finds none."""
        import polars as pl

        sink = self.sink
        if not isinstance(sink, TransactionalSink) or not sink.can_check_rows():
            return None
        pending: list[pl.DataFrame] = [rows]
        good: list[pl.DataFrame] = []
        refused: list[tuple[pl.DataFrame, Exception]] = []
        while pending:
            part = pending.pop()
            self._check_stopping(shard, part)
            batch = SinkBatch(shard.queue, part, shard.last, sink.writer_name)
            try:
                with self._sink_lock:
                    self._retrying(partial(sink.check_rows, batch), shard.queue)
            except (JobError, JobFailedError, MemoryError):
                raise
            except Exception as error:  # the rows are to blame, or the sink is broken
                if part.height > 1:
                    pending += _halves(part)
                    continue
                offset = position_of(part, 0).offset
                self._faults.refused(error, shard.queue, offset)
                refused.append((part, error))
                if len(refused) == rows.height:
                    self._faults.batch_refused(error, rows.height, shard.queue, offset)
            else:
                self._faults.accepted()
                good.append(part)
        if not refused:
            return None
        self._reject(shard, refused)
        return [pl.concat(good)] if good else []

    def _check_stopping(self, shard: _ShardCache, rows: pl.DataFrame) -> None:
        """Do not let a batch whose rows must be tried one by one keep a job from stopping."""
        if not self._stopping.is_set():
            return
        now = self._clock.monotonic()
        self._stop_seconds = now if self._stop_seconds is None else self._stop_seconds
        if now - self._stop_seconds >= _STOP_SECONDS_MAX:
            raise JobFailedError(
                f"stopped while sink {self.name!r} was inserting a batch in pieces to find its bad rows",
                plugin=self.name,
                queue=shard.queue.id,
                offset=position_of(rows, 0).offset,
                hint="rows without a checkpoint are read again at the next start",
            )

    def _insert_retrying(self, shard: _ShardCache, frame: pl.DataFrame) -> None:
        def insert(*, again: bool = True) -> None:
            fresh = self._without_replayed(frame, shard.last)
            if fresh.height == 0:
                return
            after = shard.last if isinstance(self.sink, TransactionalSink) else None
            batch = SinkBatch(shard.queue, fresh, after, self.sink.writer_name)
            try:
                with self._sink_lock:
                    begun = self._clock.monotonic()
                    try:
                        fault_point("sink.before_insert")
                        self.sink.batch_insert(batch)
                    except StaleWriterError:
                        if isinstance(self.sink, TransactionalSink):
                            shard.last = self.sink.last_offset(shard.queue)
                        raise
            except StaleWriterError:
                # At once: to be asked for its position can make a sink shut the other writer out. Two that wait equally long before
                # they write would shut each other out again and again.
                if not again or not isinstance(self.sink, TransactionalSink):
                    raise
                insert(again=False)
                return
            fault_point("sink.after_insert")
            if self._meter.enabled:
                stored(self._meter, self.name, shard.queue, fresh, self._clock.monotonic() - begun)
            shard.last = batch.last
            self._faults.stored()
            with self._counts_lock:
                self.counts.written += fresh.height
                self.counts.batches += 1

        self._retrying(insert, shard.queue)

    def _retrying(self, action: Callable[[], T], queue: Queue) -> T:
        settings = self.sink.settings

        def failed(error: RetriableError, tries: Tries) -> None:
            if self._stopping.is_set() or tries.waited_seconds >= settings.retry_timeout.total_seconds():
                raise JobFailedError(
                    f"sink {self.name!r} did not accept rows for {tries.waited_seconds:.1f} s: {error.message}",
                    plugin=self.name,
                    queue=queue.id,
                    hint="repair the server and start the job again: it continues from its checkpoint",
                ) from error
            pause = tries.pause_seconds
            logger.warning("sink %s, queue %s: %s; trying again in %.1f s", self.name, queue.id, error.message, pause)
            with self._counts_lock:
                self.counts.retries += 1
            self._meter.add(SINK_RETRIES, 1, self.name)

        backoff = Backoff(
            first_seconds=settings.retry_backoff.total_seconds(),
            seconds_max=settings.retry_backoff_max.total_seconds(),
            monotonic=self._clock.monotonic,
        )
        return until_done(
            action,
            clock=self._clock,
            stopping=self._stopping,
            retriable=RetriableError,
            failed=failed,
            backoff=backoff,
        )

    def _reject(
        self, shard: _ShardCache, refused: list[tuple[pl.DataFrame, Exception]]
    ) -> list[tuple[pl.DataFrame, Exception]]:
        """Give rows that the sink refused to the dead letters, all in one batch; return an empty list."""
        import polars as pl

        if refused:
            errors = [error for _, error in refused]
            reasons = [each.message if isinstance(each, HeadraceError) else str(each) or repr(each) for each in errors]
            with self._counts_lock:
                self.counts.dead_letters += len(refused)
            rows = pl.concat([row for row, _ in refused])
            self._on_dead_letters(of_rows(shard.queue, self.name, rows, reasons, [type(e).__name__ for e in errors]))
        return []

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


def _halves(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the rows in two parts, the first of them last: it is taken first."""
    middle = rows.height // 2
    return [rows.slice(middle), rows.slice(0, middle)]
