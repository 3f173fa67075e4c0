"""Bodies that are read by columns give what fastavro gives for each; so do damaged ones, of which none is read that is not whole."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import numpy as np
import pytest
from headrace.flow.messages import Bodies
from headrace_avro.column_types import columns_of
from headrace_avro.decoder import RecordDecoder
from headrace_avro.schemas import AvroType, parse_schema, rendered
from headrace_avro.walking import BodyWalker
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas_and_records import promoted, schemas, values

from tests.effort import examples

MAX = 2**20


def parsed(schema: dict[str, Any]) -> AvroType:
    return parse_schema(json.dumps(schema), plugin="avro", option="avro_schema")


def written(schema: dict[str, Any], records: list[dict[str, Any]]) -> list[bytes]:
    made, usable = [], fastavro.parse_schema(schema)
    for record in records:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, usable, record)
        made.append(file.getvalue())
    return made


def damaged(bodies: list[bytes], chance: random.Random) -> list[bytes]:
    """Return bodies that are cut, longer, or have other bytes."""
    made = []
    for body in bodies:
        changed = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            at = chance.randint(0, len(changed))
            kind = chance.randrange(4)
            if kind == 0:
                del changed[at:]
            elif kind == 1:
                changed[at : at + 1] = bytes([chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            elif kind == 2:
                changed[at:at] = bytes([chance.choice((0x80, 0xFF, 1, chance.randrange(256)))]) * chance.randint(1, 10)
            else:
                changed += chance.randbytes(2)
        made.append(bytes(changed))
    return made


def outcomes(decoder: RecordDecoder, bodies: list[bytes]) -> list[Any]:
    """Return per body its row, or why it is bad."""
    decoded = decoder.decode(Bodies.of(bodies))
    found: list[Any] = [None] * len(bodies)
    rows = range(len(bodies)) if decoded.rows is None else decoded.rows.tolist()
    for row, made in zip(rows, decoded.frame.rows(), strict=True):
        found[row] = made
    for bad in decoded.bad:
        assert found[bad.row] is None
        found[bad.row] = bad.reason
    assert None not in found
    return found


@st.composite
def cases(draw: st.DrawFn, *, unions: bool) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    schema = draw(schemas(unions=unions))
    return schema, draw(st.lists(values(schema), min_size=1, max_size=30)), draw(st.integers(0, 2**32))


def compare(schema: dict[str, Any], wanted: dict[str, Any], bodies: list[bytes]) -> None:
    columns = columns_of(parsed(wanted))
    whole = RecordDecoder(parsed(schema), parsed(wanted), columns, MAX)
    single = RecordDecoder(parsed(schema), parsed(wanted), columns, MAX, columnar=False)
    assert repr(outcomes(whole, bodies)) == repr(outcomes(single, bodies))


@settings(max_examples=examples(150), deadline=None)
@given(cases(unions=False))
def test_whole_and_damaged_bodies(case: tuple[dict[str, Any], list[dict[str, Any]], int]) -> None:
    schema, records, seed = case
    bodies = written(schema, records)
    assert RecordDecoder(parsed(schema), parsed(schema), columns_of(parsed(schema)), MAX).columnar
    found = outcomes(RecordDecoder(parsed(schema), parsed(schema), columns_of(parsed(schema)), MAX), bodies)
    assert not [row for row in found if isinstance(row, str)]
    mixed = [*bodies, *damaged(bodies, random.Random(seed))]
    random.Random(seed).shuffle(mixed)
    compare(schema, schema, mixed)


@settings(max_examples=examples(100), deadline=None)
@given(cases(unions=True), st.data())
def test_other_readers_schemas(case: tuple[dict[str, Any], list[dict[str, Any]], int], data: st.DataObject) -> None:
    schema, records, seed = case
    fields = []
    for each in schema["fields"]:
        if data.draw(st.booleans()):
            taken = {"name": each["name"], "type": data.draw(promoted(each["type"]))}
            if data.draw(st.booleans()):
                taken |= {"name": f"new_{each['name']}", "aliases": [each["name"]]}
            fields.append(taken)
    fields.append({"name": "added", "type": ["long", "null"], "default": 17})
    wanted = {**schema, "fields": data.draw(st.permutations(fields))}
    # Definitions of types may come in another order, or twice: as trees they are whole.
    bodies = written(schema, records)
    compare(schema, json.loads(json.dumps(wanted)), [*bodies, *damaged(bodies, random.Random(seed))])


@settings(max_examples=examples(100), deadline=None)
@given(cases(unions=True))
def test_what_the_walker_takes_is_what_fastavro_reads(case: tuple[dict[str, Any], list[dict[str, Any]], int]) -> None:
    schema, records, seed = case
    bodies = written(schema, records)
    walker = BodyWalker(parsed(schema))
    assert [walker.fault(body) for body in bodies] == [None] * len(bodies)
    usable = fastavro.parse_schema(rendered(parsed(schema)))
    for body in damaged(bodies, random.Random(seed)):
        file = io.BytesIO(body)
        try:
            fastavro.schemaless_reader(file, usable, None)
        except UnicodeDecodeError:
            continue
        except Exception:
            assert walker.fault(body) is not None
        else:
            if walker.fault(body) is None:
                assert file.tell() == len(body)


@pytest.mark.parametrize(
    "value", [0, 1, -1, 63, 64, -64, -65, 2**13, 2**31, -(2**40), 2**48, 2**55, 2**56, 2**62, 2**63 - 1, -(2**63)]
)
def test_numbers_of_each_length(value: int) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    records = [{"a": value, "b": "x" * size} for size in (0, 3, 4, 5, 12, 13, 200, 20_000)]
    bodies = written(schema, records)
    decoder = RecordDecoder(parsed(schema), parsed(schema), columns_of(parsed(schema)), MAX)
    assert decoder.decode(Bodies.of(bodies)).frame.to_dicts() == records
    assert decoder.decode(Bodies.of(bodies[::-1] * 3)).frame.to_dicts() == records[::-1] * 3


def test_bodies_far_apart() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "string"}]}
    bodies = written(schema, [{"b": "first"}, {"b": "a text of more than twelve bytes"}])
    buffer = bodies[0] + bytes(2**16) + bodies[1] + b"end"
    starts = np.array([2**16 + len(bodies[0]), 0])
    ends = starts + np.array([len(bodies[1]), len(bodies[0])])
    decoder = RecordDecoder(parsed(schema), parsed(schema), columns_of(parsed(schema)), MAX)
    assert decoder.decode(Bodies(buffer, starts, ends)).frame["b"].to_list() == [
        "a text of more than twelve bytes",
        "first",
    ]
