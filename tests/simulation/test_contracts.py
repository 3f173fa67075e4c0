"""The contract suites that hold the real servers hold the simulated ones: a history over them means what it says.

Each check runs as a process of a world, in virtual time. Checks that start processes of the operating system cannot run there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace.interfaces.topics import Topics
from headrace_contract import (
    GroupSourceContract,
    KeyedStateStoreContract,
    SinkContract,
    SourceContract,
    TopicsContract,
)
from headrace_contract.source_harness import SourceHarness
from headrace_kafka.settings import KafkaSinkSettings, KafkaSourceSettings
from headrace_kafka.sink import KafkaSink
from headrace_kafka.source import KafkaSource
from headrace_rocketmq.settings import RocketMQSinkSettings, RocketMQSourceSettings
from headrace_rocketmq.sink import RocketMQSink
from headrace_rocketmq.source import RocketMQSource

from tests.simulation.entering import inside
from tests.simulation.kafka import Kafka
from tests.simulation.kafka_log import Log
from tests.simulation.rocketmq import RocketMQ
from tests.simulation.state_stores import SimulatedStateStore, StateServer
from tests.simulation.world.disk import Disk
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import World

_STEPS_MAX = 5_000_000
_TICK_US = 100_000


class _InWorld:
    """A check in a world of its own. ``simulated`` is the server."""

    simulated: Any

    def server(self, world: World) -> Any:
        """Make the server."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _world(self, tmp_path: Any) -> Iterator[None]:
        world = World("contract", preempt=0.02, steps_max=_STEPS_MAX)
        os.mkdir(place := os.path.join(tmp_path, "disk"))
        with inside(world, Disk(world, place)):
            self.simulated = self.server(world)
            beside = world.process("broker", lambda: self._tick(world))
            world.pause(1)  # its thread is there before that of a sink
            with getattr(self.simulated, "standing_in", nullcontext)():
                yield
            world.kill(beside, "end")
            world.run(beside)

    def _tick(self, world: World) -> None:
        while True:
            world.pause(_TICK_US)
            self.simulated.tick()

    def begin_outage(self) -> None:
        self.simulated.away = [(0, 10**15)]

    def end_outage(self) -> None:
        self.simulated.away = []
        time.sleep(6)  # clients that could not connect wait a while before they try again


class _OnKafka(_InWorld):
    plugin = "kafka"
    driver = "confluent"
    several_processes: ClassVar[bool] = False

    def server(self, world: World) -> Kafka:
        broker = Kafka(world, "broker", 6_000_000)
        broker.refused = 0.0  # a harder broker than the contract asks for
        return broker

    def make(self: Any, **options: Any) -> KafkaSource:
        given = {
            "topic": self.unique_name,
            "servers": "kafka:9092",
            "driver": "confluent",
            "connect_timeout": "5 s",
            **options,
        }
        made = KafkaSource(KafkaSourceSettings.of(given, plugin="kafka"))
        made.header_fields = frozenset({"time"})
        return made


class TestSimulatedKafkaTopics(_OnKafka, TopicsContract):
    many_records = 2_000

    def make_topics(self) -> Topics:
        return self.make(topic="input").topics()


class _KafkaSourceWorld(_OnKafka, SourceHarness):
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")

    def make_source(self) -> KafkaSource:
        return self.make(session_timeout="6 s")

    def add_queue(self) -> str:
        self.simulated.add_queue(self.unique_name)
        return f"{self.unique_name}-{len(self.simulated.logs[self.unique_name]) - 1}"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        topic, _, partition = queue.rpartition("-")
        for body in bodies:
            self.simulated.put(topic, int(partition), body)

    def forget(self, queue: str, before: int) -> None:
        topic, _, partition = queue.rpartition("-")
        log: Log = self.simulated.log((topic, int(partition)))
        del log.entries[: before - log.first]
        log.first = before


class TestSimulatedKafkaSource(_KafkaSourceWorld, SourceContract):
    test_resume_after_kill = None  # type: ignore[assignment]


class TestSimulatedKafkaGroup(_KafkaSourceWorld, GroupSourceContract):
    patience = timedelta(seconds=60)
    test_a_dead_member_is_replaced = None  # type: ignore[assignment]


class _SinkChecks(_InWorld, SinkContract):
    """Rows as JSON in a topic."""

    longest_text = 500_000
    test_kill_keeps_the_guarantee = test_kill_after_checkpoint_loses_nothing = None  # type: ignore[assignment]
    test_paused_process_adds_nothing = None  # type: ignore[assignment]
    test_close_ends_threads = None  # type: ignore[assignment]  # in a world the thread of the check's time limit begins late

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(body) for body in self.simulated.bodies(self.unique_name)]


class TestSimulatedKafkaSink(_SinkChecks):
    plugin = "kafka"
    delivery: ClassVar[str] = "at_least_once"

    def server(self, world: World) -> Kafka:
        return Kafka(world, "broker", 6_000_000)

    def make_sink(self) -> KafkaSink:
        given = {
            "topic": self.unique_name, "servers": "kafka:9092", "driver": "confluent", "delivery": self.delivery,
            "delivery_timeout": "3 s", "create_topic": True, "partitions": 2,
        }  # fmt: skip
        return KafkaSink(KafkaSinkSettings.of(given, plugin="kafka"))


class TestSimulatedKafkaTransactionalSink(TestSimulatedKafkaSink):
    delivery = "exactly_once"


class TestSimulatedStateStore(_InWorld, KeyedStateStoreContract):
    """The store of which histories of several instances make a third of their states."""

    #: The store of MySQL compresses versions; this one keeps what it is given.
    large_bytes = 1_000_000
    test_a_kill_leaves_whole_versions = test_a_kill_leaves_all_parts_of_a_version = None  # type: ignore[assignment]

    def server(self, world: World) -> StateServer:
        return StateServer(world)

    def _tick(self, world: World) -> None:
        """Nothing happens by itself."""

    def make_store(self) -> SimulatedStateStore:
        return SimulatedStateStore()


class _OnRocketMQ(_InWorld):
    plugin = "rocketmq"
    several_processes: ClassVar[bool] = False
    patience = timedelta(seconds=120)

    def server(self, world: World) -> RocketMQ:
        world.network = Network(world)
        return RocketMQ(world, "broker", world.network)

    def make(self: Any, **options: Any) -> RocketMQSource:
        given = {"topic": self.unique_name, "name_servers": "mq:9876", "request_timeout": "3 s", **options}
        return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))


class TestSimulatedRocketMQTopics(_OnRocketMQ, TopicsContract):
    many_records = 2_000

    def make_topics(self) -> Topics:
        return self.make(topic="input").topics()


class TestSimulatedRocketMQSink(_OnRocketMQ, _SinkChecks):
    def make_sink(self) -> RocketMQSink:
        given = {
            "topic": self.unique_name, "name_servers": "mq:9876", "create_topic": True, "queues": 2, "request_timeout": "3 s",
        }  # fmt: skip
        return RocketMQSink(RocketMQSinkSettings.of(given, plugin="rocketmq"))


class _RocketMQSourceWorld(_OnRocketMQ, SourceHarness):
    def make_source(self) -> RocketMQSource:
        return self.make()

    def add_queue(self) -> str:
        self.simulated.add_queue(self.unique_name)
        return f"{self.unique_name}/b/{len(self.simulated.topics[self.unique_name]) - 1}"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.simulated.put(self.unique_name, int(queue.rpartition("/")[2]), body)
        queues = self.simulated.topics[self.unique_name]
        while any(each.readable_us > self.simulated.world.us for one in queues for each in one.messages[-1:]):
            time.sleep(0.01)


class TestSimulatedRocketMQSource(_RocketMQSourceWorld, SourceContract):
    test_resume_after_kill = None  # type: ignore[assignment]


class TestSimulatedRocketMQGroup(_RocketMQSourceWorld, GroupSourceContract):
    test_a_dead_member_is_replaced = None  # type: ignore[assignment]
