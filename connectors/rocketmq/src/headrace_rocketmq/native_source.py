"""The RocketMQ source with ``driver="native"``: messages that rocketmq-client-python is pushed, at least once.

A push consumer reports neither the broker of a message nor changes of its queues. So all messages of this instance form one
queue, numbered in the order of arrival, with a new unique name.

A message is acknowledged when its callback returns, and then the library gives the next of the 32 messages of its pull. So a
thread holds each message until a checkpoint has made it durable. No more messages come meanwhile, so the source does not wait
for the job's next checkpoint: it causes one, as a group source can, by giving up its queue for a moment.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any, ClassVar, Literal

import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import JobError, OptionError, RetriableError
from headrace.foundation.retrying import Backoff
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, Reader, StartPosition

from headrace_rocketmq.client import Client
from headrace_rocketmq.deduplication import without_row_ids
from headrace_rocketmq.errors import GroupNotFoundError
from headrace_rocketmq.job_errors import explained
from headrace_rocketmq.native_consumer import NativeConsumer, NativeMessage, Start
from headrace_rocketmq.queue_reader import SHARDING_KEY
from headrace_rocketmq.settings import PLUGIN, RocketMQSourceSettings, make_client, memberships_of

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
#: When nothing came for so long, all possible messages are held.
_QUIET_S = 0.02


class NativeRocketMQSource(GroupSource):
    """Reads topics through rocketmq-client-python. At least once; for the light backend, without an end.

    headrace's own client does the work that the native one cannot: it detects unknown topics, and sets the start of a new group.
    """

    Settings: ClassVar[type[Settings]] = RocketMQSourceSettings

    def __init__(self, settings: RocketMQSourceSettings) -> None:
        self.settings: RocketMQSourceSettings = settings
        self._reset()

    def _reset(self) -> None:
        self._queue = Queue(f"{self.settings.topics[0]}/native/{secrets.token_hex(8)}")
        self._consumer: NativeConsumer | None = None
        #: The group of the run that reads with it: a plan of another job changes ``reader_name`` at any time.
        self._group: str | None = None
        self._listener: GroupListener | None = None
        self._has_queue = False
        self._is_known = False
        #: Positions: given to the job; done; and the first number of the present consumer.
        self._next = self._done = self._base = 0
        self._taken_at = 0.0
        self._backoff = Backoff(first_seconds=0.5, seconds_max=30.0, monotonic=time.monotonic, jitter=random.random)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("settings", "start", "node_name", "reader_name", "header_fields")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def group_name(self) -> str:
        """The consumer group."""
        return self._group or self.settings.group_of(self.reader_name)

    def memberships(self) -> Collection[str]:
        return memberships_of(self.settings, self.settings.group_of(self.reader_name))

    def check(self) -> None:
        if self.start is not EARLIEST:
            raise OptionError(
                "driver='native' begins at the earliest message, or at the offsets that the group has committed",
                plugin=PLUGIN,
                option="start",
                hint="leave out start, or driver='native'",
            )

    def use_run(self, *, until: Literal["end"] | None) -> None:
        if until == "end":
            raise OptionError(
                "driver='native' cannot read to the end: pushed messages have no end",
                plugin=PLUGIN,
                option="driver",
                hint="use job.start('light', …), which reads until it is stopped; or leave out driver='native' to read what is there",
            )
        if self._group != (group := self.settings.group_of(self.reader_name)):
            self._group, self._is_known = group, False

    def queues(self) -> Collection[Queue]:
        if not self._is_known:
            with explained(self.settings), make_client(self.settings) as client, explained(self.settings, client):
                self._begin(client)
            self._is_known = True
        return [self._queue]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        if self._consumer is None:
            raise JobError(
                "driver='native' can read only as a member of a consumer group",
                plugin=PLUGIN,
                option="driver",
                hint="use the light backend, or leave out driver='native'",
            )
        position = start.offset if isinstance(start, ReadPosition) else 0
        if position != self._next:
            raise JobError(
                f"pushed messages are received only once: offset {position} is wanted, but {self._next} comes next",
                plugin=PLUGIN,
            )
        return _NativeReader(self)

    def join(self, listener: GroupListener) -> None:
        self.queues()
        self._connect()
        self._listener = listener

    def poll_group(self, timeout: timedelta) -> None:
        consumer, listener = self._consumer, self._listener
        if listener is None:
            return
        if consumer is None or consumer.failure is not None:
            self._reconnect(consumer)
            return
        named = [Queue(self._queue.name, self.node_name)]
        if not self._has_queue:
            listener.assigned(named)
            self._has_queue = True
        elif self._is_held_up():
            # On return all of it is checkpointed and committed, so that more can come.
            listener.revoked(named)
            self._has_queue = False
            listener.assigned(named)
            self._has_queue = True
        else:
            consumer.wait(
                min(timeout.total_seconds(), _QUIET_S) if self._next > self._done else timeout.total_seconds()
            )

    def leave(self) -> None:
        """Leave the group: by ending the client's process, which the brokers notice at once. Readers stay usable."""
        consumer, self._consumer, self._listener = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        for position in positions.values():
            self._done = max(self._done, position.offset)
            if self._consumer is not None and position.offset > self._base:
                self._consumer.finish(position.offset - self._base)

    def committed(self, queue: Queue) -> ReadPosition | None:
        return ReadPosition(self._done) if self._done else None

    def close(self) -> None:
        self.leave()

    # ------------------------------------------------------------------------------------------------ for the reader

    @property
    def next(self) -> int:
        """The position of the next message to be handed out."""
        return self._next

    @property
    def received(self) -> int:
        """The position after the last message that has come."""
        return self._next if self._consumer is None else self._base + self._consumer.received

    def take(self, count_max: int, timeout_s: float) -> list[NativeMessage]:
        """Return the next messages. Raises RetriableError when the client's process has ended and all its messages are taken."""
        consumer = self._consumer
        if consumer is None:
            return []
        messages = consumer.take(count_max, timeout_s)
        self._next += len(messages)
        if messages:
            self._taken_at = time.monotonic()
            self._backoff.succeeded()
        if not messages and consumer.failure is not None:
            with explained(self.settings):
                raise consumer.failure
        return messages

    # ------------------------------------------------------------------------------------------------ inside

    def _is_held_up(self) -> bool:
        """Whether no more messages come before some of the given ones are done."""
        held = self._next - self._done
        if held == 0 or self.received > self._next:
            return False
        return held >= self.settings.native_messages or time.monotonic() - self._taken_at >= _QUIET_S

    def _begin(self, client: Client) -> None:
        """Make a new group begin at the earliest message: the native client would begin at the latest one in some queues."""
        group = self.group_name
        queues = [queue for topic in self.settings.topics for queue in client.queues(topic)]
        committed = client.committed_offsets(group, queues)
        fresh = [queue for queue in queues if committed[queue] is None]
        if not fresh:
            return
        earliest = client.earliest_offsets(fresh)
        try:
            client.commit_offsets(group, earliest)
        except GroupNotFoundError:  # brokers make a group when its first member comes
            with closing(client.member(group, self.settings.topics)):
                client.commit_offsets(group, earliest)

    def _connect(self) -> None:
        own = self.settings
        start = Start(
            name_servers=own.name_servers,
            group=self.group_name,
            topics=own.topics,
            tags=own.tags or "*",
            instance=secrets.token_hex(8),
            threads=own.native_messages,
            library=own.native_library,
            access_key=own.access_key,
            secret_key=None if own.secret_key is None else own.secret_key.reveal(),
        )
        consumer = NativeConsumer(start)
        try:
            with explained(own):
                consumer.wait_until_started(_START_TIMEOUT_S)
        except BaseException:
            consumer.close()
            raise
        self._consumer, self._base = consumer, self._next

    def _reconnect(self, consumer: NativeConsumer | None) -> None:
        """Replace a process that has ended, when all of its messages were taken."""
        if consumer is not None:
            if self.received > self._next:
                return
            logger.warning("group %s: %s", self.group_name, consumer.failure)
            consumer.close()
            self._consumer = None
            self._backoff.failed()
        if self._backoff.remaining_seconds() == 0:
            try:
                self._connect()
            except RetriableError:
                self._backoff.failed()
                raise


class _NativeReader(Reader):
    """Reads the one queue. Messages come only once, so it cannot seek."""

    def __init__(self, source: NativeRocketMQSource) -> None:
        self._source = source
        self._born = source.settings.time == "born"
        self._with_keys = "key" in source.header_fields
        self._with_headers = "headers" in source.header_fields

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        first = self._source.next
        messages = self._source.take(max_records, timeout.total_seconds())
        if not messages:
            return None
        times = [each.born_ms if self._born else each.stored_ms for each in messages]
        return RawBatch(
            np.arange(first, first + len(messages), dtype=np.int64),
            self.position,
            bodies=Bodies.of([each.body for each in messages]),
            times=np.array(times, dtype=np.int64) * 1000,
            keys=_keys(messages) if self._with_keys else None,
            headers=[_headers(each) for each in messages] if self._with_headers else None,
        )

    def seek(self, position: ReadPosition) -> None:
        if position != self.position:
            raise JobError(
                f"pushed messages are received only once: the reader cannot go back to {position.offset}", plugin=PLUGIN
            )

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._source.next)

    @property
    def earliest(self) -> int:
        return self._source.next

    @property
    def latest(self) -> int:
        return self._source.received


def _keys(messages: list[NativeMessage]) -> list[bytes | None]:
    """Return the sharding key of the producer, else the message keys without our row ids."""
    import polars as pl

    keys = pl.Series([each.keys.decode(errors="replace") or None for each in messages], dtype=pl.String)
    rest = without_row_ids(keys).cast(pl.Binary).to_list()
    return [each.sharding_key or key for each, key in zip(messages, rest, strict=True)]


def _headers(message: NativeMessage) -> dict[str, bytes]:
    named = {
        "TAGS": message.tags,
        "KEYS": message.keys,
        "UNIQ_KEY": message.unique_id,
        SHARDING_KEY: message.sharding_key,
    }
    return {name: value for name, value in named.items() if value}
