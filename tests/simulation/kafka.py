"""A simulated Kafka, at the place of confluent-kafka's clients: topics, transactions, and groups that rebalance cooperatively.

librdkafka is written in C, so its threads and sockets cannot be in the world: what stands here are its ``Consumer``, ``Producer`` and
``AdminClient``, as far as headrace-kafka calls them, over one broker. A consumer that does not answer for its session is taken for dead; a
commit of one that is no member is refused; a producer that has waited too long does not know which of its records are stored, and some of
them come later; a transaction is seen when it has ended, and its markers have offsets too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import confluent_kafka as ck
import confluent_kafka.admin as ck_admin
from headrace_kafka import driver_confluent

from tests.simulation.kafka_clients import AdminClient, Client
from tests.simulation.kafka_log import Entry, Log, Place, Transaction, failure, is_seen
from tests.simulation.servers import Server
from tests.simulation.world.scheduler import BEGIN_US, Crashed, Process, Task, World

_US = 300
_LATE_US_MAX = 3_000_000
#: How long a commit waits for the coordinator of the group.
_COORDINATOR_US = 6_000_000
#: How many clients are told after an outage that there are no brokers.
_STUCK = 0.3
_UNKNOWN_MEMBER, _REBALANCING = 25, 27


@dataclass
class _Group:
    members: list[Consumer] = field(default_factory=list)
    owners: dict[Place, Consumer] = field(default_factory=dict)
    commits: dict[Place, tuple[int, str | None]] = field(default_factory=dict)


class Kafka(Server):
    """The broker."""

    def __init__(self, world: World, name: str, session_us: int) -> None:
        super().__init__(world, name)
        self.logs: dict[str, list[Log]] = {}
        self.groups: dict[str, _Group] = {}
        #: By transactional id: the epoch, and the transaction that is open.
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.waiting: list[Task] = []
        self.clients: list[Client] = []
        #: How many commits are refused while a group rebalances.
        self.refused = 0.3
        #: How many outages are over.
        self._over = 0
        self._session_us = session_us
        self._late: list[tuple[int, Place, bytes | None, bytes | None]] = []

    # ------------------------------------------------------------------------------------------------- from outside

    def add_queue(self, topic: str) -> None:
        self.logs.setdefault(topic, []).append(Log())

    def put(self, topic: str, queue: int, body: bytes) -> None:
        self.store((topic, queue), body, None)

    def bodies(self, topic: str) -> list[bytes]:
        """Return what readers with ``read_committed`` see of a topic."""
        found: list[bytes] = []
        for log in self.logs.get(topic, ()):
            for entry in log.entries[: log.stable_end - log.first]:
                if is_seen(entry) and entry.value is not None:
                    found.append(entry.value)
        return found

    def tick(self) -> None:
        """Take members for dead that were silent for too long, and store what comes late."""
        now = self.world.us
        self._come_back(now)
        for each in [each for each in self._late if each[0] <= now]:
            self._late.remove(each)
            self.store(each[1], each[2], each[3])
        for name, group in self.groups.items():
            for member in list(group.members):
                if member.is_stuck or member.process.dead or member.process.frozen_until_us > now:
                    if now - member.heard_us > self._session_us:
                        self.world.trace.add(now, self.name, "expels", f"a member of {name}")
                        self.remove(name, member)
                else:  # librdkafka says that it lives, in a thread of its own
                    member.heard_us = now

    def _come_back(self, now: int) -> None:
        """After an outage the broker says for a moment that there are no brokers: some clients believe it for good."""
        self.clients = [each for each in self.clients if not each.is_gone]
        over = sum(end <= now for _, end in self.away)
        if over > self._over:
            self._over = over
            for client in self.clients:
                if self.world.random.random() < _STUCK:
                    client.is_stuck = True
                    self.world.trace.add(now, self.name, "forgets", f"{type(client).__name__} has no brokers any more")

    def expel(self, process: Process) -> None:
        """Take the members of a process for dead."""
        for name, group in self.groups.items():
            for member in [each for each in group.members if each.process is process]:
                self.remove(name, member)

    # ------------------------------------------------------------------------------------------------------ calls

    def ask(self, what: str, seconds: float = 1.0) -> None:
        """A request travels, and its answer. Raises what librdkafka does when there is none."""
        self.world.step(self.name, what)
        self.world.pause(int(_US * (0.5 + self.world.random.random())))
        if self.fails(what):
            self.world.pause(int(seconds * 1e6))
            raise failure(ck.KafkaError._TRANSPORT)

    def fails(self, what: str) -> bool:
        if self.world.current.process.dead:
            raise Crashed
        now = self.world.us
        if any(begin <= now < end for begin, end in self.away) or self.world.random.random() < self.lossy:
            self.world.trace.add(now, self.name, "fails", f"{what}: it is not there")
            return True
        return False

    @property
    def is_away(self) -> bool:
        return any(begin <= self.world.us < end for begin, end in self.away)

    def log(self, place: Place) -> Log:
        return self.logs[place[0]][place[1]]

    def store(
        self, place: Place, value: bytes | None, key: bytes | None, transaction: Transaction | None = None
    ) -> None:
        self.log(place).entries.append(Entry(value, key, self.world.us, transaction))
        self.wake()

    def later(self, place: Place, value: bytes | None, key: bytes | None) -> None:
        self._late.append((self.world.us + int(self.world.random.random() * _LATE_US_MAX), place, value, key))

    def end_transaction(self, name: str, state: str) -> None:
        transaction = self.open.pop(name, None)
        if transaction is None:
            return
        transaction.state = state
        for place in sorted(transaction.places):
            self.log(place).entries.append(Entry(None, None, self.world.us, transaction, is_marker=True))
        if state == "committed":
            for (group, place), offset in transaction.offsets.items():
                self.groups.setdefault(group, _Group()).commits[place] = offset
        self.wake()

    def wake(self) -> None:
        for task in self.waiting:
            self.world.wake(task)
        self.waiting.clear()

    def remove(self, name: str, member: Consumer) -> None:
        group = self.groups[name]
        group.members = [each for each in group.members if each is not member]
        group.owners = {place: owner for place, owner in group.owners.items() if owner is not member}
        self.wake()

    def wanted(self, name: str, member: Consumer) -> set[Place]:
        """Return the partitions that a member should have: each stays where it is, as far as all have as many."""
        group = self.groups[name]
        places = sorted(
            {
                (topic, n)
                for each in group.members
                for topic in each.topics
                for n in range(len(self.logs.get(topic, ())))
            }
        )
        most = -(-len(places) // len(group.members))
        shares: dict[int, list[Place]] = {id(each): [] for each in group.members}
        rest = []
        for place in places:
            owner = group.owners.get(place)
            if owner is not None and id(owner) in shares and len(shares[id(owner)]) < most and place[0] in owner.topics:
                shares[id(owner)].append(place)
            else:
                rest.append(place)
        for place in rest:
            usable = [each for each in group.members if place[0] in each.topics]
            shares[id(min(usable, key=lambda each: len(shares[id(each)])))].append(place)
        return set(shares[id(member)])

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """While the body runs, this broker is what clients of confluent-kafka reach."""
        methods = ("error", "partition", "topic", "offset", "value", "key", "timestamp")
        replaced: Mapping[str, Any] = {name: getattr(Message, name) for name in methods}
        with ExitStack() as stack:
            stack.enter_context(patch.object(ck, "Consumer", lambda properties: Consumer(self, properties)))
            stack.enter_context(patch.object(ck, "Producer", lambda properties: Producer(self, properties)))
            stack.enter_context(patch.object(ck_admin, "AdminClient", lambda properties: AdminClient(self)))
            for name, function in replaced.items():
                stack.enter_context(patch.object(driver_confluent, f"_{name}", function))
            yield


class Message:
    """A record, or what a consumer is told of a partition."""

    __slots__ = ("_entry", "_error", "_offset", "_place")

    def __init__(self, place: Place, offset: int, entry: Entry | None = None, error: Any = None) -> None:
        self._place, self._offset, self._entry, self._error = place, offset, entry, error

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return None if self._entry is None else self._entry.value

    def key(self) -> bytes | None:
        return None if self._entry is None else self._entry.key

    def timestamp(self) -> tuple[int, int]:
        return 1, 0 if self._entry is None else (BEGIN_US + self._entry.us) // 1000

    def headers(self) -> None:
        return None


class Consumer(Client):
    """Instead of ``confluent_kafka.Consumer``."""

    def __init__(self, broker: Kafka, properties: Mapping[str, Any]) -> None:
        super().__init__(broker)
        self.process: Process = broker.world.current.process
        self.heard_us = broker.world.us
        self.topics: Sequence[str] = ()
        self._group = str(properties["group.id"])
        self._committed_only = properties.get("isolation.level") == "read_committed"
        self._tell = properties.get("error_cb")
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._at_end: set[Place] = set()
        #: The partitions that this member has been told of; None: it has not joined.
        self._held: set[Place] | None = None
        self._callbacks: dict[str, Callable[[Any, Any], None]] = {}
        self._closed = False

    # ---------------------------------------------------------------------------------------------------- reading

    def consume(self, count: int, timeout: float) -> list[Message]:
        return self._some(count)

    def poll(self, timeout: float) -> Message | None:
        broker, world = self.broker, self.broker.world
        until = world.us + int(timeout * 1e6)
        while True:
            found = self._some(1)
            if found or timeout == 0 or world.us >= until:
                return found[0] if found else None
            broker.waiting.append(world.current)
            world.pause(min(until - world.us, 200_000))

    def _some(self, count: int) -> list[Message]:
        broker = self.broker
        if broker.world.current.process.dead:
            raise Crashed
        if self.is_stuck:
            return []
        if broker.is_away:
            if self._tell is not None:
                self._tell(ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN))
            return []
        self._rebalance()
        found: list[Message] = []
        for place in list(self._positions):
            if place not in self._paused and len(found) < count:
                found += self._of(place, count - len(found))
        return found

    def _of(self, place: Place, count: int) -> list[Message]:
        broker, log, at = self.broker, self.broker.log(place), self._positions[place]
        if at < log.first or at > log.end:
            del self._positions[place]
            return [Message(place, at, error=ck.KafkaError(ck.KafkaError._AUTO_OFFSET_RESET))]
        end = log.stable_end if self._committed_only else log.end
        most = min(count, 1 + int(broker.world.random.random() * 8))
        found: list[Message] = []
        while at < end and len(found) < most:
            entry = log.entries[at - log.first]
            if is_seen(entry) or (not self._committed_only and not entry.is_marker):
                found.append(Message(place, at, entry))
            at += 1
        if found:
            broker.world.step(f"{broker.name}.done", f"gives {place[0]}-{place[1]} {found[0].offset()} to {at}")
        moved = at != self._positions[place]
        self._positions[place] = at
        if at < end or moved:
            self._at_end.discard(place)
        if at >= end and len(found) < count and place not in self._at_end:
            self._at_end.add(place)
            found.append(Message(place, at, error=ck.KafkaError(ck.KafkaError._PARTITION_EOF)))
        return found

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        for each in partitions:
            place = each.topic, each.partition
            self._positions[place] = self.broker.log(place).end if each.offset == ck.OFFSET_END else each.offset
            self._at_end.discard(place)

    def incremental_unassign(self, partitions: Sequence[Any]) -> None:
        for each in partitions:
            self._positions.pop((each.topic, each.partition), None)
            self._paused.discard((each.topic, each.partition))

    def pause(self, partitions: Sequence[Any]) -> None:
        self._paused.update((each.topic, each.partition) for each in partitions)

    def resume(self, partitions: Sequence[Any]) -> None:
        self._paused.difference_update((each.topic, each.partition) for each in partitions)

    def seek(self, partition: Any) -> None:
        place = partition.topic, partition.partition
        if place not in self._positions:
            raise failure(ck.KafkaError._STATE)
        self._positions[place] = partition.offset
        self._at_end.discard(place)

    # ------------------------------------------------------------------------------------------------------ groups

    def subscribe(self, topics: Sequence[str], **callbacks: Callable[[Any, Any], None]) -> None:
        self.topics, self._callbacks = topics, callbacks

    def _rebalance(self) -> None:
        if not self.topics or self._closed:
            return
        broker, group = self.broker, self.broker.groups.setdefault(self._group, _Group())
        if self not in group.members:
            lost, self._held = self._held, set()
            if lost:
                self._call("on_lost", lost)
            self.request(f"join {self._group}")
            self.heard_us = broker.world.us
            group.members.append(self)
            broker.wake()
        assert self._held is not None
        wanted = broker.wanted(self._group, self)
        if given_up := self._held - wanted:
            self._held -= given_up
            self._call("on_revoke", given_up)
            for place in given_up:
                if group.owners.get(place) is self:
                    del group.owners[place]
            broker.wake()
        taken = {place for place in wanted - self._held if place not in group.owners}
        if taken and self in group.members:
            group.owners.update(dict.fromkeys(taken, self))
            self._held |= taken
            broker.world.step(broker.name, f"gives {self._group} {sorted(taken)}")
            self._call("on_assign", taken)

    def _call(self, name: str, places: set[Place]) -> None:
        self._callbacks[name](self, [ck.TopicPartition(*place) for place in sorted(places)])

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> Sequence[Any]:
        broker, group = self.broker, self.broker.groups.setdefault(self._group, _Group())
        if self.is_stuck:
            broker.world.pause(_COORDINATOR_US)
            raise failure(ck.KafkaError._WAIT_COORD)
        shown = {f"{each.topic}-{each.partition}": each.offset for each in offsets}
        self.request(f"commit {self._group} {shown}")
        if self.topics and self not in group.members:
            raise failure(_UNKNOWN_MEMBER)
        if (
            self.topics
            and broker.wanted(self._group, self) != self._held
            and broker.world.random.random() < broker.refused
        ):
            raise failure(_REBALANCING)
        for each in offsets:
            group.commits[each.topic, each.partition] = each.offset, each.metadata
        if broker.fails(f"commit {self._group}: its answer was lost"):
            raise failure(ck.KafkaError._TIMED_OUT)
        return offsets

    def committed(self, partitions: Sequence[Any], timeout: float) -> Sequence[Any]:
        self.request(f"committed {self._group}", timeout)
        group = self.broker.groups.setdefault(self._group, _Group())
        found = []
        for each in partitions:
            offset, metadata = group.commits.get((each.topic, each.partition), (ck.OFFSET_INVALID, None))
            found.append(ck.TopicPartition(each.topic, each.partition, offset, metadata or ""))
        return found

    def get_watermark_offsets(self, partition: Any, timeout: float, cached: bool = False) -> tuple[int, int]:
        self.request(f"bounds {partition.topic}-{partition.partition}", timeout)
        log = self.broker.log((partition.topic, partition.partition))
        return log.first, log.stable_end if self._committed_only else log.end

    def offsets_for_times(self, partitions: Sequence[Any], timeout: float) -> Sequence[Any]:
        self.request("offsets for times", timeout)
        found = []
        for each in partitions:
            log = self.broker.log((each.topic, each.partition))
            at = next((at for at, one in enumerate(log.entries) if (BEGIN_US + one.us) // 1000 >= each.offset), None)
            found.append(ck.TopicPartition(each.topic, each.partition, ck.OFFSET_END if at is None else log.first + at))
        return found

    def consumer_group_metadata(self) -> str:
        return self._group

    def close(self) -> None:
        if self.broker.world.current.process.dead:
            raise Crashed
        self.is_gone = True
        group = self.broker.groups.get(self._group)
        if not self._closed and not self.is_stuck and group is not None and self in group.members:
            held, self._held = self._held or set(), set()
            if held:
                self._call("on_revoke", held)
            self.broker.remove(self._group, self)
        self._closed = True


class Producer(Client):
    """Instead of ``confluent_kafka.Producer``."""

    def __init__(self, broker: Kafka, properties: Mapping[str, Any]) -> None:
        super().__init__(broker)
        self._name: str | None = properties.get("transactional.id")
        self._epoch = -1
        self._timeout = properties["delivery.timeout.ms"] / 1000
        self._queued: list[tuple[Place, bytes | None, bytes | None, Any]] = []
        self._turn = 0

    def produce_batch(self, topic: str, messages: Sequence[dict[str, Any]], partition: int, on_delivery: Any) -> None:
        for message in messages:
            number = partition
            if number < 0:
                number = self._turn % len(self.broker.logs[topic])
                self._turn += 1
            self._queued.append(((topic, number), message["value"], message.get("key"), on_delivery))

    def poll(self, timeout: float) -> int:
        self.broker.world.pause(int(timeout * 1e6))
        return 0

    def purge(self) -> None:
        self._queued.clear()
        self.is_gone = True

    def flush(self, timeout: float) -> int:
        if not self._queued:
            return 0
        broker, world = self.broker, self.broker.world
        queued, self._queued = self._queued, []
        world.step(broker.name, f"write {len(queued)} records")
        world.pause(int(_US * (0.5 + world.random.random())))
        self._check_epoch()
        stored = len(queued)
        until = world.us + int(self._timeout * 1e6)
        while (self.is_stuck or broker.is_away) and world.us < until:
            world.pause(100_000)
        if self.is_stuck:
            stored = 0
        elif broker.fails("write"):
            stored = int(world.random.random() * (len(queued) + 1))
        transaction = broker.open.get(self._name) if self._name is not None else None
        for at, (place, value, key, told) in enumerate(queued):
            if at < stored:
                if transaction is not None:
                    transaction.places.add(place)
                broker.store(place, value, key, transaction)
            else:
                if transaction is None and world.random.random() < 0.3:
                    broker.later(place, value, key)
                told(ck.KafkaError(ck.KafkaError._MSG_TIMED_OUT), Message(place, 0))
        if stored == len(queued) and broker.fails("write: its answer was lost"):
            place, _, _, told = queued[-1]
            told(ck.KafkaError(ck.KafkaError._MSG_TIMED_OUT), Message(place, 0))
        world.step(f"{broker.name}.done", f"written {stored} of {len(queued)}")
        return 0

    # ------------------------------------------------------------------------------------------------ transactions

    def init_transactions(self, timeout: float) -> None:
        assert self._name is not None
        self.request(f"begin as {self._name}", timeout)
        self.broker.end_transaction(self._name, "aborted")
        self._epoch = self.broker.epochs[self._name] = self.broker.epochs.get(self._name, -1) + 1

    def begin_transaction(self) -> None:
        assert self._name is not None
        self._check_epoch()
        self.broker.open[self._name] = Transaction()

    def send_offsets_to_transaction(self, offsets: Sequence[Any], group: str, timeout: float) -> None:
        assert self._name is not None
        self.request("offsets of a transaction", timeout)
        self._check_epoch()
        transaction = self.broker.open.get(self._name)
        if transaction is None:
            raise failure(ck.KafkaError._STATE)
        for each in offsets:
            transaction.offsets[group, (each.topic, each.partition)] = each.offset, each.metadata

    def commit_transaction(self, timeout: float) -> None:
        assert self._name is not None
        self.request(f"commit as {self._name}", timeout)
        self._check_epoch()
        self.broker.end_transaction(self._name, "committed")
        self.broker.world.step(f"{self.broker.name}.done", f"committed as {self._name}")
        if self.broker.fails("commit: its answer was lost"):
            raise failure(ck.KafkaError._TIMED_OUT)

    def abort_transaction(self, timeout: float) -> None:
        assert self._name is not None
        self.request(f"abort as {self._name}", timeout)
        self._check_epoch()
        self.broker.end_transaction(self._name, "aborted")

    def _check_epoch(self) -> None:
        if self._name is not None and self.broker.epochs.get(self._name) != self._epoch:
            raise failure(ck.KafkaError._FENCED, fatal=True)
