"""The format json-schema: what conforms is a row, what does not is a bad record with the reason; columns have the types of the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import jsonschema
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySource
from headrace_contract import CodecContract
from headrace_jsonschema.codec import JsonSchemaCodec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "customer": {"type": "string", "pattern": "^[a-z]+$"},
        "amount": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "address": {"$ref": "#/$defs/address"},
        "extra": {"type": "object"},
        "either": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "mixed": {"type": ["string", "integer"]},
        "kind": {"enum": ["a", "b", None]},
        "blob": {"type": "string", "contentEncoding": "base64"},
        "small": {"type": "integer", "connect.type": "int16"},
    },
    "$defs": {
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
        "tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
    },
}


def codec_of(schema: Any, **options: Any) -> JsonSchemaCodec:
    return JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema": json.dumps(schema), **options}))


def decoded(schema: Any, bodies: list[bytes], **options: Any) -> Any:
    codec = codec_of(schema, **options)
    columns = codec.default_schema()
    assert columns is not None
    return codec.decoder(columns).decode(Bodies.of(bodies))


ANY = '{"type": "object"}'


class TestJsonSchema(CodecContract):
    """The contract, with a schema that takes every object."""

    one_line = True
    options = {"json_schema": ANY}
    types = (*CodecContract.types, "array<int64>", "struct<a: int64, b: string>")

    def make_codec(self) -> JsonSchemaCodec:
        return JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema": ANY}))

    def bad_bodies(self) -> list[bytes]:
        return [b"", b"[]", b"{", b'{"id": "x"}', b"\xff"]


def test_columns_have_the_types_of_the_schema() -> None:
    columns = codec_of(ORDER).default_schema()
    assert columns == hr.Schema.of({
        "id": "int64", "customer": "string", "amount": "float64", "at": "timestamp", "day": "date", "tags": "array<string>",
        "address": "struct<city: string, zip: string>", "extra": "json", "either": "boolean", "mixed": "json", "kind": "string",
        "blob": "binary", "small": "int16",
    })  # fmt: skip
    assert codec_of(
        {"type": "object", "properties": {"t": {"$ref": "#/$defs/tree"}}, "$defs": ORDER["$defs"]}
    ).default_schema() == hr.Schema.of({"t": "json"})
    both = {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "boolean"}}}]}
    assert codec_of(both).default_schema() == hr.Schema.of({"a": "int64", "b": "boolean"})
    assert codec_of({"type": "object"}).default_schema() is None


def test_what_does_not_conform_goes_to_the_dead_letters_with_the_reason() -> None:
    bodies = [
        b'{"id": 1, "customer": "anna", "at": "2024-05-05T00:00:00Z", "extra": {"x": [1]}, "mixed": 3}',
        b'{"customer": "anna"}',
        b'{"id": 0}',
        b'{"id": 2, "customer": "Bob"}',
        b'{"id": 3, "tags": ["a", "b", "c"]}',
        b'{"id": "4"}',
        b'{"id": 5, "mixed": 1.5}',
        b'{"id": 6, "address": {"city": 5}}',
        b'{"id": 7, "kind": "c"}',
        b"{",
    ]
    stream = hr.stream("shop", "orders").from_(
        MemorySource({"q": bodies}), format="json-schema", json_schema=json.dumps(ORDER)
    )
    assert stream.select("id", "extra", "mixed").collect().rows() == [(1, '{"x": [1]}', "3")]
    found = decoded(ORDER, bodies)
    assert found.rows.tolist() == [0]
    assert {bad.row: bad.reason for bad in found.bad} == {
        1: 'does not conform to the schema: "id" is a required property',
        2: "does not conform to the schema at 'id': 0 is less than the minimum of 1",
        3: 'does not conform to the schema at \'customer\': "Bob" does not match "^[a-z]+$"',
        4: 'does not conform to the schema at \'tags\': ["a","b","c"] has more than 2 items',
        5: "column 'id': expected int64, found string \"4\"",
        6: 'does not conform to the schema at \'mixed\': 1.5 is not of types "integer", "string"',
        7: "column 'address' (type struct<city: string, zip: string>) at .city: Expected str | null, got int",
        8: 'does not conform to the schema at \'kind\': "c" is not one of "a", "b" or null',
        9: found.bad[-1].reason,
    }


def test_the_whole_body_is_checked_whatever_columns_are_read() -> None:
    codec = codec_of(ORDER)
    body = b'{"id": 1, "customer": "UPPER"}'
    found = codec.decoder(hr.Schema.of({"id": "int64"}), ["id"]).decode(Bodies.of([body]))
    assert [bad.row for bad in found.bad] == [0]


def test_formats_are_checked_unless_they_are_a_note() -> None:
    schema = {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}}}
    assert len(decoded(schema, [b'{"mail": "nobody"}']).bad) == 1
    assert decoded(schema, [b'{"mail": "nobody"}'], check_formats=False).bad == ()


def test_rows_that_do_not_conform_are_not_written() -> None:
    codec = codec_of(ORDER)
    encoder = codec.encoder(hr.Schema.of({"id": "int64", "customer": "string"}))
    assert list(encoder.encode(pl.DataFrame({"id": [1], "customer": ["anna"]}))) == [b'{"id":1,"customer":"anna"}']
    with pytest.raises(hr.DataError, match="at 'customer': \"Anna\" does not match"):
        encoder.encode(pl.DataFrame({"id": [1], "customer": ["Anna"]}))


def test_files_refer_to_files(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "address.json").write_text(
        '{"type": "object", "properties": {"city": {"$ref": "city.json#/defs/city"}}}'
    )
    (tmp_path / "parts" / "city.json").write_text('{"defs": {"city": {"type": "string", "maxLength": 4}}}')
    main = tmp_path / "order.json"
    main.write_text('{"type": "object", "properties": {"home": {"$ref": "parts/address.json"}}}')
    codec = JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema_file": str(main)}))
    main.unlink()  # what was read travels with the job
    columns = codec.default_schema()
    assert columns == hr.Schema.of({"home": "struct<city: string>"})
    found = codec.decoder(columns).decode(Bodies.of([b'{"home": {"city": "Oslo"}}', b'{"home": {"city": "Paris"}}']))
    assert [bad.row for bad in found.bad] == [1]
    main.write_text('{"$ref": "none.json"}')
    with pytest.raises(hr.OptionError, match=r"it refers to 'none.json': No such file"):
        JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema_file": str(main)}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "a schema is an object"),
        ('{"type": "objec"}', '"objec" is not valid'),
        ('{"pattern": "("}', "is not a"),
        ('{"$ref": "https://example.com/order.json"}', "not fetched over the network"),
        ('{"$ref": "#/nothing"}', "nothing"),
    ],
)
def test_schemas_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(hr.OptionError, match=message) as caught:
        JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema": text}))
    assert caught.value.option == "json_schema"


def test_options_that_are_refused() -> None:
    for options, message in (
        ({}, "needs a schema"),
        ({"json_schema": "{}", "json_schema_file": "x"}, "cannot be combined with"),
    ):
        with pytest.raises(hr.OptionError, match=message):
            JsonSchemaCodec.Settings.of(options)
    with pytest.raises(hr.OptionError, match="cannot read 'none'"):
        JsonSchemaCodec(JsonSchemaCodec.Settings.of({"json_schema_file": "none"}))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([1.0, 2.5, "a", "bb", "", "ab", 2**70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SCHEMAS = st.recursive(
    st.one_of(
        TYPES.map(lambda name: {"type": name}),
        st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
        st.integers(-2, 2).map(lambda n: {"minimum": n}),
        st.integers(0, 2).map(lambda n: {"maxLength": n, "minItems": n}),
        VALUES.map(lambda value: {"const": value}),
        st.just({"pattern": "^a"}),
        st.booleans(),
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda p: {"properties": p, "additionalProperties": False}),
        inner.map(lambda one: {"items": one}),
        inner.map(lambda one: {"not": one}),
        st.lists(inner, min_size=1, max_size=3).flatmap(
            lambda parts: st.sampled_from(["allOf", "anyOf", "oneOf"]).map(lambda kind: {kind: parts})
        ),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(SCHEMAS, st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=5))
def test_the_same_conform_as_in_the_reference(schema: Any, values: list[Any]) -> None:
    """Beside the jsonschema package: each object is a row exactly if it conforms there."""
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema]}
    expected = [jsonschema.Draft202012Validator(root).is_valid(value) for value in values]
    codec = codec_of(root)
    found = codec.decoder(hr.Schema.of({"x": "string"})).decode(
        Bodies.of([json.dumps(value).encode() for value in values])
    )
    bad = {one.row for one in found.bad}
    assert [row not in bad for row in range(len(values))] == expected
    assert found.frame.height == sum(expected)


def test_they_are_found_by_their_names() -> None:
    assert default_registry().find("codec", "json-schema") is JsonSchemaCodec
