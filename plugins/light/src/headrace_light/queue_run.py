"""One queue being read: its reader, its lane, and how far it is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError, DataError, JobFailedError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.foundation.retrying import Backoff
from headrace.interfaces.backend import QueueStatus
from headrace.interfaces.source import Reader
from headrace.runtime.lane import Delivery, Lane

logger = logging.getLogger(__name__)
_REPEAT_WAIT = timedelta(seconds=30)


class QueueRun:
    """Polls one queue through its lane. ``bounded``: it is done at the end that the queue had when it was opened.

    A queue whose end is unknown, because it is damaged before it, is read until the reader reports the damage.
    """

    def __init__(self, queue: Queue, reader: Reader, lane: Lane, *, bounded: bool, clock: Clock) -> None:
        self.queue = queue
        self.lane = lane
        self.position: ReadPosition = reader.position
        self._reader = reader
        self._latest: int | None = None
        self._bounded = bounded
        try:
            self._latest = reader.latest
        except BrokenQueueError as error:  # the records before the damage come first
            logger.debug("queue %s: its end is not known: %s", queue.id, error.message)
        self._end = self._latest if bounded else None
        #: Whether it was set aside (kept by the engine): a bounded run does not wait for it.
        self.broken = False
        self._records = 0
        self._away_since: float | None = None
        self._backoff = Backoff(monotonic=clock.monotonic)
        self._closed = False
        self._clock = clock
        #: The batch that was read but could not be processed by the lane yet.
        self._unfinished: RawBatch | None = None
        #: With worker processes: the next position to read, and records that were read but not processed yet, with their position.
        self._read_to: ReadPosition = self.position
        self._again: deque[tuple[ReadPosition, RawBatch]] = deque()
        #: Before this offset ranges are read here: another process could not, or a server that an operator needs was away.
        self._here_until = -1
        self._operator_away = False
        #: When records came last, and whether the keyed stages were told that none come (kept by the engine).
        self.heard_seconds = 0.0
        self.idle = False
        #: Whether the last try to read gave nothing. After one that gave records there may be more: the queue is not silent, however
        #: long the records of all queues take.
        self.found_nothing = False

    @property
    def end(self) -> int | None:
        """Before which offset a bounded run ends; None: it does not."""
        return self._end

    @property
    def done(self) -> bool:
        """Whether a bounded run has reached its end."""
        if self.broken and self._bounded:
            return True
        return self._end is not None and self.position.offset >= self._end

    @property
    def at_latest(self) -> bool:
        """Whether everything has been read that the queue held when it was last asked."""
        return self._latest is not None and self.position.offset >= self._latest

    def poll(
        self,
        max_records: int,
        wait: timedelta,
        on_read: Callable[[Queue, ReadPosition, ReadPosition], None],
        *,
        came: Callable[[Queue, RawBatch], None] | None = None,
        first: Callable[[QueueRun], None] | None = None,
    ) -> Sequence[Delivery] | None:
        """Read and process the next records; None if there were none. Before that ``on_read`` gets the range, ``came`` the batch.

        ``first`` is called before these, when there are records. It may look for records of other queues.

        A group may take the queue away while its reader looks for records: then the run is closed, and what the reader
        still gives belongs to the queue's next owner, who begins at what was committed.
        """
        start = self.position
        raw = self._unfinished
        if raw is None:
            raw = self._polled(start, max_records, wait)
        if self._closed:
            return None
        self.found_nothing = raw is None
        if raw is None:
            self._works()
            self.position = self._reader.position
            return None
        self._unfinished = raw
        if first is not None:
            first(self)
            if self._closed:
                return None
        on_read(self.queue, start, raw.next_position)
        if came is not None:
            came(self.queue, raw)
        # The server of a function or table may be unavailable: the same records are processed again, and none after them.
        try:
            deliveries = self.lane.process(raw) if len(raw) else []
        except RetriableError:
            self.lane.take_shipments()  # they come again
            raise
        self._unfinished = None
        self._works()
        self.position = raw.next_position
        self._records += len(raw)
        return deliveries

    def look(self, max_records: int, *, ahead: bool) -> bool:
        """Return whether there are records, and keep the read ones for the next ``poll``, or ``read_ahead`` if ``ahead``.

        Raises as readers do.
        """
        if self._unfinished is not None or self._again:
            return True
        if ahead:
            found = self.read_ahead(max_records, timedelta(0), outstanding=False)
            if found is not None:
                self._again.append(found)
            return found is not None
        raw = self._polled(self.position, max_records, timedelta(0))
        if raw is None or self._closed:
            return False
        self._unfinished, self.found_nothing = raw, False
        return True

    def _polled(self, start: ReadPosition, max_records: int, wait: timedelta) -> RawBatch | None:
        """Return the records of the reader from ``start``, its present position; none beyond the end of a bounded run."""
        if self._end is not None:
            max_records = min(max_records, self._end - start.offset)
        raw = self._reader.poll(max_records, wait)
        fault_point("reader.after_poll")
        return raw

    # ------------------------------------------------------------------------------------------ with worker processes

    def read_ahead(
        self, max_records: int, wait: timedelta, *, outstanding: bool
    ) -> tuple[ReadPosition, RawBatch] | None:
        """Return the next records and where they begin, without processing them; None when there are none.

        ``outstanding``: whether records that were returned before are not taken yet.
        """
        if self._again:
            return self._again.popleft()
        if not outstanding:
            self._read_to = self.position
        start = self._read_to
        if self._end is not None and start.offset >= self._end:
            return None
        raw = self._polled(start, max_records, wait)
        if self._closed:
            return None
        self.found_nothing = raw is None
        if not outstanding:  # else the lane may still say that a server is away
            self._works()
        if raw is None:
            self._read_to = self._reader.position
            if not outstanding:
                self.position = self._read_to
            return None
        self._read_to = raw.next_position
        return start, raw

    def plan_ahead(self, max_records: int, *, outstanding: bool) -> tuple[ReadPosition, ReadPosition] | None:
        """Return begin and end of a range of the next records, for another process to read, and continue after it.

        None if records are read here by ``read_ahead``: near the known end of the queue, and if a reader says so.
        """
        if self._again:
            return None
        if not outstanding:
            self._read_to = self.position
        start, known = self._read_to, self._latest if self._end is None else self._end
        if start.offset < self._here_until or known is None or known - start.offset < max_records:
            return None
        end = self._reader.skip_range(max_records)
        if end is None or self._closed:
            return None
        self._read_to, self.found_nothing = end, False
        return start, end

    def taken(self, position: ReadPosition, records: int) -> None:
        """What was made of so many records has been taken: the position is behind them."""
        self._works()
        self.position = position
        self._records += records

    def take_back(self, batches: Sequence[tuple[ReadPosition, RawBatch]]) -> None:
        """Return these records again before others: they could not be processed."""
        self._again.extendleft(reversed(batches))

    def go_back(self, start: ReadPosition, end: ReadPosition, *, operator_away: bool) -> None:
        """Read from ``start`` again; records before ``end`` in this process. ``operator_away``: the reason for the repetition."""
        self._again.clear()
        self._reader.seek(start)
        self._read_to, self._here_until, self._operator_away = start, end.offset, operator_away

    def _works(self) -> None:
        self._away_since = None
        self._operator_away = False
        self._backoff.succeeded()

    def read_again(self, start: ReadPosition, end: ReadPosition, max_records: int) -> Sequence[Delivery]:
        """Read and process a range that was read before a crash. Raises DataError when it is not there any more.

        The reader may give it in other pieces than then: it is processed as one, as it was.
        """
        if self.position != start:
            self._reader.seek(start)
            self.position = start
        self._reader.limit(end)
        pieces: list[RawBatch] = []
        until = self._clock.monotonic() + _REPEAT_WAIT.total_seconds()
        while self.position.offset < end.offset:
            raw = self._reader.poll(min(max_records, end.offset - self.position.offset), _REPEAT_WAIT)
            if raw is None and self._clock.monotonic() < until and self._reader.latest > self.position.offset:
                continue  # a reader that shares its connection returns early when records of other queues come
            if raw is None:
                raise DataError(
                    f"records {start.offset} to {end.offset} were read before, but the queue now has no records after "
                    f"{self.position.offset}",
                    queue=self.queue.id,
                    offset=self.position.offset,
                    hint="restore the input, or start with a new checkpoint directory",
                )
            pieces.append(raw.until(end))
            self.position = pieces[-1].next_position
            until = self._clock.monotonic() + _REPEAT_WAIT.total_seconds()
        self._records += sum(map(len, pieces))
        pieces = [piece for piece in pieces if len(piece)]
        return self.lane.process(RawBatch.joined(pieces)) if pieces else []

    def go_on_with(self, reader: Reader) -> None:
        """Continue with another reader: the one before was limited to the range that was read again."""
        self._reader.close()
        self._reader = reader
        self._read_to = self.position
        self._again.clear()

    def pause(self, error: RetriableError, now: float, retry_seconds: float) -> None:
        """The server is not available: do not poll the queue for a while. Raises JobFailedError when this has lasted too long."""
        self.found_nothing = self._what_is_away == "source"
        if self._away_since is None:
            self._away_since = now
            logger.warning("queue %s: %s; trying again", self.queue.id, error.message)
        if now - self._away_since >= retry_seconds:
            raise JobFailedError(
                f"the {self._what_is_away} was not available for {now - self._away_since:.0f} s: {error.message}",
                plugin=self.queue.source,
                queue=self.queue.id,
                offset=self.position.offset,
                hint="repair the server and start the job again: it continues from its checkpoint",
            ) from error
        self._backoff.failed()

    @property
    def _what_is_away(self) -> str:
        comes_again = self._unfinished is not None or bool(self._again) or self._operator_away
        return "server that an operator uses" if comes_again else "source"

    @property
    def paused(self) -> bool:
        """Whether the queue must not be polled for now."""
        return self._backoff.remaining_seconds() > 0

    def refresh_latest(self) -> bool:
        """Ask the reader for the queue's end, for the lag; return whether it answers."""
        try:
            self._latest = self._reader.latest
        except RetriableError as error:
            logger.debug("queue %s: the lag is not known: %s", self.queue.id, error.message)
            return False
        except BrokenQueueError as error:  # the next poll says so; other queues of the source can be asked
            logger.debug("queue %s: the lag is not known: %s", self.queue.id, error.message)
        return True

    def status(self) -> QueueStatus:
        """Return how far the queue is."""
        return QueueStatus(self.queue.id, self.position.offset, self._latest, self._records)

    def close(self) -> None:
        """Close lane and reader. May be called twice, and from within the reader's ``poll``."""
        self._closed = True
        self.lane.close()
        self._reader.close()


class QueueFigures:
    """The status of queues, also of those that were removed. Used by the engine."""

    def __init__(self) -> None:
        self._finished: dict[str, QueueStatus] = {}

    def finish(self, run: QueueRun) -> None:
        """Keep the figures of a queue, together with those from before it was removed and came back."""
        status = run.status()
        self._finished[run.queue.id] = self._with_before(status, self._finished)

    def statuses(self, runs: Iterable[QueueRun]) -> tuple[QueueStatus, ...]:
        """Return the status of all queues; of those that are read, the present one."""
        found = dict(self._finished)
        for run in list(runs):
            status = run.status()
            found[status.queue] = self._with_before(status, found)
        return tuple(found.values())

    @staticmethod
    def _with_before(status: QueueStatus, known: Mapping[str, QueueStatus]) -> QueueStatus:
        before = known.get(status.queue)
        return replace(status, records=status.records + (before.records if before else 0))


def with_dead_letters(queues: Iterable[QueueStatus], counts: Mapping[str, int]) -> tuple[QueueStatus, ...]:
    """Return the queues with how many dead letters came from each."""
    return tuple(replace(queue, dead_letters=counts.get(queue.queue, 0)) for queue in queues)
