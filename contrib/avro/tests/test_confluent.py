"""The format avro-confluent with a small registry: schemas by id, outages, log-ins, refusals."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.testing import MemorySource
from headrace_avro.confluent import AvroConfluentCodec
from headrace_schemaregistry.testing import SmallRegistry, small_registry

from tests.registry_contract import RegistryCodecContract


def schema_of(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


FIRST = schema_of(id="int", name="string")
SECOND = schema_of(note=["null", "string"], id="long")


def body_of(schema_id: int, text: str, **values: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(text)), values)
    return b"\x00" + schema_id.to_bytes(4, "big") + file.getvalue()


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


def codec_of(registry: SmallRegistry, **options: Any) -> AvroConfluentCodec:
    return AvroConfluentCodec(AvroConfluentCodec.Settings.of({"registry_url": registry.url, **options}))


class TestAvroConfluent(RegistryCodecContract):
    """The contract, with the schema in a registry."""

    def codec_of(self, registry: SmallRegistry, **options: Any) -> Any:
        return codec_of(registry, **options)

    def own_bad_bodies(self, good: bytes) -> list[bytes]:
        return [good + b"\x00"]


def test_schemas_of_one_batch(registry: SmallRegistry) -> None:
    first, second = registry.add("s", FIRST), registry.add("s", SECOND)
    other = registry.add("s", '{"type": "object"}', schemaType="JSON")
    unfit = registry.add("s", schema_of(id="string"))
    bodies = [
        body_of(second, SECOND, id=2**40, note="x"),
        body_of(first, FIRST, id=1, name="one"),
        b"\x00\x00\x00\x03\xe8rest",
        body_of(other, FIRST, id=1, name="one"),
        body_of(unfit, schema_of(id="string"), id="text"),
        body_of(second, SECOND, id=3, note=None),
        body_of(first, FIRST, id=4, name="four") + b"!",
        b"\x01rest",
    ]
    source = MemorySource({"q": bodies})
    stream = hr.stream("test", "job").from_(
        source,
        format="avro-confluent",
        schema={"name": "string", "id": "int64", "note": "string"},
        registry_url=registry.url,
    )
    assert stream.collect().rows() == [(None, 2**40, "x"), ("one", 1, None), (None, 3, None)]
    columns = hr.Schema.of({"name": "string", "id": "int64"})
    decoded = codec_of(registry).decoder(columns).decode(Bodies.of(bodies))
    assert {bad.row: bad.reason for bad in decoded.bad} == {
        2: "the schema registry does not know the id 1000",
        3: f"schema {other} of the registry is of type JSON, not Avro",
        4: f"schema {unfit} of the registry: column 'id': Avro's string cannot be converted to int64",
        6: "1 bytes follow the record",
        7: "the body begins with the byte 1, not with 0 and the id of a schema",
    }


def test_a_registry_that_is_away_loses_nothing(registry: SmallRegistry) -> None:
    """The decoder says so, and a job reads the same records again."""
    found = registry.add("s", FIRST)
    bodies = [body_of(found, FIRST, id=number, name="") for number in range(3)]
    registry.answers = [(503, b"not ready"), (500, b"<html>")]
    columns = hr.Schema.of({"id": "int64"})
    decoder = codec_of(registry).decoder(columns)
    with pytest.raises(hr.RetriableError, match="status 503: not ready"):
        decoder.decode(Bodies.of(bodies))
    with pytest.raises(hr.RetriableError, match="status 500"):
        decoder.decode(Bodies.of(bodies))
    assert decoder.decode(Bodies.of(bodies)).frame["id"].to_list() == [0, 1, 2]
    registry.answers = [(503, b"")] * 2
    stream = hr.stream("test", "job").from_(
        MemorySource({"q": bodies}), format="avro-confluent", schema={"id": "int64"}, registry_url=registry.url
    )
    assert stream.collect().rows() == [(0,), (1,), (2,)]
    assert registry.answers == []
    with pytest.raises(hr.RetriableError, match="is the registry running"):
        AvroConfluentCodec(AvroConfluentCodec.Settings.of({"registry_url": "http://127.0.0.1:1"})).decoder(
            columns
        ).decode(Bodies.of(bodies))


def test_columns_of_the_latest_version(registry: SmallRegistry) -> None:
    registry.add("orders-value", FIRST)
    found = registry.add("orders-value", SECOND)
    stream = hr.stream("test", "job").from_(
        MemorySource({"q": [body_of(found, SECOND, id=1, note="x"), body_of(1, FIRST, id=2, name="")]}),
        format="avro-confluent",
        subject="orders-value",
        registry_url=registry.url,
    )
    assert stream.schema == hr.Schema.of({"note": "string", "id": "int64"})
    assert stream.collect().rows() == [("x", 1), (None, 2)]
    with pytest.raises(hr.OptionError, match="no subject 'none'"):
        codec_of(registry, subject="none").default_schema()
    assert codec_of(registry).default_schema() is None


def test_a_readers_schema(registry: SmallRegistry) -> None:
    reader = json.dumps(
        {"type": "record", "name": "r", "fields": [
            {"name": "key", "aliases": ["id"], "type": "long"}, {"name": "kind", "type": "string", "default": "new"},
        ]}
    )  # fmt: skip
    codec = codec_of(registry, reader_schema=reader)
    columns = codec.default_schema()
    assert columns == hr.Schema.of({"key": "int64", "kind": "string"})
    bodies = [body_of(registry.add("s", text), text, id=7, name="", note=None) for text in (FIRST, SECOND)]
    assert codec.decoder(columns).decode(Bodies.of(bodies)).frame.rows() == [(7, "new"), (7, "new")]
    millis = schema_of(at={"type": "long", "logicalType": "timestamp-millis"})
    found = registry.add("s", millis)
    micros = codec_of(registry, reader_schema=millis.replace("millis", "micros"))
    decoded = micros.decoder(hr.Schema.of({"at": "timestamp"})).decode(Bodies.of([body_of(found, millis, at=1)]))
    assert "field 'at' is written as long (timestamp-millis), and the reader's schema has" in decoded.bad[0].reason
    with pytest.raises(hr.OptionError, match="'other' is not a field"):
        codec.decoder(hr.Schema.of({"other": "int64"}))


def test_schemas_that_refer_to_others(registry: SmallRegistry) -> None:
    address = json.dumps({"type": "record", "name": "address", "fields": [{"name": "city", "type": "string"}]})
    person = json.dumps({"type": "record", "name": "person", "fields": [{"name": "home", "type": "address"}]})
    registry.add("address", address)
    found = registry.add("person", person, references=[{"name": "address", "subject": "address", "version": 1}])
    codec = codec_of(registry, subject="person")
    columns = codec.default_schema()
    assert columns == hr.Schema.of({"home": "struct<city: string>"})
    body = b"\x00" + found.to_bytes(4, "big") + b"\x08Oslo"
    assert codec.decoder(columns).decode(Bodies.of([body])).frame.rows() == [({"city": "Oslo"},)]


def test_what_a_sink_registers(registry: SmallRegistry) -> None:
    frame = pl.DataFrame({"id": [1]}, schema={"id": pl.Int64()})
    columns = hr.Schema.of({"id": "int64"})
    encoder = codec_of(registry, subject="rows/x", record_name="com.example.row").encoder(columns)
    assert registry.requests == []
    assert list(encoder.encode(frame)) == [b"\x00\x00\x00\x00\x01\x02\x02"]
    encoder.encode(frame)
    assert [path for _, path, _ in registry.requests] == ["/subjects/rows%2Fx/versions"]
    [given] = registry.schemas.values()
    assert json.loads(given["schema"])["name"] == "com.example.row"

    registry.add("fixed", FIRST)
    latest = codec_of(registry, subject="fixed", register_schema=False)
    assert list(latest.encoder(hr.Schema.of({"id": "int64", "name": "string"})).encode(
        pl.DataFrame({"id": [1], "name": ["x"]})
    )) == [body_of(2, FIRST, id=1, name="x")]  # fmt: skip
    with pytest.raises(hr.OptionError, match="no column for the field 'name'"):
        latest.encoder(columns)
    strict = codec_of(registry, subject="fixed", register_schema=False, avro_schema=schema_of(id="long"))
    with pytest.raises(hr.OptionError, match="not a version of the subject 'fixed'"):
        strict.encoder(columns).encode(frame)
    with pytest.raises(hr.OptionError, match="needs the option subject"):
        codec_of(registry).encoder(columns)


def test_refusals_of_the_registry(registry: SmallRegistry) -> None:
    frame, columns = pl.DataFrame({"id": [1]}), hr.Schema.of({"id": "int64"})
    registry.answers = [(409, b'{"error_code": 409, "message": "incompatible: id"}'), (401, b"who?"), (200, b"<html>")]
    encoder = codec_of(registry, subject="s").encoder(columns)
    with pytest.raises(hr.JobError, match="incompatible: id") as caught:
        encoder.encode(frame)
    assert "not compatible" in str(caught.value.hint)
    with pytest.raises(hr.JobError, match="status 401: who") as caught:
        encoder.encode(frame)
    assert caught.value.option == "registry_user"
    with pytest.raises(hr.JobError, match="not of a schema registry"):
        encoder.encode(frame)


def test_secrets_are_sent_and_not_shown(registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hidden-päss")
    registry.answers = [(403, "no hidden-päss here".encode()), (403, b"no tok-en here")]
    codec = codec_of(registry, subject="s", registry_user="anna", registry_password="${REGISTRY_PASSWORD}")
    with pytest.raises(hr.JobError, match=r"no \*\*\* here") as caught:
        codec.default_schema()
    assert "hidden" not in str(caught.value) + repr(codec.settings)
    token = codec_of(registry, subject="s", registry_token="tok-en")
    with pytest.raises(hr.JobError, match=r"no \*\*\* here"):
        token.default_schema()
    assert [sent for _, _, sent in registry.requests] == ["Basic YW5uYTpoaWRkZW4tcMOkc3M=", "Bearer tok-en"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"registry_url": "http://user:w0rd@host"}, "must not be in the address"),
        ({"registry_url": "registry:8081"}, "not an address such as"),
        ({"registry_url": "http://host", "registry_token": "x"}, "has no TLS"),
        ({"registry_url": "http://host", "registry_ssl_ca": "x"}, "has no TLS"),
        ({"registry_url": "https://host", "registry_user": "x"}, "give both user and password"),
        ({"registry_url": "https://host", "registry_ssl_key": "x"}, "only together with"),
        ({"registry_url": "https://host", "avro_schema": "x", "avro_schema_file": "y"}, "takes the place of"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hr.OptionError, match=message) as caught:
        AvroConfluentCodec.Settings.of(options)
    assert "w0rd" not in str(caught.value)
