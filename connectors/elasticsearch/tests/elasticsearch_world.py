"""What the tests share: a cluster as somebody else sees it, rows of known numbers, sinks and sources as a job has them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import elasticsearch
import elasticsearch.helpers
from headrace.flow.messages import Batch
from headrace.runtime.sink_writer import SinkWriter
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)

from tests import relay
from tests.sink_tests import as_in_a_job

ID = {"id": "int64"}


class Cluster:
    """A server, the names of one test on it, and a client that has nothing to do with the connector's."""

    def __init__(self, url: str, prefix: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 9200
        self._login = {"user": parts.username, "password": parts.password} if parts.username else {}
        self.url = f"{parts.scheme}://{self.host}:{self.port}"
        self.prefix = prefix
        self.client = elasticsearch.Elasticsearch(url, request_timeout=60)

    def name(self, name: str = "") -> str:
        """Return a name that only this test has."""
        return f"{self.prefix}-{name}" if name else self.prefix

    def create(self, name: str = "", properties: Mapping[str, Any] | None = None, **settings: Any) -> str:
        """Create an index without replicas and return its name."""
        index = self.name(name)
        mappings = None if properties is None else {"properties": dict(properties)}
        self.client.indices.create(
            index=index, mappings=mappings, settings={"number_of_replicas": 0, "number_of_shards": 1, **settings}
        )
        return index

    def add(self, index: str, documents: Sequence[Mapping[str, Any] | bytes], ids: Sequence[str] | None = None) -> None:
        """Write documents in this order. Bytes go as they are."""
        lines: list[Any] = []  # the client takes bytes too, but does not say so in its types
        for at, document in enumerate(documents):
            lines.append(json.dumps({"index": {} if ids is None else {"_id": ids[at]}}).encode())
            lines.append(document if isinstance(document, bytes) else json.dumps(document).encode())
        answer = self.client.bulk(index=index, operations=lines)
        assert not answer["errors"], answer

    def hits(self, index: str | None = None) -> list[dict[str, Any]]:
        """Return all documents with their ids, in no particular order."""
        index = index or f"{self.prefix}*"
        self.client.indices.refresh(index=index)
        return list(elasticsearch.helpers.scan(self.client, index=index, size=5000, version=True))

    def documents(self, index: str | None = None) -> list[dict[str, Any]]:
        return [hit["_source"] for hit in self.hits(index)]

    def ids(self, index: str | None = None, field: str = "id") -> list[Any]:
        """Return the values of a field, sorted: shows what is there twice."""
        return sorted(document[field] for document in self.documents(index))

    def mapping(self, index: str | None = None) -> dict[str, Any]:
        [found] = self.client.indices.get_mapping(index=index or self.name()).body.values()
        return dict(found["mappings"].get("properties", {}))

    def options(self, index: str = "", **more: Any) -> dict[str, Any]:
        """Return the options that name server and index."""
        return {"url": self.url, **self._login, "index": index or self.name(), **more}

    def sink(self, schema: Mapping[str, Any] | None = None, *, prepare: bool = True, **more: Any) -> ElasticsearchSink:
        """Return a sink as a job has it once it runs."""
        sink = ElasticsearchSink(ElasticsearchSinkSettings.of(self.options(**more), plugin="elasticsearch"))
        return as_in_a_job(sink, schema, prepare=prepare)

    def source(self, **more: Any) -> ElasticsearchSource:
        return ElasticsearchSource(ElasticsearchSourceSettings.of(self.options(**more), plugin="elasticsearch"))

    def close(self) -> None:
        self.client.options(ignore_status=404).indices.delete(index=f"{self.prefix}*", expand_wildcards="all")
        # A template in use by a data stream stays with it: the test server cannot delete data streams.
        self.client.options(ignore_status=[400, 404]).indices.delete_index_template(name=f"headrace-{self.prefix}*")
        self.client.close()


def writer_of(sink: ElasticsearchSink, dead_letters: list[Batch] | None = None) -> SinkWriter:
    """Return a writer; without a list for them, dead letters fail the test."""
    taking = _refuse if dead_letters is None else dead_letters.append
    return SinkWriter(sink, "to_elasticsearch", on_dead_letters=taking, auto_flush=False)


def _refuse(refused: Batch) -> None:
    raise AssertionError(f"dead letters: {refused.frame.to_dicts()}")


class Relay(relay.Relay):
    """A relay to the cluster that counts what clients say."""

    def __init__(self, host: str, port: int, address: str = "127.0.0.1") -> None:
        #: How often clients have said each of these.
        self.heard: dict[bytes, int] = {b"/_bulk": 0}
        super().__init__(relay.Address(host, port), address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _heard(self, data: bytes, losing: threading.Event) -> None:
        for text in self.heard:
            self.heard[text] += data.count(text)
        super()._heard(data, losing)
