"""What instances that share a job read: topics of a broker, which also has those of the job itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import msgspec
from headrace.interfaces.source import Source
from headrace_contract.memory_topics import MemoryTopics, MemoryTopicSettings, MemoryTopicSource
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from headrace_kafka.topics import KafkaTopics
from headrace_light.shared import stages
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.simulation.brokers import Broker
from tests.simulation.kafka import Kafka
from tests.simulation.kafka_log import is_seen
from tests.simulation.rocketmq import RocketMQ
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Process, World

#: What an instance may send to a shard whose owner has stopped already.
_RECORDS_LEFT_MAX = 4
#: The kinds of brokers, by what histories call them.
BROKERS = ("memory", "rocketmq", "kafka")


class SharedInput(ABC):
    """A broker. ``server``: whose calls fail."""

    server: Any
    broker: Any
    #: How often ``tick`` is called, and within which time all rows must be there after the last fault.
    tick_us = 300_000
    progress_us = 120_000_000
    steps_max = 60_000

    def add_queue(self, topic: str) -> None:
        """Make one more queue of a topic."""
        self.broker.add_queue(topic)

    def put(self, topic: str, queue: int, body: bytes) -> None:
        """Append a record, as a producer beside the job whose calls do not fail."""
        self.broker.put(topic, queue, body)

    def tick(self) -> None:
        """Do what a broker does from time to time. Called by a process of the broker."""
        self.broker.tick()

    @abstractmethod
    def source(self, topic: str) -> Source:
        """Return a new source. Called in the process of an instance."""

    def left(self, versions: int) -> list[str]:
        """Return what the job's own topics should not have when it has stopped. ``versions``: of a state, until the next snapshot."""
        return []

    def standing_in(self) -> AbstractContextManager[None]:
        """Return a context in which the broker stands at the place of drivers."""
        return nullcontext()

    @abstractmethod
    def expel(self, sources: Iterable[Source], process: Process) -> None:
        """Take the members of a process for dead."""


def _too_many(topics: Mapping[str, Sequence[Sequence[bytes | None]]], versions: int) -> list[str]:
    """Return in which queues of the job's own topics more records or versions stay than a job needs.

    Of a state the last two snapshots stay, with what follows each; of a shuffle what came while instances stopped.
    """
    found = []
    for topic, queues in topics.items():
        is_state = topic.endswith("-state")
        if not topic.startswith("headrace-") or not (is_state or stages._TRIM_SECONDS == 0):
            continue
        most = 2 * versions + 2 if is_state else _RECORDS_LEFT_MAX
        for number, bodies in enumerate(queues):
            count = len(bodies)
            if is_state:  # a version has several records in a world where they are small
                count = len({msgspec.msgpack.decode(each)["id"] for each in bodies if each is not None})
            if count > most:
                found.append(f"{count} records or versions stay in {topic} {number}, and not {most} at most")
    return found


class _Memory(SharedInput):
    def __init__(self, world: World, session_us: int) -> None:
        self.broker = Broker(world, session_us=session_us)
        self.server = self.broker.server

    def tick(self) -> None:
        self.broker.expel_silent()

    def left(self, versions: int) -> list[str]:
        topics = self.broker._topics.items()
        return _too_many({topic: [queue.bodies for queue in queues] for topic, queues in topics}, versions)

    def standing_in(self) -> AbstractContextManager[None]:
        """Return a context in which records of the broker are as large as those of Kafka, so that one limit of parts fits both."""
        return patch.dict(MemoryTopics.__init__.__kwdefaults__, max_record_bytes=KafkaTopics.max_record_bytes)

    def source(self, topic: str) -> Source:
        return MemoryTopicSource(MemoryTopicSettings(broker=self.broker.name, topic=topic, group="job"))

    def expel(self, sources: Iterable[Source], process: Process) -> None:
        for source in sources:
            if isinstance(source, MemoryTopicSource) and source.member is not None:
                self.broker._remove(source.settings.topic, source.settings.group_id, source.member)


class _RocketMQ(SharedInput):
    tick_us = 100_000
    # A member that has lost its broker waits for the others, and looks every 20 s whether something has changed.
    progress_us = 400_000_000
    steps_max = 400_000

    def __init__(self, world: World) -> None:
        world.network = world.network or Network(world)
        self.server = self.broker = RocketMQ(world, "broker", world.network)

    def source(self, topic: str) -> Source:
        given = {"topic": topic, "name_servers": "mq:9876"}
        return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))

    def expel(self, sources: Iterable[Source], process: Process) -> None:
        self.broker.expel(lambda connection: connection.process is process)


class _Kafka(SharedInput):
    tick_us = 100_000
    progress_us = 200_000_000
    steps_max = 300_000
    broker: Kafka

    def __init__(self, world: World, session_us: int) -> None:
        self.server = self.broker = Kafka(world, "broker", session_us)

    def left(self, versions: int) -> list[str]:
        logs = self.broker.logs.items()
        seen = {
            topic: [[entry.value for entry in log.entries if is_seen(entry)] for log in queues]
            for topic, queues in logs
        }
        return _too_many(seen, versions)

    def source(self, topic: str) -> Source:
        given = {"topic": topic, "servers": "kafka:9092", "group": "job", "driver": "confluent"}
        return KafkaSource(KafkaSourceSettings.of(given, plugin="kafka"))

    def expel(self, sources: Iterable[Source], process: Process) -> None:
        self.broker.expel(process)

    def standing_in(self) -> AbstractContextManager[None]:
        return self.broker.standing_in()


def input_of(kind: str, world: World, session_us: int) -> SharedInput:
    """Return the broker that a history calls so."""
    if kind == "kafka":
        return _Kafka(world, session_us)
    return _RocketMQ(world) if kind == "rocketmq" else _Memory(world, session_us)
