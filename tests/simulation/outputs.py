"""What a job of the simulation writes to: tables of the world, or simulated servers behind the connectors of headrace."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

from headrace.interfaces.sink import Sink, SinkSettings
from headrace_elasticsearch import ElasticsearchSink, ElasticsearchSinkSettings
from headrace_elasticsearch import connection as elasticsearch_connection
from headrace_kafka.settings import KafkaSinkSettings
from headrace_kafka.sink import KafkaSink
from headrace_mysql import MySQLSink, MySQLSinkSettings
from headrace_mysql import connection as mysql_connection
from headrace_rocketmq.settings import RocketMQSinkSettings
from headrace_rocketmq.sink import RocketMQSink

from tests.simulation.elasticsearch import Elasticsearch, row_of
from tests.simulation.jobs import Shape
from tests.simulation.kafka import Kafka
from tests.simulation.mysql import MySQL
from tests.simulation.rocketmq import RocketMQ
from tests.simulation.servers import SINKS, Table, shown
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import World

#: Sinks of connectors, by what histories call them.
CONNECTORS = ("mysql", "elasticsearch", "elasticsearch creates", "kafka", "rocketmq")


class Output(ABC):
    """Where rows go. ``promised``: whether each comes once; ``server``: whose calls fail."""

    promised = True
    server: Any

    @abstractmethod
    def sink(self, options: Mapping[str, Any]) -> Sink:
        """Return a new sink. Called in the process of a start."""

    @abstractmethod
    def there(self) -> Counter[str]:
        """Return the rows that are there, and how often each."""

    @property
    @abstractmethod
    def faults(self) -> list[str]:
        """What was wrong with rows that came."""

    def standing_in(self) -> AbstractContextManager[None]:
        """Return a context in which the simulated server stands at the place of the driver."""
        return nullcontext()

    def settle(self) -> None:
        """Everything that is still on its way comes. Called at the end."""


class _Table(Output):
    def __init__(self, world: World, kind: str) -> None:
        self.server = self.table = Table(world, "table")
        self._kind = SINKS[kind]
        self.promised = kind != "plain"

    def sink(self, options: Mapping[str, Any]) -> Sink:
        return self._kind(self.table, SinkSettings(**options))

    def there(self) -> Counter[str]:
        return self.table.there()

    @property
    def faults(self) -> list[str]:
        return self.table.faults

    def settle(self) -> None:
        self.table.settle(end=True)


class _MySQL(Output):
    def __init__(self, world: World, shape: Shape) -> None:
        self.server = self.mysql = MySQL(world, "table")
        # Which transactions deadlock is a matter of the world, not of the history.
        self.mysql.deadlocks = 0.05 if Random(world.random.random()).random() < 0.3 else 0.0
        self._key = {"key": ["k"], "mode": "upsert"} if shape.changes else {}

    def sink(self, options: Mapping[str, Any]) -> Sink:
        given = {
            "host": "db",
            "user": "u",
            "password": "p",
            "database": "d",
            "table": "rows",
            "create_table": True,
            **self._key,
        }
        return MySQLSink(MySQLSinkSettings.of({**options, **given}, plugin="mysql"))

    def there(self) -> Counter[str]:
        return self.mysql.there("rows")

    @property
    def faults(self) -> list[str]:
        return self.mysql.faults

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with patch.object(mysql_connection, "GuardedConnection", self.mysql.connection):
            yield


class _Elasticsearch(Output):
    def __init__(self, world: World, shape: Shape, *, creates: bool) -> None:
        self.server = self.cluster = Elasticsearch(world, "table")
        self.cluster.busy = 0.1 if Random(world.random.random()).random() < 0.3 else 0.0
        self.cluster.unchanging = not shape.changes
        # A document that changes needs a version, as the page of the connector says: a request can be carried out late.
        changing = {"id": "k", "version": "offset"}
        self._more: dict[str, Any] = changing if shape.changes else {"mode": "create"} if creates else {}

    def sink(self, options: Mapping[str, Any]) -> Sink:
        given = {
            "url": "http://es:9200",
            "index": "rows",
            "create_index": True,
            "request_rows": 2,
            "parallel_requests": 2,
        }
        return ElasticsearchSink(
            ElasticsearchSinkSettings.of({**options, **given, **self._more}, plugin="elasticsearch")
        )

    def there(self) -> Counter[str]:
        return self.cluster.there("rows")

    @property
    def faults(self) -> list[str]:
        return self.cluster.faults

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with patch.object(elasticsearch_connection, "_Node", self.cluster.node()):
            yield

    def settle(self) -> None:
        self.cluster.settle(all_of_them=True)


class _Kafka(Output):
    """A topic that is written in transactions."""

    def __init__(self, world: World, broker: Kafka | None) -> None:
        self._own = broker is None
        self.server = self.broker = Kafka(world, "table", 3_000_000) if broker is None else broker

    def sink(self, options: Mapping[str, Any]) -> Sink:
        given = {"topic": "rows", "servers": "kafka:9092", "delivery": "exactly_once", "create_topic": True, "partitions": 2,
                 "driver": "confluent", "delivery_timeout": "2 s"}  # fmt: skip
        return KafkaSink(KafkaSinkSettings.of({**options, **given}, plugin="kafka"))

    def there(self) -> Counter[str]:
        return Counter(shown(row_of(json.loads(body))) for body in self.broker.bodies("rows"))

    @property
    def faults(self) -> list[str]:
        return []

    def standing_in(self) -> AbstractContextManager[None]:
        return self.broker.standing_in() if self._own else nullcontext()


class _RocketMQ(Output):
    """A topic whose readers leave out what was written again."""

    def __init__(self, world: World, broker: RocketMQ | None) -> None:
        if broker is None:
            world.network = world.network or Network(world)
            broker = RocketMQ(world, "table", world.network)
        self.server = self.broker = broker

    def sink(self, options: Mapping[str, Any]) -> Sink:
        given = {
            "topic": "rows",
            "name_servers": "mq:9876",
            "delivery": "idempotent",
            "create_topic": True,
            "queues": 2,
        }
        return RocketMQSink(RocketMQSinkSettings.of({**options, **given}, plugin="rocketmq"))

    def there(self) -> Counter[str]:
        return Counter(shown(row_of(json.loads(body))) for body in self.broker.bodies("rows"))

    @property
    def faults(self) -> list[str]:
        return []


def output_of(kind: str, world: World, shape: Shape, broker: Any = None) -> Output:
    """Return the output that a history calls so. ``broker``: that of the input, which a sink into topics shares if it is of its kind."""
    if kind == "kafka":
        return _Kafka(world, broker if isinstance(broker, Kafka) else None)
    if kind == "rocketmq":
        return _RocketMQ(world, broker if isinstance(broker, RocketMQ) else None)
    if kind == "mysql":
        return _MySQL(world, shape)
    if kind.startswith("elasticsearch"):
        return _Elasticsearch(world, shape, creates=kind.endswith("creates"))
    return _Table(world, kind)
