"""The format protobuf-confluent: ids of schemas, the place of the message, and what a sink registers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySource
from headrace_contract import CodecContract
from headrace_protobuf.confluent import ProtobufConfluentCodec
from headrace_protobuf.proto_texts import messages_of, read, written
from headrace_schemaregistry import SchemaRegistry
from headrace_schemaregistry.testing import SmallRegistry, small_registry
from hypothesis import given
from hypothesis import strategies as st
from messages import add_message, file_of, write

from tests.mixed_versions import BACKENDS, UNKNOWN_ID, framed, read_on
from tests.servers.kafka import KafkaServer
from tests.servers.schema_registry import SchemaRegistryServer

TEXT = """
syntax = "proto3";
package test; // message Not {
option note = "message Neither { }";
/* message Nor {} */
message Row { optional int64 id = 1; optional string text = 2; optional double amount = 3; optional bool flag = 4; }
enum Kind { NONE = 0; }
message Outer {
  oneof choice { string message = 1; }
  message First { message Deep { } }
  message Second { optional int64 id = 1; }
}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    file = file_of()
    add_message(
        file, "Row", id="optional int64", text="optional string", amount="optional double", flag="optional bool"
    )
    add_message(file, "Outer")
    nested = add_message(file, "Moved", id="optional int64")
    second = file.message_type[1].nested_type.add()
    second.CopyFrom(nested)
    second.name = "Second"
    write(tmp_path / "test.desc", file)
    (tmp_path / "test.proto").write_text(TEXT)
    return tmp_path


def codec_of(registry: SmallRegistry, files: Path, **options: Any) -> ProtobufConfluentCodec:
    given_options = {
        "registry_url": registry.url,
        "descriptor_file": str(files / "test.desc"),
        "message": "test.Row",
        **options,
    }
    return ProtobufConfluentCodec(ProtobufConfluentCodec.Settings.of(given_options))


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


class TestProtobufConfluent(CodecContract):
    """The contract, with the schema in a registry."""

    one_line = False
    options = {"registry_url": "http://127.0.0.1:1", "descriptor_file": "x", "message": "test.Row"}
    types = ()
    registry: SmallRegistry
    files: Path

    @pytest.fixture(autouse=True)
    def running(self, files: Path) -> Iterator[None]:
        type(self).files = files
        with small_registry() as type(self).registry:
            yield

    def make_codec(self) -> ProtobufConfluentCodec:
        return codec_of(self.registry, self.files, subject="rows", proto_file=str(self.files / "test.proto"))

    def make_with_secret(self, secret: str) -> ProtobufConfluentCodec:
        codec = codec_of(self.registry, self.files, registry_user="anna", registry_password=secret)
        self.registry.answers = [(401, f"not {secret}".encode())]
        return codec

    def use(self, plugin: Any) -> None:
        plugin.decoder(self.columns).decode(Bodies.of([b"\x00" * 6]))

    def bad_bodies(self) -> list[bytes]:
        good = self.make_body(self.make_row(0))
        return [b"", good[:4], good[:5], good[:-1], b"\x01" + good[1:], b"\x00\x00\x00\x03\x09" + good[5:]]


def test_messages_of_a_text() -> None:
    assert messages_of(TEXT) == {
        (0,): "test.Row", (1,): "test.Outer", (1, 0): "test.Outer.First", (1, 0, 0): "test.Outer.First.Deep", (1, 1): "test.Outer.Second",
    }  # fmt: skip
    assert messages_of("message A { optional group B = 1 { optional int32 c = 2; } message D {} }") == {
        (0,): "A", (0, 0): "A.B", (0, 1): "A.D"
    }  # fmt: skip
    assert messages_of("") == messages_of("}}{ message") == {}


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5).map(tuple), st.binary(max_size=5))
def test_places_are_read_as_they_are_written(place: tuple[int, ...], rest: bytes) -> None:
    body = written(place)
    assert read(body + rest) == (place, len(body))
    assert all(read(body[:size]) is None for size in range(len(body)))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_place_or_none(body: bytes) -> None:
    found = read(body)
    assert found is None or 1 <= found[1] <= len(body)


def test_only_the_wanted_message_is_read(registry: SmallRegistry, files: Path) -> None:
    found = registry.add("s", TEXT, schemaType="PROTOBUF")
    avro = registry.add("s", '"long"')
    prefix = b"\x00" + found.to_bytes(4, "big")
    bodies = [
        prefix + b"\x00\x08\x05",
        prefix + written((1, 1)) + b"\x08\x06",
        prefix + written((3,)) + b"\x08\x06",
        prefix,
        prefix + b"\x02\x00\x08\x07",
        prefix + b"\x00\x08",
        b"\x00" + avro.to_bytes(4, "big") + b"\x00",
    ]
    columns = hr.Schema.of({"id": "int64"})
    decoded = codec_of(registry, files).decoder(columns).decode(Bodies.of(bodies))
    assert decoded.frame["id"].to_list() == [5, 7]
    assert {bad.row: bad.reason for bad in decoded.bad} == {
        1: "the body is a message test.Outer.Second, not test.Row",
        2: "the schema has no message at the place 3",
        3: "the place of the message in its schema is missing, or cannot be read",
        5: "the body is not a message test.Row",
        6: f"schema {avro} of the registry is of type AVRO, not Protobuf",
    }
    nested = codec_of(registry, files, message="test.Outer.Second").decoder(columns)
    assert nested.decode(Bodies.of(bodies[:2])).frame["id"].to_list() == [6]


def test_what_a_sink_registers(registry: SmallRegistry, files: Path) -> None:
    columns, frame = hr.Schema.of({"id": "int64"}), pl.DataFrame({"id": [1]})
    codec = codec_of(registry, files, subject="s", message="test.Outer.Second", proto_file=str(files / "test.proto"))
    assert list(codec.encoder(columns).encode(frame)) == [b"\x00\x00\x00\x00\x01\x04\x02\x02\x08\x01"]
    assert registry.schemas[1] == {"schema": TEXT, "schemaType": "PROTOBUF"}
    latest = codec_of(registry, files, subject="s", register_schema=False).encoder(columns)
    assert list(latest.encode(frame)) == [b"\x00\x00\x00\x00\x01\x00\x08\x01"]
    with pytest.raises(hr.OptionError, match="needs the schema's text"):
        codec_of(registry, files, subject="s").encoder(columns)
    with pytest.raises(hr.OptionError, match="needs the option subject"):
        codec_of(registry, files).encoder(columns)
    (files / "other.proto").write_text("message Row {}")
    with pytest.raises(hr.OptionError, match=r"declares no message 'test.Row'"):
        codec_of(registry, files, proto_file=str(files / "other.proto"))


def test_it_is_found_by_its_name() -> None:
    assert default_registry().find("codec", "protobuf-confluent") is ProtobufConfluentCodec


def test_a_real_registry_and_kafka(
    schema_registry_server: SchemaRegistryServer, kafka_server: KafkaServer, topic: str, files: Path
) -> None:
    shared = {
        "registry_url": schema_registry_server.url,
        "descriptor_file": str(files / "test.desc"),
        "message": "test.Row",
    }
    text = TEXT.replace('option note = "message Neither { }";\n', "")
    (files / "test.proto").write_text(text)
    source = hr.stream("test", "write").from_(
        MemorySource({"q": [b'{"id": 1, "text": "one"}', b'{"id": 2, "text": null}']}),
        format="json",
        schema={"id": "int64", "text": "string"},
    )
    options = {**shared, "subject": f"{topic}-value", "proto_file": str(files / "test.proto")}
    source.to_kafka(
        topic, servers=kafka_server.bootstrap, create_topic=True, format="protobuf-confluent", format_options=options
    ).run("light")
    stream = hr.stream("test", "read").from_kafka(
        topic, servers=kafka_server.bootstrap, format="protobuf-confluent", **shared
    )
    assert stream.collect().sort("id").select("id", "text", "flag").rows() == [(1, "one", None), (2, None, None)]


#: Versions of a message: the writers of the second have another message before it, those of the third have left a field out.
VERSIONS = [
    'syntax = "proto3";\npackage test;\nmessage Row { optional int32 id = 1; }\n',
    'syntax = "proto3";\npackage test;\nmessage Before { }\nmessage Row { optional int64 id = 1; optional string text = 2; }\n',
    'syntax = "proto3";\npackage test;\n'
    "message Row { optional double amount = 3; optional int64 id = 1; optional string added = 9; message Within { } }\n",
]


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_mixed_versions_on_each_backend(
    schema_registry_server: SchemaRegistryServer,
    kafka_server: KafkaServer,
    topic: str,
    files: Path,
    backend: Any,
    options: dict[str, Any],
) -> None:
    """Bodies of three versions come in turns, with ids that nobody knows and other messages of the same schema among them."""
    shared = {
        "registry_url": schema_registry_server.url,
        "descriptor_file": str(files / "test.desc"),
        "message": "test.Row",
    }
    registry = SchemaRegistry(ProtobufConfluentCodec.Settings.of(shared))  # type: ignore[arg-type]
    ids = [registry.register(f"{topic}-value", text, "PROTOBUF") for text in VERSIONS]
    id_of, text_of, amount_of, added = b"\x08", b"\x12\x02", b"\x19", b"\x4a\x01x"
    bodies, expected, wrong = [], [], []
    for number in range(60):
        version = number % 3
        place = written((1,)) if version == 1 else written((0,))
        value = id_of + bytes([number])
        if version == 1:
            value += text_of + f"{number:02}".encode()
        elif version == 2:
            value = amount_of + struct.pack("<d", number / 8) + value + added
        if number % 10 == 0:
            wrong.append(f"the schema registry does not know the id {UNKNOWN_ID}")
        elif number % 10 == 4 and version == 1:
            place = written((0,))
            wrong.append("the body is a message test.Before, not test.Row")
        elif number % 10 == 5 and version == 2:
            place = written((0, 0))
            wrong.append("the body is a message test.Row.Within, not test.Row")
        else:
            text, amount = f"{number:02}" if version == 1 else None, number / 8 if version == 2 else None
            expected.append({"id": number, "text": text, "amount": amount})
        bodies.append(framed(ids[version] if number % 10 else UNKNOWN_ID, place + value))
    good, reasons = read_on(
        backend,
        options,
        kafka=kafka_server,
        topic=topic,
        bodies=bodies,
        place=files,
        format="protobuf-confluent",
        schema={"id": "int64", "text": "string", "amount": "float64"},
        **shared,
    )
    assert good == expected
    assert len(set(wrong)) == 3
    assert sorted(reasons) == sorted(wrong)
