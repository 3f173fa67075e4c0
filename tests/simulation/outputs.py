"""What a job of the simulation writes to: tables of the world, or simulated servers behind the connectors of headrace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from headrace.interfaces.sink import Sink, SinkSettings
from headrace_elasticsearch import ElasticsearchSink, ElasticsearchSinkSettings
from headrace_elasticsearch import connection as elasticsearch_connection
from headrace_mysql import MySQLSink, MySQLSinkSettings
from headrace_mysql import connection as mysql_connection

from tests.simulation.elasticsearch import Elasticsearch
from tests.simulation.jobs import Shape
from tests.simulation.mysql import MySQL
from tests.simulation.servers import SINKS, Server, Table
from tests.simulation.world.scheduler import World

#: Sinks of connectors, by what histories call them.
CONNECTORS = ("mysql", "elasticsearch", "elasticsearch creates")


class Output(ABC):
    """Where rows go. ``promised``: whether each comes once; ``server``: whose calls fail."""

    promised = True
    server: Server

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

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """While the body runs, the driver's place is taken by the simulated server."""
        yield

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
        self._more: dict[str, Any] = {"id": "k"} if shape.changes else {"mode": "create"} if creates else {}

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


def output_of(kind: str, world: World, shape: Shape) -> Output:
    """Return the output that a history calls so."""
    if kind == "mysql":
        return _MySQL(world, shape)
    if kind.startswith("elasticsearch"):
        return _Elasticsearch(world, shape, creates=kind.endswith("creates"))
    return _Table(world, kind)
