"""Ids are asked for once; those that the registry does not know, again after pauses; a job may wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import Decoded, Decoder
from headrace_schemaregistry import (
    RegisteredDecoder,
    RegisteredSchema,
    RegistrySettings,
    SchemaRegistry,
    UnusableSchemaError,
)
from headrace_schemaregistry.testing import SmallRegistry, small_registry


class Texts(Decoder):
    """Gives bodies as texts, after the text of their schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def decode(self, bodies: Bodies) -> Decoded:
        return Decoded(pl.DataFrame({"text": [f"{self._schema}:{body.decode()}" for body in bodies]}))


class Registered(RegisteredDecoder):
    def decoder_of(self, schema_id: int, schema: RegisteredSchema) -> Decoder:
        if schema.text == "bad":
            raise UnusableSchemaError(" is bad")
        return Texts(schema.text)


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


def body(schema_id: int, text: str = "x") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + text.encode()


def decoder_of(registry: SmallRegistry, now: list[float], **options: Any) -> Registered:
    settings = RegistrySettings.of({"registry_url": registry.url, **options})
    assert isinstance(settings, RegistrySettings)
    return Registered(settings, {"text": pl.String()}, monotonic=lambda: now[0])


def paths(registry: SmallRegistry) -> list[str]:
    found = sorted(path for _, path, _ in registry.requests)
    registry.requests.clear()
    return found


def test_ids_of_a_batch_are_asked_for_once_however_many_bodies_have_them(registry: SmallRegistry) -> None:
    good, bad = registry.add("s", "good"), registry.add("s", "bad")
    decoder = decoder_of(registry, [0.0])
    bodies = Bodies.of([body(one) for one in (good, bad, 7, 8, 9, good, 7)] * 20)
    for _ in range(3):
        decoded = decoder.decode(bodies)
        assert decoded.frame["text"].to_list() == ["good:x"] * 40
        assert {bad.reason for bad in decoded.bad} == {
            "schema 2 of the registry is bad", *(f"the schema registry does not know the id {one}" for one in (7, 8, 9))
        }  # fmt: skip
    assert paths(registry) == [f"/schemas/ids/{one}" for one in (good, bad, 7, 8, 9)]


def test_an_unknown_id_is_asked_for_again_soon_and_then_less_often(registry: SmallRegistry) -> None:
    now = [0.0]
    decoder = decoder_of(registry, now)
    asked = []
    for second in range(0, 400):
        now[0] = float(second)
        decoder.decode(Bodies.of([body(1)]))
        if paths(registry):
            asked.append(second)
    assert asked == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    registry.add("s", "late")
    now[0] = 500.0
    assert decoder.decode(Bodies.of([body(1)])).frame["text"].to_list() == ["late:x"]


def test_a_queue_waits_for_an_id(registry: SmallRegistry) -> None:
    now = [0.0]
    decoder = decoder_of(registry, now, unknown_id_wait="30 s")
    for second in (0.0, 0.5, 10.0, 29.0):
        now[0] = second
        with pytest.raises(hr.RetriableError, match="does not know the id 1") as caught:
            decoder.decode(Bodies.of([body(1)]))
        assert caught.value.option == "unknown_id_wait"
    now[0] = 30.0
    assert len(decoder.decode(Bodies.of([body(1)])).bad) == 1
    registry.add("s", "late")
    now[0] = 120.0
    assert decoder.decode(Bodies.of([body(1)])).bad == ()
    with pytest.raises(hr.OptionError, match="must not be negative"):
        RegistrySettings.of({"registry_url": registry.url, "unknown_id_wait": "-1"} | {"unknown_id_wait": -1})


def test_what_cannot_be_asked_for_is_tried_again(registry: SmallRegistry) -> None:
    decoder = decoder_of(registry, [0.0])
    registry.add("s", "one")
    registry.answers = [(503, b"")]
    with pytest.raises(hr.RetriableError, match="status 503"):
        decoder.decode(Bodies.of([body(1), body(2)]))
    assert decoder.decode(Bodies.of([body(1)])).frame.height == 1


def test_references_come_with_their_names(registry: SmallRegistry) -> None:
    registry.add("inner", "inner text", schemaType="PROTOBUF")
    outer = registry.add("outer", "x", schemaType="PROTOBUF",
                         references=[{"name": "inner.proto", "subject": "inner", "version": 1}])  # fmt: skip
    settings = RegistrySettings.of({"registry_url": registry.url})
    assert isinstance(settings, RegistrySettings)
    client = SchemaRegistry(settings)
    found = client.by_id(outer)
    assert found is not None
    assert (found.kind, [(one.name, one.text) for one in found.references]) == (
        "PROTOBUF",
        [("inner.proto", "inner text")],
    )
    assert client.register("new", "text", "JSON") == client.registered("new", "text", "JSON") == 3
    assert registry.schemas[3]["schemaType"] == "JSON"
    client.close()
