"""The contract suite: the sink with ids of rows, with ids of the user's and into a data stream, and the source."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pytest
from elasticsearch_world import Cluster, Relay
from headrace_contract.sink import SinkContract
from headrace_contract.source import SourceContract
from headrace_contract.tasks import Moment
from headrace_contract.values import ALL_TYPES
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)

from tests.json_values import as_json_value
from tests.servers.elasticsearch import ElasticsearchServer

#: The moments at which a kill does most harm: where every one is tried takes long.
FEW_MOMENTS = (Moment(1, "after"), Moment(3, "inside", 0.5), Moment(3, "after"))
NOBODY = "http://127.0.0.1:1"


class WithServer:
    """Gives each check the shared server behind a relay, which can be cut, and names of its own."""

    cluster: Cluster
    relay: Relay

    @pytest.fixture(autouse=True)
    def _server(self, elasticsearch_server: ElasticsearchServer, index_name: str) -> Iterator[None]:
        self.cluster = Cluster(elasticsearch_server.url, index_name)
        self.relay = Relay(self.cluster.host, self.cluster.port)
        yield
        self.relay.cut()
        self.cluster.close()

    def options(self, **more: Any) -> dict[str, Any]:
        return self.cluster.options(**{"url": self.relay.url, **more})

    def begin_outage(self) -> None:
        self.relay.cut()

    def end_outage(self) -> None:
        self.relay.open()


def sink_of(options: Mapping[str, Any]) -> ElasticsearchSink:
    return ElasticsearchSink(ElasticsearchSinkSettings.of(options, plugin="elasticsearch"))


class SinkChecks(WithServer, SinkContract):
    plugin = "elasticsearch"
    types: ClassVar[Sequence[str]] = ALL_TYPES
    more: ClassVar[Mapping[str, Any]] = {}

    def make_sink(self) -> ElasticsearchSink:
        return sink_of(self.options(create_index=True, index_settings={"number_of_replicas": 0}, **self.more))

    def make_with_secret(self, secret: str) -> ElasticsearchSink:
        return sink_of({**self.options(url=NOBODY), "user": "somebody", "password": secret})

    def make_sink_without_target(self) -> ElasticsearchSink:
        return sink_of(self.options(index="nothing-that-is-there"))

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"id": "int64", "_id": "string"}

    def bad_row(self) -> dict[str, Any]:
        # The field is one of addresses, as the check below has it.
        return {**self.make_row(10**9), "text": "no address"}

    def make_row(self, number: int) -> dict[str, Any]:
        row = super().make_row(number)
        return {**row, "text": f"10.0.0.{number % 250}"} if getattr(self, "_of_addresses", False) else row

    def test_bad_row_goes_to_dead_letters(self) -> None:
        self._of_addresses = True
        self.cluster.create(properties={"text": {"type": "ip"}})
        super().test_bad_row_goes_to_dead_letters()

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        # Fields that the server made of the first number are float, whatever numbers come.
        properties = {} if type(self) is TestUnknownColumns else self.cluster.mapping()
        return [
            {name: _as_stored(value, properties.get(name, {})) for name, value in document.items()}
            for document in self.cluster.documents()
        ]

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: as_json_value(value) for name, value in row.items()}


def _as_stored(value: Any, mapping: Mapping[str, Any]) -> Any:
    """Return a value of a document, with the types that JSON does not have told by the mapping."""
    if value is not None and mapping.get("enabled") is False:
        return json.dumps(value)
    if isinstance(value, float) and mapping.get("type") == "float":
        return float(np.float32(value))
    return Decimal(value) if mapping.get("type") == "double" and isinstance(value, str) else value


class TestRowIds(SinkChecks):
    """Documents are known by the place of their row."""


class TestUserIds(SinkChecks):
    """Documents are known by a column, and replaced only by rows that are not older."""

    more: ClassVar[Mapping[str, Any]] = {"id": "doc-{id}", "version": "offset", "compress": True}
    key = ("id",)
    types: ClassVar[Sequence[str]] = ("string", "int64", "decimal(38, 18)")
    crash_moments = FEW_MOMENTS


class TestUnknownColumns(SinkChecks):
    """Rows into an index that is there, whose fields the server makes of what comes."""

    types: ClassVar[Sequence[str]] = ("string",)
    crash_moments = FEW_MOMENTS

    def make_sink(self) -> ElasticsearchSink:
        return sink_of(self.options())

    def create_target(self, schema: Any) -> None:
        if not self.cluster.client.indices.exists(index=self.cluster.name()):
            self.cluster.create()


class TestDataStream(SinkChecks):
    """Documents of a data stream, which are never changed."""

    schema: ClassVar[Mapping[str, Any]] = {"id": "int64", "text": "string", "at": "timestamp"}
    types: ClassVar[Sequence[str]] = ()
    nullable = False
    longest_text = 0
    crash_moments = FEW_MOMENTS
    weaknesses: ClassVar[Mapping[str, str]] = {
        "test_rows_of_unknown_columns": "documents of a data stream need a time: a row without one is a dead letter",
    }
    more: ClassVar[Mapping[str, Any]] = {"data_stream": True, "index_time": "at", "mappings": {"text": "ip"}}

    @pytest.fixture(autouse=True)
    def _addresses(self) -> None:
        self._of_addresses = True

    def test_bad_row_goes_to_dead_letters(self) -> None:
        SinkContract.test_bad_row_goes_to_dead_letters(self)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        if not self.cluster.client.indices.exists(index=self.cluster.name()):
            return []
        return self.cluster.documents(self.cluster.name())


class TestShards(WithServer, SourceContract):
    """Indices of one shard, found by a pattern. The mapping is closed, so that any document can be written."""

    plugin = "elasticsearch"
    #: A poll at the end asks the server once, which takes longer than reading a variable.
    zero_timeout_limit = dt.timedelta(milliseconds=500)
    odd_bodies: ClassVar[Sequence[bytes]] = (
        b"{}",
        b'{ "b" : 1, "a":\t[1.50, 1e2] }',
        '{"text": "grüße 漢字 🙂 \\u00e9\\n\\u0000"}'.encode(),
        json.dumps({"text": "x" * 300_000}).encode(),
    )

    @pytest.fixture(autouse=True)
    def _indices(self, _server: None) -> None:
        self.indices = itertools.count()

    def make_source(self) -> ElasticsearchSource:
        return self.source_of(self.options(index=self.cluster.name("*"), page_rows=40))

    def source_of(self, options: Mapping[str, Any]) -> ElasticsearchSource:
        return ElasticsearchSource(ElasticsearchSourceSettings.of(options, plugin="elasticsearch"))

    def make_missing_source(self) -> ElasticsearchSource:
        return self.source_of(self.options(index="nothing-that-is-there"))

    def make_with_secret(self, secret: str) -> ElasticsearchSource:
        return self.source_of({**self.options(url=NOBODY), "api_key": secret})

    def bad_body(self) -> bytes:
        return b'{"number": "seventeen", "text": "x"}'

    def add_queue(self) -> str:
        name = self.cluster.name(str(next(self.indices)))
        self.cluster.client.indices.create(
            index=name, mappings={"dynamic": False}, settings={"number_of_replicas": 0, "number_of_shards": 1}
        )
        return f"{name}/0"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        if bodies:
            self.cluster.add(queue.partition("/")[0], bodies)

    def remove_queue(self, queue: str) -> None:
        self.cluster.client.indices.delete(index=queue.partition("/")[0])
