"""The format json-schema-confluent: schemas in a registry, ids that are late, and a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.testing import MemorySource
from headrace_jsonschema.confluent import JsonSchemaConfluentCodec
from headrace_schemaregistry import SchemaRegistry
from headrace_schemaregistry.testing import SmallRegistry, small_registry

from tests.mixed_versions import BACKENDS, UNKNOWN_ID, framed, read_on
from tests.registry_contract import RegistryCodecContract
from tests.servers.kafka import KafkaServer
from tests.servers.schema_registry import SchemaRegistryServer

FIRST = json.dumps({"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]})
SECOND = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}})


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


def codec_of(registry: SmallRegistry, **options: Any) -> JsonSchemaConfluentCodec:
    return JsonSchemaConfluentCodec(JsonSchemaConfluentCodec.Settings.of({"registry_url": registry.url, **options}))


def body_of(schema_id: int, **values: Any) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + json.dumps(values).encode()


class TestJsonSchemaConfluent(RegistryCodecContract):
    """The contract, with the schema in a registry."""

    def codec_of(self, registry: SmallRegistry, **options: Any) -> Any:
        return codec_of(registry, **options)


def test_each_body_conforms_to_the_schema_of_its_id(registry: SmallRegistry) -> None:
    first = registry.add("s", FIRST, schemaType="JSON")
    second = registry.add("s", SECOND, schemaType="JSON")
    avro = registry.add("s", '"long"')
    bodies = [body_of(first, id=1), body_of(first, id=0), body_of(second, id=0, note="x"), body_of(second, note=5), body_of(avro, id=1),
              body_of(99, id=1), b"{}"]  # fmt: skip
    columns = hr.Schema.of({"id": "int64", "note": "string"})
    found = codec_of(registry).decoder(columns).decode(Bodies.of(bodies))
    assert found.frame.rows() == [(1, None), (0, "x")]
    assert {bad.row: bad.reason for bad in found.bad} == {
        1: "does not conform to the schema at 'id': 0 is less than the minimum of 1",
        3: "column 'note': expected string, found number 5",
        4: f"schema {avro} of the registry is of type AVRO, not JSON Schema",
        5: "the schema registry does not know the id 99",
        6: "the body has 2 bytes: a byte 0 and the id of a schema are 5",
    }
    assert codec_of(registry, subject="s").settings.subject == "s"


def test_columns_of_the_latest_version_and_references(registry: SmallRegistry) -> None:
    registry.add("city", '{"type": "string", "maxLength": 4}', schemaType="JSON")
    text = json.dumps({"type": "object", "properties": {"city": {"$ref": "city.json"}}})
    found = registry.add(
        "home", text, schemaType="JSON", references=[{"name": "city.json", "subject": "city", "version": 1}]
    )
    codec = codec_of(registry, subject="home")
    columns = codec.default_schema()
    assert columns == hr.Schema.of({"city": "string"})
    decoded = codec.decoder(columns).decode(Bodies.of([body_of(found, city="Oslo"), body_of(found, city="Paris")]))
    assert [bad.row for bad in decoded.bad] == [1]


def test_what_a_sink_registers(registry: SmallRegistry) -> None:
    columns = hr.Schema.of({"id": "int64", "at": "timestamp", "tags": "array<string>", "raw": "json"})
    encoder = codec_of(registry, subject="rows").encoder(columns)
    frame = pl.DataFrame({"id": [1], "at": [None], "tags": [["a"]], "raw": ['{"x":1}']}, schema=dict(columns))
    [body] = encoder.encode(frame)
    assert body == b'\x00\x00\x00\x00\x01{"id":1,"at":null,"tags":["a"],"raw":{"x":1}}'
    [given] = registry.schemas.values()
    assert given["schemaType"] == "JSON"
    assert codec_of(registry, subject="rows").default_schema() == columns
    strict = codec_of(registry, subject="strict", json_schema=FIRST).encoder(hr.Schema.of({"id": "int64"}))
    with pytest.raises(hr.DataError, match="less than the minimum"):
        strict.encode(pl.DataFrame({"id": [0]}))
    latest = codec_of(registry, subject="strict", register_schema=False).encoder(hr.Schema.of({"id": "int64"}))
    assert list(latest.encode(pl.DataFrame({"id": [3]}))) == [body_of(2, id=3).replace(b" ", b"")]


def test_a_real_registry_and_kafka(
    schema_registry_server: SchemaRegistryServer,
    kafka_server: KafkaServer,
    topic: str,
) -> None:
    registry: dict[str, Any] = {"registry_url": schema_registry_server.url, "subject": f"{topic}-value"}
    source = hr.stream("test", "write").from_(
        MemorySource({"q": [b'{"id": 1, "name": "one"}', b'{"id": 2, "name": null}']}),
        format="json",
        schema={"id": "int64", "name": "string"},
    )
    source.to_kafka(
        topic,
        servers=kafka_server.bootstrap,
        create_topic=True,
        format="json-schema-confluent",
        format_options=registry,
    ).run("light")
    stream = hr.stream("test", "read").from_kafka(
        topic, servers=kafka_server.bootstrap, format="json-schema-confluent", **registry
    )
    assert stream.schema == hr.Schema.of({"id": "int64", "name": "string"})
    assert stream.collect().sort("id").rows() == [(1, "one"), (2, None)]


VERSIONS = [
    {
        "type": "object",
        "properties": {"id": {"type": "integer", "maximum": 57}},
        "required": ["id"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["id", "name"],
    },
    {
        "type": "object",
        "properties": {"name": {"type": ["string", "null"]}, "id": {"type": "integer"}, "size": {"type": "number"}},
    },
]


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_mixed_versions_on_each_backend(
    schema_registry_server: SchemaRegistryServer,
    kafka_server: KafkaServer,
    topic: str,
    tmp_path: Path,
    backend: Any,
    options: dict[str, Any],
) -> None:
    """Each body must conform to its own version: what is missing or too much in one is allowed in another."""
    settings = JsonSchemaConfluentCodec.Settings.of({"registry_url": schema_registry_server.url})
    registry = SchemaRegistry(settings)  # type: ignore[arg-type]
    ids = [registry.register(f"{topic}-value", json.dumps(text), "JSON") for text in VERSIONS]
    bodies, expected, wrong = [], [], []
    for number in range(60):
        version = number % 3
        values: dict[str, Any] = {"id": number}
        if version:
            values["name"] = f"n{number}"
        if version == 2:
            values |= {"name": None if number % 4 else values["name"], "size": number / 4}
        if number % 10 == 4:
            values.pop("name", None)  # only the second version needs it
        body = framed(ids[version] if number % 10 else UNKNOWN_ID, json.dumps(values).encode())
        bodies.append(body)
        if number % 10 == 0:
            wrong.append(f"the schema registry does not know the id {UNKNOWN_ID}")
        elif version == 1 and "name" not in values:
            wrong.append('does not conform to the schema: "name" is a required property')
        else:
            expected.append({"id": number, "name": values.get("name"), "size": values.get("size")})
    good, reasons = read_on(
        backend,
        options,
        kafka=kafka_server,
        topic=topic,
        bodies=bodies,
        place=tmp_path,
        format="json-schema-confluent",
        schema={"id": "int64", "name": "string", "size": "float64"},
        registry_url=schema_registry_server.url,
    )
    assert good == expected
    assert len(wrong) > 6
    assert sorted(reasons) == sorted(wrong)
