"""Bodies of old and new writers in one topic, in any order, read as the reader's schema: the same as fastavro reads each of them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_schemaregistry.testing import small_registry
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

#: What a reader's type may have been written as: the rules of resolution promote it.
EARLIER = {
    "long": ["long", "int"],
    "double": ["double", "float", "long", "int"],
    "string": ["string", "bytes"],
    "bytes": ["bytes", "string"],
    "boolean": ["boolean"],
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**53), 2**53),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.text(max_size=5, alphabet="abä").map(str.encode),
    "boolean": st.booleans(),
}
DEFAULTS: dict[str, Any] = {"long": -7, "double": 1, "string": "none", "bytes": "\u00ff\u0000x", "boolean": True}


@st.composite
def versions(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a reader's schema and those of up to four writers, from which it can read."""
    kinds = {f"f{n}": draw(st.sampled_from(sorted(EARLIER))) for n in range(draw(st.integers(1, 5)))}
    nullable = {name for name in kinds if draw(st.booleans())}

    def field(name: str, kind: str, *, read: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": ["null", kind] if name in nullable else kind}
        if read:
            made["default"] = None if name in nullable else DEFAULTS[kinds[name]]
        return made

    reader = [field(name, kind, read=True) for name, kind in kinds.items()]
    writers = []
    for number in range(draw(st.integers(1, 4))):
        fields = [
            field(name, draw(st.sampled_from(EARLIER[kind])), read=False)
            for name, kind in kinds.items()
            if draw(st.integers(0, 3))  # else the version does not have it yet
        ]
        fields += [
            {"name": f"gone{number}_{n}", "type": draw(st.sampled_from(sorted(VALUES)))}
            for n in range(draw(st.integers(0, 2)))
        ]
        writers.append(draw(st.permutations(fields)))
    return _record(reader), [_record(fields) for fields in writers]


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": fields}


def _value(kind: Any) -> st.SearchStrategy[Any]:
    return st.none() | VALUES[kind[1]] if isinstance(kind, list) else VALUES[kind]


def _expected(body: bytes, writer: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(body), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    written = {field["name"] for field in writer["fields"]}
    for field in reader["fields"]:
        if field["name"] not in written and field["type"] == "bytes":  # fastavro gives the text of the JSON
            found[field["name"]] = field["default"].encode("latin-1")
    return dict(found)


def _encoded(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), record)
    return file.getvalue()


def read(
    bodies: list[bytes], url: str, reader: dict[str, Any], **options: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a job, and its dead letters."""
    sink, letters = MemorySink(), MemorySink()
    stream = hr.stream("tests", "mixed").from_(
        MemorySource({"q": bodies}), format="avro-confluent", registry_url=url, reader_schema=json.dumps(reader)
    )
    stream.dead_letters(lambda bad: bad.to(letters)).to(sink).run("light", show_progress=False, **options)
    return list(sink.rows), list(letters.rows)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_versions_in_any_order(data: st.DataObject) -> None:
    reader, writers = data.draw(versions())
    with small_registry() as registry:
        ids = [registry.add("s", json.dumps(writer)) for writer in writers]
        wanted, bodies = [], []
        for _ in range(data.draw(st.integers(1, 12))):
            place = data.draw(st.integers(0, len(writers) - 1))
            record = {f["name"]: data.draw(_value(f["type"])) for f in writers[place]["fields"]}
            body = _encoded(writers[place], record)
            wanted.append(_expected(body, writers[place], reader))
            bodies.append(b"\x00" + ids[place].to_bytes(4, "big") + body)
        rows, bad = read(bodies, registry.url, reader)
    assert bad == []
    assert rows == wanted


OLD = _record([{"name": "id", "type": "int"}, {"name": "old", "type": "string"}, {"name": "amount", "type": "float"}])
NEW = _record(
    [{"name": "note", "type": ["null", "string"], "default": None}, {"name": "amount", "type": "double"},
     {"name": "id", "type": "long"}]
)  # fmt: skip
READER = _record(
    [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"},
     {"name": "note", "type": ["null", "string"], "default": None}]
)  # fmt: skip


@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_many_records_of_two_writers(batch: int) -> None:
    """Where batches end makes no difference, nor which version a batch begins with."""
    with small_registry() as registry:
        old, new = registry.add("s", json.dumps(OLD)), registry.add("s", json.dumps(NEW))
        bodies = []
        for n in range(300):
            is_new = n % 7 in (0, 3, 4)
            record: dict[str, Any] = {"id": n, "amount": n / 2}
            record |= {"note": f"n{n}"} if is_new else {"old": "x"}
            schema_id, schema = (new, NEW) if is_new else (old, OLD)
            bodies.append(b"\x00" + schema_id.to_bytes(4, "big") + _encoded(schema, record))
        bodies[100] += b"!"
        rows, bad = read(bodies, registry.url, READER, max_batch_records=batch)
    assert [row["offset"] for row in bad] == [100]
    assert rows == [
        {"id": n, "amount": n / 2, "note": f"n{n}" if n % 7 in (0, 3, 4) else None} for n in range(300) if n != 100
    ]
