"""Reads queues from given offsets on, any number at once, without a consumer group's help."""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal

from headrace.foundation.retrying import Backoff

from headrace_rocketmq.batch import BatchDecoder, MessageBatch
from headrace_rocketmq.codes import MASTER_BROKER_ID, PullFlag, RequestCode, ResponseCode
from headrace_rocketmq.compression import BODY_BYTES_MAX
from headrace_rocketmq.connection import Request
from headrace_rocketmq.errors import (
    BrokerError,
    ClientClosedError,
    ConfigurationError,
    OffsetOutOfRangeError,
    QueueUnavailableError,
    RocketMQError,
    TopicNotFoundError,
)
from headrace_rocketmq.fetch import Answer, Pull, QueueFetch
from headrace_rocketmq.filters import Filter, check_filter
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.remoting import Remoting
from headrace_rocketmq.routes import MessageQueue, RouteTable

logger = logging.getLogger("headrace_rocketmq")

PULL_MESSAGES_MAX = 32
"""What brokers give at most in one answer, unless configured otherwise (maxTransferCountOnMessageInMemory)."""

# Brokers look for suspended pulls that are over every 5 s only; the remaining time is for a slow network.
_ANSWER_MARGIN_S = 15.0
_INDEX_DELAY_S = 5.0
# While it stops, a broker's store gives nothing, and the broker says "system error"; after a restart it has to hear of
# a subscription again. Brokers of 4.x also say "system error" to what is wrong for good.
_PASSING_CODES = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.FILTER_DATA_NOT_LATEST}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Options of a reader. The defaults suit both a reader that is far behind and one that waits for new messages."""

    window: int = 16
    """Pulls kept under way for each queue, their answers included until they are polled: what bounds memory, to about
    window × 256 KiB a queue. Filtered queues always have one."""
    pull_messages_max: int = PULL_MESSAGES_MAX
    """Messages asked for in one pull; more than the broker gives is pointless without a filter. With a filter that
    leaves out nearly everything, a few thousand let the broker look further in one pull."""
    suspend: timedelta = timedelta(seconds=15)
    """How long a broker holds a pull while there is no message. It looks at the clock every 5 s only."""
    out_of_range: Literal["raise", "follow"] = "raise"
    """What to do when a queue no longer has an offset, or does not get it within 5 s: raise OffsetOutOfRangeError,
    or continue at the broker's offset, which loses or repeats messages silently."""
    outage: timedelta = timedelta(minutes=5)
    """How long a queue may be unreadable (for example because its broker is down) before QueueUnavailableError is raised."""
    body_bytes_max: int = BODY_BYTES_MAX
    """Bodies that are larger after decompression are reported in MessageBatch.errors."""

    def __post_init__(self) -> None:
        for name in ("window", "pull_messages_max", "body_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, but must be at least 1")


@dataclass(slots=True, eq=False)
class _Source:
    """The state of one queue in the reader."""

    fetch: QueueFetch
    backoff: Backoff
    broker_id: int = MASTER_BROKER_ID
    failing_since: float | None = None
    ahead_since: float | None = None
    """Since when the broker says that the queue ends before our offset."""
    leftover: MessageBatch | None = None
    failure: RocketMQError | None = None
    """Why the last pull that was answered, or could not be sent, failed; None if it did not."""
    error: RocketMQError | None = None
    """What the next poll raises."""
    taken: list[Answer] = field(default_factory=list)


class Reader:
    """Pulls from its queues and gives their messages, each queue in order. Made by Client.reader.

    Used by one thread; only `close` may be called from another. Offsets are not committed: the caller stores
    `MessageBatch.next_offset` itself or on the broker (Client.commit_offsets). After the restart of a broker, a reader
    continues at its position.
    """

    def __init__(
        self, remoting: Remoting, routes: RouteTable, group: str, message_filter: Filter, options: ReaderOptions
    ) -> None:
        self._remoting = remoting
        self._routes = routes
        self._group = group
        self._filter = message_filter
        self._options = options
        self._suspend_s = options.suspend.total_seconds()
        self._sources: dict[MessageQueue, _Source] = {}
        self._arrived = threading.Event()
        #: Called when the broker has answered a pull, by the thread that reads the connection: it must be quick.
        self.on_arrival: Callable[[], None] = lambda: None
        self._closed = False
        self._interrupted = False
        self._checked_brokers: set[str] = set()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues being read, sorted."""
        return sorted(self._sources)

    def add(self, queue: MessageQueue, offset: int, *, end_offset: int | None = None) -> None:
        """Read one more queue, from `offset` on, up to but not including `end_offset` if that is given.

        With an SQL92 filter, the broker is asked about it first: raises FilterRejectedError, and what calls raise.
        """
        if offset < 0:
            raise ConfigurationError(f"the offset {offset} for {queue} is negative")
        if self._filter.needs_check and queue.broker_name not in self._checked_brokers:
            check_filter(self._remoting, self._routes.master_address(queue), self._group, queue.topic, self._filter)
            self._checked_brokers.add(queue.broker_name)
        fetch = QueueFetch(
            queue,
            offset,
            end_offset=end_offset,
            window=self._options.window,
            pull_messages_max=self._options.pull_messages_max,
            is_dense=self._filter.is_everything,
        )
        self._sources[queue] = _Source(
            fetch, Backoff(first_seconds=0.1, seconds_max=2.0, monotonic=self._remoting.clock, jitter=random.random)
        )

    def remove(self, queue: MessageQueue) -> None:
        """Stop reading a queue; messages that were pulled but not polled are dropped. KeyError if it is not read."""
        del self._sources[queue]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of a queue; messages that were pulled but not polled are dropped. KeyError if it is not read."""
        source = self._sources[queue]
        source.leftover = source.error = None
        source.fetch.restart(offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll gives. KeyError if the queue is not read."""
        source = self._sources[queue]
        return source.fetch.position if source.leftover is None else int(source.leftover.offsets[0])

    def is_finished(self, queue: MessageQueue) -> bool:
        """Whether all up to the end offset has been polled. KeyError if the queue is not read."""
        source = self._sources[queue]
        return source.leftover is None and source.fetch.is_finished

    def failure(self, queue: MessageQueue) -> RocketMQError | None:
        """Why the queue cannot be read at present, although the reader tries again; None if there is no known error.

        After an outage the failure stays until an answer comes: at the next message, or after `ReaderOptions.suspend`.
        KeyError if the queue is not read.
        """
        return self._sources[queue].failure

    def is_pausing(self, queue: MessageQueue) -> bool:
        """Whether, after a failure, the next poll would not ask the queue's broker yet. KeyError if the queue is not read."""
        return self._sources[queue].backoff.remaining_seconds() > 0

    def postpone(self, queue: MessageQueue) -> None:
        """Say that the queue's broker was found to be away, by another request: the next pull is a little later. KeyError as above."""
        self._sources[queue].backoff.failed()

    def poll(self, max_messages: int, timeout: timedelta) -> list[MessageBatch]:
        """What has come, at most `max_messages` in all, one batch for each queue that has any; waits for the first.

        Gives an empty list after `timeout` (opening a connection may take longer), and at once when all queues are
        finished. A batch may be empty: its `next_offset` then tells that the filter left out all that was there.
        Raises errors that waiting does not repair: OffsetOutOfRangeError, TopicNotFoundError, PermissionDeniedError,
        FilterRejectedError, GroupNotFoundError, QueueUnavailableError after a long outage, ClientClosedError. Polling
        again tries again.
        """
        if max_messages < 1:
            raise ConfigurationError(f"max_messages is {max_messages}, but must be at least 1")
        clock = self._remoting.clock
        deadline = clock() + timeout.total_seconds()
        while True:
            if self._closed or self._remoting.closed.is_set():
                raise ClientClosedError("the reader is closed")
            self._raise_error()
            self._arrived.clear()
            interrupted, self._interrupted = self._interrupted, False
            batches, budget = self._leftovers(max_messages)
            self._collect(budget, {batch.queue for batch in batches})
            self._send_pulls()  # before decoding, so that the broker works at the same time
            batches += self._decode(budget)
            if batches:
                return batches
            self._raise_error()
            remaining_s = deadline - clock()
            if interrupted or remaining_s <= 0 or all(source.fetch.is_finished for source in self._sources.values()):
                return []
            self._arrived.wait(min([remaining_s, *self._pauses()]))

    def interrupt(self) -> None:
        """Make a waiting poll, or else the next one, return even without messages. Any thread may call it."""
        self._interrupted = True
        self._arrived.set()

    def close(self) -> None:
        """Stop reading; a waiting poll raises ClientClosedError. The broker drops suspended pulls after a while."""
        self._closed = True
        self._arrived.set()

    def _leftovers(self, budget: int) -> tuple[list[MessageBatch], int]:
        batches = []
        for source in self._sources.values():
            if source.leftover is not None and budget > 0:
                batch, source.leftover = _split(source.leftover, budget)
                batches.append(batch)
                budget -= len(batch)
        return batches, budget

    def _collect(self, budget: int, skip: AbstractSet[MessageQueue]) -> None:
        # Answers are counted by what they may hold; so only the first can exceed the budget, and is then split.
        nothing_taken = not skip
        for queue in list(self._sources):
            source = self._sources[queue]
            if queue in skip or source.leftover is not None:
                continue
            while source.error is None and (bound := source.fetch.messages_bound):
                if bound > budget and not nothing_taken:
                    return
                try:
                    answer = source.fetch.collect()
                except RocketMQError as error:
                    self._note_failure(source, error)
                    break
                assert answer is not None  # messages_bound said so
                self._note_success(source, answer)
                source.taken.append(answer)
                budget -= bound
                nothing_taken = False
            if source.taken:  # this queue goes to the end, so that one busy queue does not block the others
                self._sources[queue] = self._sources.pop(queue)

    def _send_pulls(self) -> None:
        by_broker: dict[tuple[str, int], list[tuple[_Source, Pull]]] = defaultdict(list)
        for queue, source in self._sources.items():
            if source.error is None and source.backoff.remaining_seconds() == 0:
                due = source.fetch.due_pulls()
                by_broker[queue.broker_name, source.broker_id] += [(source, pull) for pull in due]
        for pulls in by_broker.values():
            if not pulls:
                continue
            first = pulls[0][0]
            try:
                address = self._routes.address(first.fetch.queue, first.broker_id)
                connection = self._remoting.pool.get(address)
            except RocketMQError as error:
                for source in {id(source): source for source, _ in pulls}.values():
                    source.fetch.restart(source.fetch.position)
                    self._note_failure(source, error)
                continue
            connection.start([self._request(source.fetch.queue, pull) for source, pull in pulls])

    def _request(self, queue: MessageQueue, pull: Pull) -> Request:
        flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if pull.suspend else 0)
        fields = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(pull.offset),
            "maxMsgNums": str(pull.messages_max),
            "sysFlag": str(int(flags)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(round(self._suspend_s * 1000)),
            **self._filter.pull_fields(),
        }
        timeout_s = _ANSWER_MARGIN_S + (self._suspend_s if pull.suspend else 0.0)
        return Request(RequestCode.PULL_MESSAGE, fields, partial(self._set_outcome, pull), timeout_s=timeout_s)

    def _set_outcome(self, pull: Pull, outcome: Frame | RocketMQError) -> None:
        pull.outcome = outcome
        self._arrived.set()
        self.on_arrival()

    def _decode(self, budget: int) -> list[MessageBatch]:
        batches = []
        for source in self._sources.values():
            taken, source.taken = source.taken, []
            if not taken:
                continue
            start = taken[0].offset
            try:
                batch = self._decode_answers(source.fetch.queue, taken, source.fetch.end_offset)
            except RocketMQError as error:
                source.fetch.restart(start)
                source.error = error
                continue
            if len(batch) > budget:
                batch, source.leftover = _split(batch, budget)
            budget -= len(batch)
            if len(batch) or batch.next_offset > start:
                batches.append(batch)
        return batches

    def _decode_answers(self, queue: MessageQueue, answers: list[Answer], end_offset: int | None) -> MessageBatch:
        decoder = BatchDecoder(queue, self._options.body_bytes_max)
        for answer in answers:
            decoder.add(answer.body)
        last = answers[-1]
        batch = decoder.finish(
            next_offset=last.next_offset if end_offset is None else min(last.next_offset, end_offset),
            earliest_offset=last.earliest_offset,
            latest_offset=last.latest_offset,
        )
        # A batch stored as one message may begin before the offset asked for, and a filtered answer may run over the end.
        return self._filter.apply(batch.growing(answers[0].offset, batch.next_offset))

    def _note_success(self, source: _Source, answer: Answer) -> None:
        source.failing_since = source.ahead_since = source.failure = None
        source.broker_id = answer.suggested_broker_id
        if source.fetch.made_progress:
            source.backoff.succeeded()
        else:
            source.backoff.failed()  # the broker has nothing and does not wait; do not ask in a tight loop

    def _note_failure(self, source: _Source, error: RocketMQError) -> None:
        queue = source.fetch.queue
        if isinstance(error, OffsetOutOfRangeError):
            self._note_out_of_range(source, error)
            return
        is_passing = error.retriable or (
            type(error) is BrokerError and error.code in _PASSING_CODES and "illegal" not in error.remark
        )
        if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.forget(queue.topic)
            error = TopicNotFoundError(queue.topic, f"broker {queue.broker_name}")
        if not is_passing:
            source.error = error
            return
        source.failure = error
        now = self._remoting.clock()
        if source.failing_since is None:
            source.failing_since = now
            logger.warning("%s cannot be read at offset %d, trying again: %s", queue, source.fetch.position, error)
        outage_s = now - source.failing_since
        if outage_s >= self._options.outage.total_seconds():
            source.failing_since = None
            source.error = QueueUnavailableError(queue, outage_s, error)
            source.error.__cause__ = error
        source.backoff.failed()
        source.broker_id = MASTER_BROKER_ID

    def _note_out_of_range(self, source: _Source, error: OffsetOutOfRangeError) -> None:
        # A broker reports a message as stored a moment before it is in the queue's index, and after a restart it builds the
        # index again. So an offset beyond the end counts as wrong only after a while.
        now = self._remoting.clock()
        if source.ahead_since is None:
            source.ahead_since = now
        if error.is_ahead and now - source.ahead_since < _INDEX_DELAY_S:
            source.backoff.failed()
            return
        source.ahead_since = None
        if self._options.out_of_range == "follow":
            logger.warning("reading continues at offset %d: %s", error.suggested, error)
            source.fetch.restart(error.suggested)
        else:
            source.error = error

    def _raise_error(self) -> None:
        for source in self._sources.values():
            if source.error is not None:
                error, source.error = source.error, None
                raise error

    def _pauses(self) -> Iterable[float]:
        return (pause for source in self._sources.values() if (pause := source.backoff.remaining_seconds()) > 0)


def _split(batch: MessageBatch, count: int) -> tuple[MessageBatch, MessageBatch | None]:
    if len(batch) <= count:
        return batch, None
    head, tail = batch.take(slice(0, count)), batch.take(slice(count, None))
    head.next_offset = int(tail.offsets[0])
    return head, tail
