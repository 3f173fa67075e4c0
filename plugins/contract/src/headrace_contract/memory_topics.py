"""A broker in memory, for tests that need ``Topics`` or a group source, such as several instances of a job in one process."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError, did_you_mean
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, Reader, StartAt, StartPosition
from headrace.interfaces.topics import Topics, is_own_topic

logger = logging.getLogger(__name__)
_brokers: weakref.WeakValueDictionary[str, MemoryBroker] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@dataclass
class _Log:
    """One queue: its records, their times, and the offset of the first record that was not removed."""

    first: int = 0
    bodies: list[bytes] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)


@dataclass
class _Group:
    """The members in the order in which they joined, the member of each queue, and the committed offsets."""

    members: list[str] = field(default_factory=list)
    owners: dict[int, str] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)


class MemoryBroker:
    """Topics and groups, shared by all ``MemoryTopics`` and ``MemoryTopicSource`` objects of this broker. Thread-safe.

    Keep a reference to the broker as long as it is used: sources have only its ``name``.

    A member gets a queue only after the previous member of the queue has given it up, in its own ``poll_group``.
    ``expel`` removes a member, as a broker does when it considers the member dead.
    """

    def __init__(self) -> None:
        self.name = f"memory-{secrets.token_hex(6)}"
        #: The lock of all data; it also wakes the threads that wait for a change.
        self.changed = threading.Condition(threading.RLock())
        self._topics: dict[str, list[_Log]] = {}
        self._groups: dict[tuple[str, str], _Group] = {}
        self._away = False
        #: How many calls it has refused in outages.
        self.refused = 0
        self._answers_to_lose = 0
        _brokers[self.name] = self

    # ------------------------------------------------------------------------------------------ what tests do

    def begin_outage(self) -> None:
        """Begin an outage: calls of topics and sources raise RetriableError, except ``leave`` and ``close``."""
        with self.changed:
            self._away = True
            self.changed.notify_all()

    def end_outage(self) -> None:
        """End the outage."""
        with self.changed:
            self._away = False
            self.changed.notify_all()

    def lose_answers(self, count: int = 1) -> None:
        """Store the next ``count`` appended runs without an answer: their ``flush`` raises RetriableError, the next one repeats them."""
        with self.changed:
            self._answers_to_lose += count

    def expel(self, source: MemoryTopicSource) -> None:
        """Remove a member from its group at once, as a broker does with one that has not polled for a long time.

        Other members can get its queues before it knows. Its next ``poll_group`` calls ``revoked(…, lost=True)`` and joins
        again. Until then its commits raise RetriableError.
        """
        with self.changed:
            self._remove(source.settings.topic, source.settings.group_id, source.member)
            self.changed.notify_all()

    def expel_members(self, topic: str, group: str) -> None:
        """Remove every member of a group, as ``expel`` does with one."""
        with self.changed:
            for member in list(self._group(topic, group).members):
                self._remove(topic, group, member)
            self.changed.notify_all()

    def add_queue(self, topic: str) -> int:
        """Add a queue to a topic; create the topic if it does not exist. Return the queue's number."""
        with self.changed:
            logs = self._topics.setdefault(topic, [])
            logs.append(_Log())
            self.changed.notify_all()
            return len(logs) - 1

    def records(self, topic: str, queue: int) -> list[bytes]:
        """Return the bodies of the records in a queue."""
        with self.changed:
            return list(self._log(topic, queue).bodies)

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        with self.changed:
            return sorted(self._topics)

    def owners(self, topic: str, group: str) -> dict[int, str]:
        """Return the member that has each queue, by the queue's number. Queues without a member are left out."""
        with self.changed:
            return dict(self._group(topic, group).owners)

    # ------------------------------------------------------------------------------- what topics and sources do

    def create(self, topic: str, queues: int) -> None:
        """Create a topic unless it exists. Raises JobError if it exists with another number of queues."""
        with self.changed:
            self.need()
            found = len(self._topics.setdefault(topic, [_Log() for _ in range(queues)]))
            if found != queues:
                raise JobError(
                    f"topic {topic!r} has {found} queues, not {queues}",
                    plugin="memory",
                    hint="give the job another namespace or name, or remove the topic",
                )
            self.changed.notify_all()

    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        """Add records to a queue. They can be read on return, also when the answer is lost (RetriableError)."""
        with self.changed:
            self.need()
            log = self._log(topic, queue)
            log.bodies += map(bytes, bodies)
            log.times_us += [time.time_ns() // 1000] * len(bodies)
            self.changed.notify_all()
            if self._answers_to_lose:
                self._answers_to_lose -= 1
                raise RetriableError("the answer of the broker was lost", plugin="memory")

    def trim(self, topic: str, queue: int, before: int) -> None:
        """Remove the records of a queue before an offset."""
        with self.changed:
            self.need()
            log = self._log(topic, queue)
            count = min(max(0, before - log.first), len(log.bodies))
            del log.bodies[:count], log.times_us[:count]
            log.first += count

    def count(self, topic: str) -> int:
        """Return how many queues a topic has. Raises JobError when there is no such topic."""
        with self.changed:
            self.need()
            if topic not in self._topics:
                raise JobError(
                    f"there is no topic {topic!r}",
                    plugin="memory",
                    option="topic",
                    hint=did_you_mean(topic, (each for each in self._topics if not is_own_topic(each)), known="topics"),
                )
            return len(self._topics[topic])

    def bounds(self, topic: str, queue: int) -> tuple[int, int]:
        """Return the first offset of a queue, and the offset after its last record."""
        with self.changed:
            self.need()
            log = self._log(topic, queue)
            return log.first, log.end

    def offset_at(self, topic: str, queue: int, time_us: int) -> int:
        """Return the offset of the first record of that time or later, or the end of the queue if there is none."""
        with self.changed:
            self.need()
            log = self._log(topic, queue)
            places = (place for place, found_us in enumerate(log.times_us) if found_us >= time_us)
            return log.first + next(places, len(log.bodies))

    def read(self, topic: str, queue: int, offset: int, count: int) -> tuple[list[bytes], list[int]]:
        """Return at most ``count`` records from an offset on, and their times. Raises DataError if the queue does not have it."""
        with self.changed:
            self.need()
            log = self._log(topic, queue)
            check_offset(queue_name(topic, queue), offset, log.first, log.end)
            begin = offset - log.first
            return log.bodies[begin : begin + count], log.times_us[begin : begin + count]

    def join(self, topic: str, group: str, member: str) -> None:
        """Add a member to a group."""
        with self.changed:
            self.need()
            found = self._group(topic, group)
            if member not in found.members:
                found.members.append(member)
                self.changed.notify_all()

    def leave(self, topic: str, group: str, member: str) -> None:
        """Remove a member; its queues are free at once. Works in an outage too: a broker notices by itself that a member is gone."""
        with self.changed:
            self._remove(topic, group, member)
            self.changed.notify_all()

    def share(self, topic: str, group: str, member: str) -> tuple[set[int], set[int]] | None:
        """Return the queues that a member has, and those that it should have; None if it was expelled."""
        with self.changed:
            self.need()
            found = self._group(topic, group)
            if member not in found.members:
                return None
            wanted = range(found.members.index(member), len(self._topics.get(topic, ())), len(found.members))
            return {queue for queue, owner in found.owners.items() if owner == member}, set(wanted)

    def take(self, topic: str, group: str, member: str, queues: Iterable[int]) -> list[int]:
        """Assign to a member those of the queues that no member has; return these."""
        with self.changed:
            found = self._group(topic, group)
            taken = [queue for queue in sorted(queues) if queue not in found.owners and member in found.members]
            found.owners.update(dict.fromkeys(taken, member))
            return taken

    def release(self, topic: str, group: str, member: str, queues: Iterable[int]) -> None:
        """Make queues of a member free."""
        with self.changed:
            owners = self._group(topic, group).owners
            for queue in queues:
                if owners.get(queue) == member:
                    del owners[queue]
            self.changed.notify_all()

    def commit(self, topic: str, group: str, member: str | None, offsets: Mapping[int, int]) -> None:
        """Store offsets of a group. Raises RetriableError if ``member`` was expelled; None: the caller is no member."""
        with self.changed:
            self.need()
            found = self._group(topic, group)
            if member is not None and member not in found.members:
                raise RetriableError(f"group {group!r} has expelled this member", plugin="memory")
            found.commits.update(offsets)

    def committed(self, topic: str, group: str, queue: int) -> int | None:
        """Return the offset that a group has committed for a queue, or None."""
        with self.changed:
            self.need()
            return self._group(topic, group).commits.get(queue)

    def need(self) -> None:
        """Raise RetriableError during an outage."""
        if self._away:
            self.refused += 1
            raise RetriableError("the broker in memory does not answer", plugin="memory")

    def _log(self, topic: str, queue: int) -> _Log:
        logs = self._topics.get(topic)
        if logs is None or not 0 <= queue < len(logs):
            raise JobError(f"there is no queue {queue} of topic {topic!r}", plugin="memory")
        return logs[queue]

    def _group(self, topic: str, group: str) -> _Group:
        return self._groups.setdefault((topic, group), _Group())

    def _remove(self, topic: str, group: str, member: str | None) -> None:
        found = self._group(topic, group)
        found.members = [each for each in found.members if each != member]
        found.owners = {queue: owner for queue, owner in found.owners.items() if owner != member}


class MemoryTopics(Topics):
    """Topics of a broker in memory. Records are stored when ``flush`` returns, not before."""

    def __init__(self, broker: MemoryBroker, *, max_record_bytes: int = 1_000_000) -> None:
        self._broker = broker
        self.max_record_bytes = max_record_bytes
        self._waiting: list[tuple[str, int, list[bytes]]] = []

    def create(self, topic: str, queues: int) -> None:
        self._broker.create(topic, queues)

    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            if len(body) > self.max_record_bytes:
                raise JobError(
                    f"a record of {len(body)} bytes is larger than max_record_bytes ({self.max_record_bytes})",
                    plugin="memory",
                    queue=queue_name(topic, queue),
                )
        self._waiting.append((topic, queue, list(bodies)))

    def flush(self) -> None:
        while self._waiting:
            self._broker.append(*self._waiting[0])
            del self._waiting[0]

    def source(self, topic: str, group: str) -> MemoryTopicSource:
        return MemoryTopicSource(MemoryTopicSettings(broker=self._broker.name, topic=topic, group=group))

    def number_of(self, queue: Queue) -> int:
        return queue_number(queue)

    def trim(self, topic: str, queue: int, before: int) -> None:
        self._broker.trim(topic, queue, before)

    def close(self) -> None:
        try:
            self.flush()
        except HeadraceError as error:
            logger.warning("%d runs of records are lost: %s", len(self._waiting), error.message)
        self._waiting.clear()


class MemoryTopicSettings(Settings, frozen=True, kw_only=True):
    """Options of ``MemoryTopicSource``."""

    broker: Annotated[str, option("name of a MemoryBroker in this process")]
    topic: Annotated[str, option("topic to read")]
    group: Annotated[str | None, option("consumer group; default: headrace-TOPIC")] = None

    @property
    def group_id(self) -> str:
        return self.group or f"headrace-{self.topic}"


class MemoryTopicSource(GroupSource):
    """Reads a topic of a broker in memory. It can be pickled, but a copy works only in the process of the broker."""

    Settings: ClassVar[type[Settings]] = MemoryTopicSettings

    def __init__(self, settings: MemoryTopicSettings) -> None:
        self.settings: MemoryTopicSettings = settings
        self.member: str | None = None
        self._listener: GroupListener | None = None
        self._readers: dict[int, MemoryTopicReader] = {}
        self._held: set[int] = set()
        #: Queues that it has and whose reading could not begin yet: the listener is told of them again.
        self._to_begin: set[int] = set()

    @property
    def broker(self) -> MemoryBroker:
        found = _brokers.get(self.settings.broker)
        if found is None:
            raise JobError(f"there is no broker {self.settings.broker!r} in this process", plugin="memory")
        return found

    def queues(self) -> Collection[Queue]:
        topic = self.settings.topic
        return [Queue(queue_name(topic, number)) for number in range(self.broker.count(topic))]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        number, topic = queue_number(queue), self.settings.topic
        first, end = self.broker.bounds(topic, number)
        if isinstance(start, ReadPosition):
            offset = start.offset
            check_offset(queue.name, offset, first, end)
        elif isinstance(start, StartAt):
            offset = self.broker.offset_at(topic, number, int(start.time.timestamp() * 1_000_000))
        else:
            offset = first if start is EARLIEST else end
        reader = MemoryTopicReader(self.broker, topic, number, offset)
        self._readers[number] = reader
        return reader

    def join(self, listener: GroupListener) -> None:
        self._listener = listener
        self.member = f"member-{next(_numbers)}"
        self.broker.join(*self._place, self.member)

    def poll_group(self, timeout: timedelta) -> None:
        if self.member is None or self._listener is None:
            return
        broker, deadline = self.broker, time.monotonic() + timeout.total_seconds()
        with broker.changed:
            while not self._something_to_do() and (left := deadline - time.monotonic()) > 0:
                broker.changed.wait(left)
            # Only a call that may wait marks records as noticed: otherwise the next call that waits would not return early.
            for reader in self._readers.values() if timeout else ():
                reader.noticed = max(reader.noticed, broker.bounds(self.settings.topic, reader.number)[1])
        self._rebalance(self._listener, self.member)

    def leave(self) -> None:
        member, self.member, self._listener = self.member, None, None
        self._held.clear()
        self._to_begin.clear()
        if member is not None:
            self.broker.leave(*self._place, member)

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        offsets = {queue_number(queue): position.offset for queue, position in positions.items()}
        self.broker.commit(*self._place, self.member, offsets)

    def committed(self, queue: Queue) -> ReadPosition | None:
        offset = self.broker.committed(*self._place, queue_number(queue))
        return None if offset is None else ReadPosition(offset)

    def begins_with(self, queue: Queue) -> str | None:
        return self.settings.topic

    def topics(self) -> Topics | None:
        return MemoryTopics(self.broker)

    def close(self) -> None:
        self.leave()
        self._readers.clear()

    @property
    def _place(self) -> tuple[str, str]:
        return self.settings.topic, self.settings.group_id

    def _something_to_do(self) -> bool:
        """Whether this member must take or give up queues, or has records that were not noticed. The caller has the lock."""
        assert self.member is not None
        shared = self.broker.share(*self._place, self.member)
        if shared is None or shared[0] - shared[1] or shared[0] != self._held:
            return True
        missing = shared[1] - shared[0]
        if self._to_begin or missing - set(self.broker.owners(*self._place)):
            return True
        topic = self.settings.topic
        return any(
            self.broker.bounds(topic, number)[1] > max(self._readers[number].noticed, self._readers[number].next)
            for number in self._held & set(self._readers)
        )

    def _rebalance(self, listener: GroupListener, member: str) -> None:
        shared = self.broker.share(*self._place, member)
        if shared is None:  # expelled: join again under another name
            lost, self._held = self._held, set()
            self._revoke(listener, lost, lost=True)
            self.member = f"member-{next(_numbers)}"
            self.broker.join(*self._place, self.member)
            return
        _, wanted = shared
        given_up = self._held - wanted
        if given_up:
            self._revoke(listener, given_up)
            self._held -= given_up
            self.broker.release(*self._place, member, given_up)
        taken = self.broker.take(*self._place, member, wanted - self._held)
        self._held.update(taken)
        self._to_begin.update(taken)
        if self._to_begin:
            listener.assigned([self._queue(number) for number in sorted(self._to_begin)])
            self._to_begin.clear()

    def _revoke(self, listener: GroupListener, numbers: set[int], *, lost: bool = False) -> None:
        if numbers:
            listener.revoked([self._queue(number) for number in sorted(numbers)], lost=lost)
            self._to_begin -= numbers
            for number in numbers:
                self._readers.pop(number, None)

    def _queue(self, number: int) -> Queue:
        return Queue(queue_name(self.settings.topic, number), self.node_name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "member": None, "_listener": None, "_readers": {}, "_held": set(), "_to_begin": set()}


class MemoryTopicReader(Reader):
    """Reads one queue of a broker in memory."""

    def __init__(self, broker: MemoryBroker, topic: str, number: int, offset: int) -> None:
        self._broker = broker
        self._topic = topic
        self.number = number
        #: The offset of the next record.
        self.next = offset
        #: The end of the queue at the last ``poll_group`` that could wait.
        self.noticed = 0

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        deadline = time.monotonic() + timeout.total_seconds()
        with self._broker.changed:
            while True:
                bodies, times_us = self._broker.read(self._topic, self.number, self.next, max_records)
                left = deadline - time.monotonic()
                if bodies or left <= 0:
                    break
                self._broker.changed.wait(left)
        if not bodies:
            return None
        offsets = np.arange(self.next, self.next + len(bodies), dtype=np.int64)
        self.next += len(bodies)
        times = np.array(times_us, dtype=np.int64)
        return RawBatch(offsets, ReadPosition(self.next), bodies=Bodies.of(bodies), times=times)

    def seek(self, position: ReadPosition) -> None:
        self.next = position.offset

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self.next)

    @property
    def earliest(self) -> int:
        return self._broker.bounds(self._topic, self.number)[0]

    @property
    def latest(self) -> int:
        return self._broker.bounds(self._topic, self.number)[1]


def queue_name(topic: str, number: int) -> str:
    """Return the name that a source gives a queue."""
    return f"{topic}-{number}"


def queue_number(queue: Queue) -> int:
    """Return the number of a queue."""
    return int(queue.name.rpartition("-")[2])


def check_offset(name: str, offset: int, first: int, end: int) -> None:
    """Raise DataError if a queue does not have an offset."""
    if not first <= offset <= end:
        raise DataError(
            f"offset {offset} is not in queue {name}, which has {first} to {end}",
            plugin="memory",
            queue=name,
            offset=offset,
        )
