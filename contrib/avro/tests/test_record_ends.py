"""Where records end in the block of a file: the same as fastavro says, for any schema; damage is told, and is no endless loop."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import fastavro
import pytest
from headrace_avro.record_ends import record_ends
from headrace_avro.schemas import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=90),
    "bytes": st.binary(max_size=90),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a type, and its values as fastavro writes them."""
    simple = sorted(SIMPLE)
    kind = draw(st.sampled_from(simple if depth > 2 else [*simple, "array", "map", "union", "record", "fixed", "enum"]))
    if kind in SIMPLE:
        return kind, SIMPLE[kind]
    name = "named later"
    if kind == "fixed":
        size = draw(st.integers(0, 5))
        return {"type": kind, "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "enum":
        symbols = [f"S{number}" for number in range(draw(st.sampled_from([1, 3, 70])))]
        return {"type": kind, "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "record":
        fields = draw(st.lists(types(depth + 1), max_size=4))
        made = [{"name": f"f{number}", "type": one} for number, (one, _) in enumerate(fields)]
        values = st.fixed_dictionaries({f"f{number}": value for number, (_, value) in enumerate(fields)})
        return {"type": kind, "name": name, "fields": made}, values
    if kind == "union":
        of = draw(st.lists(st.sampled_from(simple), unique=True, min_size=1, max_size=4))
        return of, st.one_of([st.tuples(st.just(one), SIMPLE[one]) for one in of])
    inner, value = draw(types(depth + 1))
    if kind == "array":
        return {"type": kind, "items": inner}, st.lists(value, max_size=3)
    return {"type": kind, "values": inner}, st.dictionaries(st.text(max_size=3), value, max_size=3)


def named(kind: Any, count: itertools.count[int]) -> Any:
    """Return a type whose parts have names of their own."""
    if not isinstance(kind, dict):
        return kind
    made = {**kind, **({"name": f"t{next(count)}"} if "name" in kind else {})}
    for inner in ("items", "values"):
        if inner in kind:
            made[inner] = named(kind[inner], count)
    if "fields" in kind:
        made["fields"] = [{**field, "type": named(field["type"], count)} for field in kind["fields"]]
    return made


@st.composite
def blocks(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes]]:
    """Return a schema, and records of it."""
    fields = draw(st.lists(types(), max_size=5))
    schema = named({"type": "record", "name": "", "fields": [{"name": f"f{n}", "type": one} for n, (one, _) in enumerate(fields)]},
                   itertools.count())  # fmt: skip
    row = st.fixed_dictionaries({f"f{number}": value for number, (_, value) in enumerate(fields)})
    parsed, bodies = fastavro.parse_schema(schema), []
    for each in draw(st.lists(row, max_size=6)):
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, each)
        bodies.append(file.getvalue())
    return schema, bodies


def places(bodies: list[bytes]) -> list[int]:
    found = [0]
    for body in bodies:
        found.append(found[-1] + len(body))
    return found


@settings(max_examples=examples(150), deadline=None)
@given(made=blocks())
def test_records_end_where_they_were_written(made: tuple[dict[str, Any], list[bytes]]) -> None:
    schema, bodies = made
    ends = record_ends(parse_schema(json.dumps(schema), plugin="avro", option="schema"))
    assert ends is not None
    assert ends(b"".join(bodies), len(bodies)) == places(bodies)


@settings(max_examples=examples(150), deadline=None)
@given(made=blocks(), content=st.binary(max_size=40), rows=st.integers(0, 5))
def test_any_bytes_are_gone_through_to_their_end_or_refused(
    made: tuple[dict[str, Any], list[bytes]], content: bytes, rows: int
) -> None:
    ends = record_ends(parse_schema(json.dumps(made[0]), plugin="avro", option="schema"))
    assert ends is not None
    try:
        found = ends(content, rows)
    except (IndexError, ValueError):
        return
    assert found == sorted(found)
    assert (found[0], found[-1], len(found)) == (0, len(content), rows + 1)


def test_items_whose_bytes_are_told_are_not_looked_at() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    ends = record_ends(parse_schema(json.dumps(schema), plugin="avro", option="schema"))
    assert ends is not None
    block = b"\x03\x08" + b"\x02a\x02b" + b"\x00"  # -2 items in 4 bytes, and no more
    assert ends(block + block, 2) == [0, 7, 14]
    with pytest.raises(ValueError, match="negative"):
        ends(b"\x03\x01\x00", 1)


def test_a_count_of_items_without_bytes_takes_no_time() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    ends = record_ends(parse_schema(json.dumps(schema), plugin="avro", option="schema"))
    assert ends is not None
    assert ends(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 1) == [0, 11]


@pytest.mark.parametrize(
    "field",
    [
        {"name": "next", "type": ["null", "r"]},
        {"name": "many", "type": ["null", *({"type": "enum", "name": f"e{n}", "symbols": ["A"]} for n in range(64))]},
    ],
)
def test_some_schemas_are_left_to_fastavro(field: dict[str, Any]) -> None:
    schema = {"type": "record", "name": "r", "fields": [field]}
    assert record_ends(parse_schema(json.dumps(schema), plugin="avro", option="schema")) is None
