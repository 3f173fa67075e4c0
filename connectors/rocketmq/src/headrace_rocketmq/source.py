"""The RocketMQ source: message queues are queues; alone, or as a member of a consumer group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, OptionError, RetriableError
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, Reader, StartAt, StartPosition
from headrace.interfaces.topics import Topics

from headrace_rocketmq.allocation import averagely, consistent_hash
from headrace_rocketmq.client import Client
from headrace_rocketmq.errors import GroupNotFoundError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.given_offsets import GivenOffsets
from headrace_rocketmq.job_errors import explained, lost_offset
from headrace_rocketmq.member import Member
from headrace_rocketmq.queue_reader import RocketMQReader
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.settings import PLUGIN, RocketMQSourceSettings, make_client, memberships_of
from headrace_rocketmq.table_options import SOURCE_TABLES

logger = logging.getLogger(__name__)

_ALLOCATIONS = {"averagely": averagely, "consistent_hash": consistent_hash}
#: After its start, a broker builds the index of its queues again: for so long an offset may seem to be beyond the end.
_INDEX_DELAY_SECONDS = 5.0


class RocketMQSource(GroupSource):
    """Reads topics of a RocketMQ cluster. One client serves all queues that a process reads.

    Queues are named ``topic/broker/number``. Only its readers are thread-safe: ``queues``, ``open``, ``join`` and the
    like are called by one thread at a time. The listener of a group is called from ``poll_group`` only.
    """

    Settings: ClassVar[type[Settings]] = RocketMQSourceSettings
    table_options = SOURCE_TABLES
    group_options: ClassVar[frozenset[str]] = frozenset({"group", "allocation", "exclusive"})

    def __new__(cls, settings: RocketMQSourceSettings) -> RocketMQSource:
        if settings.driver == "native":
            from headrace_rocketmq.native_source import NativeRocketMQSource

            return NativeRocketMQSource(settings)  # type: ignore[return-value]  # a source, but not this one
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[RocketMQSourceSettings]:
        return (self.settings,)

    def __init__(self, settings: RocketMQSourceSettings) -> None:
        self.settings: RocketMQSourceSettings = settings
        # A broker stores the messages of a queue one after the other, by its own clock.
        self.time_delay = timedelta(0) if settings.time == "stored" else None
        self._filter: Filter = settings.message_filter()
        self._given = GivenOffsets(settings)
        self._client: Client | None = None
        #: The group of the run that reads with it: a plan of another job changes ``reader_name`` at any time.
        self._group: str | None = None
        self._member: Member | None = None
        self._listener: GroupListener | None = None
        self._held: set[MessageQueue] = set()
        #: The offsets that are known to be committed on the brokers.
        self._told: dict[MessageQueue, int] = {}
        self._told_lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        left_here: dict[str, Any] = {
            "_client": None,
            "_group": None,
            "_member": None,
            "_listener": None,
            "_held": set(),
            "_told": {},
        }
        return {**self.__dict__, **left_here, "_told_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._told_lock = threading.Lock()

    def queues(self) -> Collection[Queue]:
        client = self._connected()
        with explained(self.settings, client):
            found = [queue for topic in self.settings.topics for queue in client.queues(topic)]
        self._given.check(found)
        return [Queue(str(queue)) for queue in found]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        client, message_queue = self._connected(), self._message_queue(queue)
        with explained(self.settings, client, queue=queue.id):
            offset = self._first_offset(client, message_queue, queue, start)
            reader = client.reader(
                {message_queue: offset},
                group=self.group_name,
                message_filter=self._filter,
                options=RocketMQReader.options(self.settings),
            )
            reader.on_arrival = self._wake
        return RocketMQReader(
            client,
            reader,
            queue=queue,
            message_queue=message_queue,
            offset=offset,
            settings=self.settings,
            group=self.group_name,
            message_filter=self._filter,
            header_fields=self.header_fields,
            on_failure=self._forget_told,
        )

    # ------------------------------------------------------------------------------------------------ the group

    @property
    def group_name(self) -> str:
        """The consumer group."""
        return self._group or self.settings.group_of(self.reader_name)

    def memberships(self) -> Collection[str]:
        return memberships_of(self.settings, self.settings.group_of(self.reader_name))

    def use_run(self, *, until: Literal["end"] | None) -> None:
        self._group = self.settings.group_of(self.reader_name)

    def join(self, listener: GroupListener) -> None:
        client = self._connected()
        self.queues()  # for its errors, which name what is there instead
        settings = self.settings
        with explained(settings, client):
            self._member = client.member(
                self.group_name,
                settings.topics,
                message_filter=self._filter,
                exclusive=settings.exclusive,
                allocation=_ALLOCATIONS[settings.allocation],
            )
        self._listener = listener

    def poll_group(self, timeout: timedelta) -> None:
        member = self._member
        if member is None or not member.changed(timeout.total_seconds()):
            return
        try:
            with explained(self.settings, self._client):
                target = member.target()
        except RetriableError as error:
            logger.warning("group %s: %s", self.group_name, error.message)
            member.look_again()
            return
        self._give_up(member, self._held - target)
        self._take(member, member.claim(sorted(target - self._held)))

    def leave(self) -> None:
        """Leave the group. Readers stay usable, so that the runtime can end them."""
        member, self._member = self._member, None
        self._held.clear()
        if member is not None:
            member.close()

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """See GroupSource. Raises RetriableError while a broker is not available; commits to other brokers may have succeeded by then.

        When another instance takes a queue, it reads the uncommitted messages again.
        """
        offsets = {self._message_queue(queue): position.offset for queue, position in positions.items()}
        with self._told_lock:
            changed = {queue: offset for queue, offset in offsets.items() if self._told.get(queue) != offset}
        if not changed:
            return
        client = self._connected()
        try:
            with explained(self.settings, client):
                client.commit_offsets(self.group_name, changed)
        except RetriableError:
            self._forget_told()
            raise
        except JobError as error:
            if not isinstance(error.__cause__, GroupNotFoundError):
                raise
            # Brokers know a group only after it has read a message: nothing was read there, so nothing is lost.
            logger.info(
                "group %s: the broker does not know the group yet, so nothing is committed: %s",
                self.group_name,
                error.message,
            )
            return
        with self._told_lock:
            self._told.update(changed)

    def committed(self, queue: Queue) -> ReadPosition | None:
        client, message_queue = self._connected(), self._message_queue(queue)
        with explained(self.settings, client, queue=queue.id):
            offset = client.committed_offsets(self.group_name, [message_queue])[message_queue]
        if offset is None:
            return None
        with self._told_lock:
            self._told[message_queue] = offset
        return ReadPosition(offset)

    def begins_with(self, queue: Queue) -> str | None:
        return self._message_queue(queue).topic

    def topics(self) -> Topics:
        from headrace_rocketmq.job_topics import RocketMQTopics

        return RocketMQTopics(self.settings)

    def close(self) -> None:
        self.leave()
        client, self._client = self._client, None
        self._group = None
        if client is not None:
            client.close()

    # ------------------------------------------------------------------------------------------------ inside

    def _wake(self) -> None:
        """A broker has answered a reader: wake a runtime that waits in ``poll_group``. Called from any thread."""
        member = self._member
        if member is not None:
            member.wake()

    def _give_up(self, member: Member, queues: Collection[MessageQueue]) -> None:
        if not queues:
            return
        assert self._listener is not None  # set by join
        names = ", ".join(map(str, sorted(queues)))
        logger.info("group %s: giving up %s", self.group_name, names)
        self._held.difference_update(queues)
        begun = time.monotonic()
        try:
            self._listener.revoked(self._named(queues))
            seconds = time.monotonic() - begun
            logger.info("group %s: gave up %s, finished in %.3f s", self.group_name, names, seconds)
        finally:  # they belong to another member now, also if the listener has failed
            with self._told_lock:
                for queue in queues:
                    self._told.pop(queue, None)
            member.release(queues)

    def _take(self, member: Member, queues: Collection[MessageQueue]) -> None:
        """Assign queues one by one: a queue whose broker is not available waits for the next time, and does not delay others."""
        assert self._listener is not None  # set by join
        for number, queue in enumerate(claimed := list(queues)):
            try:
                self._listener.assigned(self._named([queue]))
            except RetriableError as error:
                logger.warning("group %s: %s cannot be read yet: %s", self.group_name, queue, error.message)
                member.release([queue])
                member.look_again()
            except BaseException:
                member.release(claimed[number:])
                raise
            else:
                logger.info("group %s: taking %s", self.group_name, queue)
                self._held.add(queue)

    def _named(self, queues: Collection[MessageQueue]) -> list[Queue]:
        return [Queue(str(queue), self.node_name) for queue in sorted(queues)]

    def _forget_told(self) -> None:
        """A broker that is killed loses the commits of the last seconds: repeat them."""
        with self._told_lock:
            self._told.clear()

    def _connected(self) -> Client:
        if self._client is None:
            with explained(self.settings):
                self._client = make_client(self.settings)
        return self._client

    def _message_queue(self, queue: Queue) -> MessageQueue:
        topic, _, rest = queue.name.partition("/")
        broker, _, number = rest.rpartition("/")
        if not broker or not number.isdigit():
            raise JobError(
                f"{queue.name!r} is not the name of a message queue",
                plugin=PLUGIN,
                queue=queue.id,
                hint="names have the form topic/broker/number; check that the checkpoint belongs to this job",
            )
        return MessageQueue(topic, broker, int(number))

    def _first_offset(self, client: Client, at: MessageQueue, queue: Queue, start: StartPosition) -> int:
        if isinstance(start, ReadPosition):
            self._check_position(client, at, queue, start.offset)
            return start.offset
        given = self._given.of(at)
        if given is not None:
            self._check_given(client, at, given)
            return given
        if isinstance(start, StartAt):
            return client.offsets_at([at], whole_millisecond_from(start.time))[at]
        return (client.earliest_offsets if start is EARLIEST else client.latest_offsets)([at])[at]

    def _check_given(self, client: Client, at: MessageQueue, offset: int) -> None:
        """Raise OptionError for an offset from the options that is not in the queue."""
        earliest, latest = client.earliest_offsets([at])[at], client.latest_offsets([at])[at]
        if not earliest <= offset <= latest:
            raise OptionError(
                f"offset {offset} is not in queue {at}: it holds {earliest} to {latest}",
                plugin=PLUGIN,
                option="offsets",
            )

    def _check_position(self, client: Client, at: MessageQueue, queue: Queue, offset: int) -> None:
        """Raise DataError for a position that is not in the queue."""
        deadline = time.monotonic() + _INDEX_DELAY_SECONDS
        while True:
            earliest, latest = client.earliest_offsets([at])[at], client.latest_offsets([at])[at]
            if earliest <= offset <= latest:
                return
            if offset < earliest or time.monotonic() > deadline:
                raise lost_offset(queue.id, offset, earliest, latest)
            time.sleep(0.05)  # the server's real time passes: no clock can be moved here


def whole_millisecond_from(moment: datetime) -> datetime:
    """Return the first whole millisecond that is not before a moment: brokers store times in milliseconds."""
    epoch = datetime.fromtimestamp(0, UTC)
    return epoch - ((epoch - moment) // timedelta(milliseconds=1)) * timedelta(milliseconds=1)
