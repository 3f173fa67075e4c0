"""Object container files: the contract, against fastavro, directories of several writers, damaged files."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import headrace as hr
import polars as pl
import pyarrow as pa
import pytest
from headrace.interfaces.source import EARLIEST
from headrace_avro.container_files import AvroFileSource
from headrace_dimension.columnar_files import ColumnarFileSettings
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.columnar_files import ColumnarFileContract
from tests.effort import examples

CODECS = ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "items", "type": {"type": "array", "items": "int"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}},
    ],
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": None if number % 3 == 1 else f"é{number}",
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number),
        "amount": Decimal(number) / 100,
        "items": list(range(number % 4)),
        "place": {"x": number / 8},
    }


def write(
    path: Path | str, schema: dict[str, Any], rows: Sequence[dict[str, Any]], codec: str = "null", **options: Any
) -> None:
    """Write a file. fastavro packs with Zstandard only where another library is installed, so blocks are packed anew."""
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec="null" if codec == "zstandard" else codec, **options)
    content = file.getvalue()
    if codec == "zstandard":
        content = packed_with_zstandard(content)
    Path(path).write_bytes(content)


def packed_with_zstandard(content: bytes) -> bytes:
    blocks: list[Any] = list(fastavro.block_reader(io.BytesIO(content)))
    sync = content[-16:]
    made = content[: content.index(sync) + 16].replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x12zstandard")
    for block in blocks:
        packed = pa.compress(block.bytes_.getvalue(), codec="zstd", asbytes=True)
        made += number(block.num_records) + number(len(packed)) + packed + sync
    return made


def number(value: int) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, "long", value)
    return made.getvalue()


def stream(path: Path, **options: Any) -> hr.Stream:
    return hr.stream("tests", "avro").from_avro(str(path), **options)


class TestAvroFileSource(ColumnarFileContract):
    plugin = "avro"
    source_class = AvroFileSource

    def save(self, frame: pl.DataFrame, path: str) -> None:
        schema = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": "number", "type": ["null", "long"]}, {"name": "text", "type": ["null", "string"]}],
        }
        file = io.BytesIO()
        writer = fastavro.write.Writer(file, schema, codec="deflate")
        for at, row in enumerate(frame.to_dicts()):
            if at % 30 == 0:
                writer.flush()
            writer.write(row)
        writer.flush()
        Path(path).write_bytes(file.getvalue())


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_those_that_were_written(codec: str, tmp_path: Path) -> None:
    rows = [order(number) for number in range(1000)]
    write(tmp_path / "a.avro", ORDER, rows, codec, sync_interval=2000)
    found = stream(tmp_path / "a.avro").collect().to_dicts()
    assert found == rows
    assert stream(tmp_path / "a.avro").select("id").collect().rows() == [(row["id"],) for row in rows]


_VALUES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=30),
    "bytes": st.binary(max_size=30),
    "boolean": st.booleans(),
}


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_any_rows_of_any_schema(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = data.draw(st.lists(st.tuples(st.sampled_from(sorted(_VALUES)), st.booleans()), min_size=1, max_size=5))
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": f"f{at}", "type": ["null", kind] if null else kind} for at, (kind, null) in enumerate(kinds)
        ],
    }
    one = st.fixed_dictionaries(
        {f"f{at}": st.none() | _VALUES[kind] if null else _VALUES[kind] for at, (kind, null) in enumerate(kinds)}
    )
    rows = data.draw(st.lists(one, min_size=1, max_size=40))
    path = tmp_path_factory.mktemp("any") / "rows.avro"
    write(path, schema, rows, data.draw(st.sampled_from(CODECS)), sync_interval=data.draw(st.integers(1, 200)))
    assert stream(path).collect().to_dicts() == rows


def versions(directory: Path) -> list[dict[str, Any]]:
    """Write files of three versions of a schema, each with another codec; return the rows by the columns of the last."""
    directory.mkdir()
    fields: dict[str, Any] = {"id": "int", "name": "string"}
    written = []
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, "null"),
        ({"note": ["null", "string"]}, "deflate"),
        ({"id": "long", "size": "double"}, "snappy"),
    ]
    for number, (more, codec) in enumerate(changes):
        fields |= more
        order_of = sorted(fields, reverse=number == 1)
        schema = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": name, "type": fields[name]} for name in order_of],
        }
        rows = [
            {
                name: {"id": number * 1000 + at, "name": f"n{at}", "note": None if at % 2 else "x", "size": at / 2}[
                    name
                ]
                for name in fields
            }
            for at in range(300)
        ]
        write(directory / f"part-{number}.avro", schema, rows, codec, sync_interval=500)
        written += rows
    return [{name: row.get(name) for name in ("id", "name", "note", "size")} for row in written]


SCHEMA = {"id": "int64", "name": "string", "note": "string", "size": "float64"}


def run(directory: Path, place: Path, backend: str, **options: Any) -> list[dict[str, Any]]:
    stream(directory, schema=SCHEMA).to_file(place, format="json").run(backend, show_progress=False, **options)
    found = [json.loads(line) for part in place.rglob("*.json") for line in part.read_text().splitlines()]
    return sorted(found, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_directory_of_several_writers(workers: int, tmp_path: Path) -> None:
    expected = versions(tmp_path / "in")
    assert run(tmp_path / "in", tmp_path / "out", "light", workers=workers) == expected


@pytest.mark.slow
@pytest.mark.spark
def test_a_directory_of_several_writers_on_spark(tmp_path: Path) -> None:
    expected = versions(tmp_path / "in")
    options = {"checkpoint": str(tmp_path / "state"), "max_micro_batch_records": 70}
    assert run(tmp_path / "in", tmp_path / "out", "spark", **options) == expected


def test_a_type_that_values_would_be_lost_in_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", ORDER, [order(1)])
    with pytest.raises(hr.JobError, match="which cannot be converted to int64"):
        stream(tmp_path / "a.avro", schema={"customer": "int64"}).collect()


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_damage_is_told_and_gives_no_other_row(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Blocks of Snappy have a checksum, so nothing in them is taken for another value."""
    rows = [{"id": number, "text": "x" * number} for number in range(60)]
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
    path = tmp_path_factory.mktemp("damage") / "a.avro"
    write(path, {"type": "record", "name": "Row", "fields": fields}, rows, "snappy", sync_interval=300)
    content = path.read_bytes()
    header = content.index(content[-16:]) + 16
    if data.draw(st.booleans()):
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    else:
        at = data.draw(st.integers(header, len(content) - 1))
        path.write_bytes(content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :])
    # Whole blocks stay: a file may end behind any of them.
    found, reason = read_as_far_as_it_goes(path)
    assert found == rows[: len(found)]
    assert reason is None or "cannot be read as a file of avro" in reason


def test_rows_before_a_damaged_block_are_read(tmp_path: Path) -> None:
    """Small blocks are decoded together; one of them that is damaged does not take the others with it."""
    rows = [{"id": number, "text": "x" * 50} for number in range(60)]
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
    path = tmp_path / "a.avro"
    write(path, {"type": "record", "name": "Row", "fields": fields}, rows, "null", sync_interval=300)
    content = bytearray(path.read_bytes())
    assert content.count(content[-16:]) > 5
    at = content.rindex(b"x" * 50)
    content[at - 1] = 0x7F  # another length of the text in the last block
    path.write_bytes(bytes(content))
    found, reason = read_as_far_as_it_goes(path)
    assert len(found) >= 50
    assert found == rows[: len(found)]
    assert reason is not None
    assert "of a block" in reason


def test_a_schema_that_refers_to_itself(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Row"], "default": None}]
    rows = [{"id": number, "next": {"id": -number, "next": None} if number % 2 else None} for number in range(50)]
    write(tmp_path / "a.avro", {"type": "record", "name": "Row", "fields": fields}, rows, sync_interval=100)
    assert stream(tmp_path / "a.avro").select("id").collect().rows() == [(number,) for number in range(50)]


def read_as_far_as_it_goes(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a file before its damage, and what is said of that."""
    source = AvroFileSource(ColumnarFileSettings.of({"path": str(path)}, plugin="avro"))
    source.use_format(None, None, hr.Schema.of({"id": "int64", "text": "string"}))
    found: list[dict[str, Any]] = []
    try:
        reader = source.open(hr.Queue(str(path)), EARLIEST)
    except hr.BrokenQueueError as error:
        return [], str(error)
    with contextlib.closing(reader):
        try:
            while (batch := reader.poll(1_000, timedelta(0))) is not None:
                assert batch.frame is not None
                found += batch.frame.to_dicts()
        except hr.BrokenQueueError as error:
            return found, str(error)
    return found, None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin as an object container file"),
        (b"PAR1", "does not begin as an object container file"),
        (b"Obj\x01\x02\x14avro.codec\x06lzo\x00" + b"s" * 16, "codec 'lzo' is not one of null, deflate"),
        (b"Obj\x01\x02\x16avro.schema\x04{}\x00" + b"s" * 16, "its schema"),
        (b"Obj\x01\x02\xff", "cut"),
    ],
)
def test_files_that_are_none(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(hr.JobError, match=said):
        stream(tmp_path / "a.avro").collect()
    assert os.listdir(tmp_path) == ["a.avro"]
