"""The contract of sinks over the simulated MySQL and Elasticsearch, in virtual time, beside the real servers of the connectors' tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from headrace_contract import SinkContract
from headrace_elasticsearch import ElasticsearchSink, ElasticsearchSinkSettings
from headrace_elasticsearch import connection as elasticsearch_connection
from headrace_mysql import MySQLSink, MySQLSinkSettings
from headrace_mysql import connection as mysql_connection

from tests.simulation.elasticsearch import Elasticsearch
from tests.simulation.mysql import MySQL
from tests.simulation.test_contracts import _InWorld
from tests.simulation.world.scheduler import World

#: Every change runs these checks on the real servers; histories that mean another thing than those are seen by the nightly run.
pytestmark = pytest.mark.slow


class _Checks(_InWorld, SinkContract):
    longest_text = 5_000
    test_kill_keeps_the_guarantee = test_kill_after_checkpoint_loses_nothing = None  # type: ignore[assignment]
    test_paused_process_adds_nothing = None  # type: ignore[assignment]
    test_close_ends_threads = None  # type: ignore[assignment]

    def _tick(self, world: World) -> None:
        """Nothing happens by itself."""


class TestSimulatedElasticsearchSink(_Checks):
    def server(self, world: World) -> Any:
        return _ElasticsearchServer(world)

    def make_sink(self) -> ElasticsearchSink:
        given = {
            "url": "http://es:9200",
            "index": self.unique_name,
            "create_index": True,
            "request_rows": 2,
            "parallel_requests": 2,
        }
        return ElasticsearchSink(ElasticsearchSinkSettings.of(given, plugin="elasticsearch"))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        self.simulated.settle(all_of_them=True)
        return list(self.simulated.indices.get(self.unique_name, {}).values())


class _ElasticsearchServer(Elasticsearch):
    def __init__(self, world: World) -> None:
        super().__init__(world, "es")

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with patch.object(elasticsearch_connection, "_Node", self.node()):
            yield


class _MySQLServer(MySQL):
    def __init__(self, world: World) -> None:
        super().__init__(world, "db")

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with patch.object(mysql_connection, "GuardedConnection", self.connection):
            yield


class TestSimulatedMySQLSink(_Checks):
    def server(self, world: World) -> Any:
        return _MySQLServer(world)

    def make_sink(self) -> MySQLSink:
        given = {
            "host": "db",
            "user": "u",
            "password": "p",
            "database": "d",
            "table": self.unique_name,
            "create_table": True,
        }
        return MySQLSink(MySQLSinkSettings.of(given, plugin="mysql"))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.simulated.rows_of(self.unique_name)
        return found
