"""A real registry, and a real Kafka: what headrace writes others read, and schemas change on the way."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.testing import MemorySource
from headrace_avro.confluent import AvroConfluentCodec
from headrace_avro.registry_settings import ConfluentSettings
from headrace_schemaregistry import SchemaRegistry

from tests.mixed_versions import BACKENDS, UNKNOWN_ID, framed, read_on
from tests.servers.fixtures import StartSchemaRegistryServer
from tests.servers.kafka import KafkaServer
from tests.servers.schema_registry import SchemaRegistryServer


def schema_of(**fields: Any) -> str:
    made = [{"name": n, "type": t, **({"default": None} if isinstance(t, list) else {})} for n, t in fields.items()]
    return json.dumps({"type": "record", "name": "order", "fields": made})


@pytest.fixture
def registry(schema_registry_server: SchemaRegistryServer) -> SchemaRegistry:
    return SchemaRegistry(ConfluentSettings(registry_url=schema_registry_server.url))


def test_the_protocol(registry: SchemaRegistry, fresh_name: Callable[[str], str]) -> None:
    subject, text = fresh_name("subject"), schema_of(id="long")
    assert registry.latest(subject) is None
    assert registry.registered(subject, text) is None
    made = registry.register(subject, text)
    assert registry.register(subject, text) == made
    assert registry.registered(subject, text) == made
    found = registry.by_id(made)
    assert found is not None
    assert json.loads(found.text) == json.loads(text)
    assert registry.by_id(2**31 - 1) is None
    latest = registry.latest(subject)
    assert latest is not None
    assert latest[0] == made


def test_schemas_that_change_through_kafka(
    schema_registry_server: SchemaRegistryServer, kafka_server: KafkaServer, topic: str
) -> None:
    """Two jobs write an older and a newer schema to one topic, and a third one reads both."""
    registry: dict[str, Any] = {"registry_url": schema_registry_server.url, "subject": f"{topic}-value"}
    for schema, rows in (
        ({"id": "int64", "name": "string"}, [b'{"id": 1, "name": "one"}', b'{"id": 2, "name": null}']),
        ({"id": "int64", "note": "string"}, [b'{"id": 3, "note": "newer"}']),
    ):
        source = hr.stream("test", "write").from_(MemorySource({"q": rows}), format="json", schema=schema)
        job = source.to_kafka(
            topic, servers=kafka_server.bootstrap, create_topic=True, format="avro-confluent", format_options=registry
        )
        job.run("light")
    stream = hr.stream("test", "read").from_kafka(
        topic,
        servers=kafka_server.bootstrap,
        format="avro-confluent",
        schema={"id": "int64", "name": "string", "note": "string"},
        registry_url=schema_registry_server.url,
    )
    rows_read = stream.collect().sort("id").rows()
    assert rows_read == [(1, "one", None), (2, None, None), (3, None, "newer")]


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_mixed_versions_on_each_backend(
    schema_registry_server: SchemaRegistryServer,
    registry: SchemaRegistry,
    kafka_server: KafkaServer,
    topic: str,
    tmp_path: Path,
    backend: Any,
    options: dict[str, Any],
) -> None:
    """Bodies of three versions come in turns, among them ids that the registry does not know: these are dead letters with the reason."""
    texts = [
        schema_of(id="int"),
        schema_of(id="long", name=["null", "string"]),
        schema_of(name=["null", "string"], id="long"),
    ]
    ids = [registry.register(f"{topic}-value", text) for text in texts]
    bodies = []
    for number in range(60):
        file, version = io.BytesIO(), number % 3
        fastavro.schemaless_writer(
            file, fastavro.parse_schema(json.loads(texts[version])), {"id": number, "name": f"n{number}"}
        )
        bodies.append(framed(ids[version] if number % 10 else UNKNOWN_ID, file.getvalue()))
    good, reasons = read_on(
        backend,
        options,
        kafka=kafka_server,
        topic=topic,
        bodies=bodies,
        place=tmp_path,
        format="avro-confluent",
        schema={"id": "int64", "name": "string"},
        registry_url=schema_registry_server.url,
    )
    assert good == [{"id": number, "name": f"n{number}" if number % 3 else None} for number in range(60) if number % 10]
    assert reasons == [f"the schema registry does not know the id {UNKNOWN_ID}"] * 6


def test_bodies_of_others(
    registry: SchemaRegistry, schema_registry_server: SchemaRegistryServer, fresh_name: Callable[[str], str]
) -> None:
    text = schema_of(id="long", tags={"type": "array", "items": "string"})
    made = registry.register(fresh_name("subject"), text)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(text)), {"id": 5, "tags": ["a", "b"]})
    codec = AvroConfluentCodec(ConfluentSettings(registry_url=schema_registry_server.url))
    decoder = codec.decoder(hr.Schema.of({"id": "int64", "tags": "array<string>"}))
    bodies = Bodies.of([b"\x00" + made.to_bytes(4, "big") + file.getvalue(), b"\x00\x7f\xff\xff\xff!"])
    decoded = decoder.decode(bodies)
    assert decoded.frame.rows() == [(5, ["a", "b"])]
    assert [bad.reason for bad in decoded.bad] == ["the schema registry does not know the id 2147483647"]


def test_a_registry_that_stops(start_schema_registry_server: StartSchemaRegistryServer) -> None:
    server = start_schema_registry_server()
    columns = hr.Schema.of({"id": "int64"})
    codec = AvroConfluentCodec(ConfluentSettings(registry_url=server.url, subject="rows"))
    [body] = codec.encoder(columns).encode(pl.DataFrame({"id": [1]}))
    known, new = codec.decoder(columns), codec.decoder(columns)
    assert known.decode(Bodies.of([body])).frame.rows() == [(1,)]
    server.kill()
    assert known.decode(Bodies.of([body])).frame.rows() == [(1,)]
    with pytest.raises(hr.RetriableError, match="is the registry running"):
        new.decode(Bodies.of([body]))
    server.start()
    # It has forgotten everything: what was a schema is an id that it does not know.
    assert "does not know the id" in new.decode(Bodies.of([body])).bad[0].reason
