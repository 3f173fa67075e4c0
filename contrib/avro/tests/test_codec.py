"""Schemas and columns that do not fit are refused when the job is built; values that do not fit are bad records."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.testing import MemorySource
from headrace_avro import decoder
from headrace_avro.bodies import BodyBytes
from headrace_avro.codec import AvroCodec


def schema_of(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


def codec_of(**options: Any) -> AvroCodec:
    return AvroCodec(AvroCodec.Settings.of(options))


def body_of(schema: str, **values: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(schema)), values)
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "JSONDecodeError"),
        ('"string"', "not a record"),
        ("[]", "not a record"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "text"}]}', "UnknownType: text"),
        ('{"type": "record", "fields": []}', "name"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_texts_that_are_no_schema(text: str, why: str) -> None:
    with pytest.raises(hr.OptionError, match="not an Avro schema of a record") as caught:
        codec_of(avro_schema=text)
    assert why in str(caught.value)
    assert caught.value.option == "avro_schema"


def test_a_file_that_is_not_there_and_two_schemas(tmp_path: Path) -> None:
    with pytest.raises(hr.OptionError, match="No such file") as caught:
        codec_of(avro_schema_file=str(tmp_path / "none.avsc"))
    assert caught.value.option == "avro_schema_file"
    with pytest.raises(hr.OptionError, match="takes the place of avro_schema"):
        codec_of(avro_schema_file="a", avro_schema="b")
    with pytest.raises(hr.OptionError, match="not a full name"):
        codec_of(record_name="a-b")


def test_a_schema_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(schema_of(a="int"))
    assert codec_of(avro_schema_file=str(file)).default_schema() == hr.Schema.of({"a": "int32"})


@pytest.mark.parametrize(
    ("avro", "column"),
    [
        ("string", "int64"),
        ("double", "float32"),
        ("long", "timestamp"),
        ("boolean", "string"),
        (["null", "long"], "binary"),
    ],
)
def test_columns_that_values_do_not_become(avro: Any, column: str) -> None:
    with pytest.raises(hr.OptionError, match=r"column 'a': Avro's .* cannot be converted to"):
        codec_of(avro_schema=schema_of(a=avro)).decoder(hr.Schema.of({"a": column}))


def test_columns_that_are_no_fields() -> None:
    with pytest.raises(hr.OptionError, match="'amonut' is not a field") as caught:
        codec_of(avro_schema=schema_of(amount="long")).decoder(hr.Schema.of({"amonut": "int64"}))
    assert "amount" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("avro", "column", "value", "found"),
    [
        ("long", "int8", 128, "128 is not in the range of int8"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp", 2**62, "is not in the range of timestamp"),
        ({"type": "int", "logicalType": "date"}, "date", 2**31 - 1, "is not in the range of date"),
        ({"type": "int", "logicalType": "time-millis"}, "time", 86_400_000, "is not in the range of time"),
        ({"type": "int", "logicalType": "time-millis"}, "time", -1, "is not in the range of time"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            "decimal(3, 1)",
            b"\x03\xe8",
            "03e8 is not",
        ),
        (
            {"type": "array", "items": "long"},
            "array<int16>",
            [1, 2**15],
            "[1, 32768] is not in the range of array<int16>",
        ),
    ],
)
def test_values_outside_of_their_columns(avro: Any, column: str, value: Any, found: str) -> None:
    schema = schema_of(id="int", a=avro)
    plain = schema_of(id="int", a={"type": "bytes"} if isinstance(value, bytes) else avro)
    good = body_of(schema, id=1, a={"array<int16>": []}.get(column, b"" if isinstance(value, bytes) else 0))
    bodies = [good, body_of(plain, id=2, a=value), good]
    decoded = codec_of(avro_schema=schema).decoder(hr.Schema.of({"id": "int64", "a": column})).decode(Bodies.of(bodies))
    assert decoded.frame["id"].to_list() == [1, 1]
    [bad] = decoded.bad
    assert bad.row == 1
    assert found in bad.reason


def test_logical_types_of_others() -> None:
    """What fastavro writes of Python's values is read as them."""
    fields = {
        "millis": {"type": "long", "logicalType": "timestamp-millis"},
        "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
        "local": {"type": "long", "logicalType": "local-timestamp-millis"},
        "day": {"type": "int", "logicalType": "date"},
        "time": {"type": "int", "logicalType": "time-millis"},
        "small": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "large": {"type": "fixed", "name": "f", "size": 17, "logicalType": "decimal", "precision": 38, "scale": 4},
        "number": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        "unknown": {"type": "string", "logicalType": "unheard-of"},
    }
    number = "0f3b1c52-8f0e-4b7a-9d57-5d0b6d2a1e44"
    row = {
        "millis": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC), "nanos": 1_700_000_000_123_456_789,
        "local": dt.datetime(2024, 2, 29, 1, 2, 3), "day": dt.date(1, 1, 1), "time": dt.time(23, 59, 59, 999_000),
        "small": Decimal("-0.01"), "large": Decimal("-1234567890123456789012345678901234.5678"),
        "number": bytes.fromhex(number.replace("-", "")), "unknown": "text",
    }  # fmt: skip
    schema = schema_of(**fields)
    codec = codec_of(avro_schema=schema)
    columns = codec.default_schema()
    assert columns is not None
    plain = schema_of(**{**fields, "number": {"type": "fixed", "name": "u", "size": 16}})
    decoded = codec.decoder(columns).decode(Bodies.of([body_of(plain, **row)]))
    nanos = dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, dt.UTC)
    assert decoded.frame.to_dicts() == [{**row, "nanos": nanos, "number": number}]


def test_a_readers_schema_without_a_value_for_a_field() -> None:
    codec = codec_of(avro_schema=schema_of(a="long"), reader_schema=schema_of(a="long", b="long"))
    columns = codec.default_schema()
    assert columns is not None
    [bad] = codec.decoder(columns).decode(Bodies.of([body_of(schema_of(a="long"), a=1)])).bad
    assert "cannot be read by the reader's schema" in bad.reason
    assert "b" in bad.reason


def test_types_that_refer_to_themselves() -> None:
    schema = schema_of(id="long", next=["null", "r"])
    codec = codec_of(avro_schema=schema)
    columns = codec.default_schema()
    assert columns is not None
    body = body_of(schema, id=1, next={"id": 2, "next": None})
    assert codec.decoder(columns).decode(Bodies.of([body])).frame.rows() == [(1, '{"id":2,"next":null}')]
    assert codec.decoder(columns, ["id"]).decode(Bodies.of([body])).frame.rows() == [(1,)]
    endless = b"\x02\x02" * 500
    [bad] = codec.decoder(columns).decode(Bodies.of([endless])).bad
    assert bad.reason == "field 'next': nested deeper than 100 levels"


def test_long_arrays_in_few_bodies_are_not_read_step_by_step() -> None:
    """One body with arrays of arrays would take a minute: a step takes as long for one body as for a thousand."""
    schema = schema_of(a={"type": "array", "items": {"type": "array", "items": "long"}}, b="long")
    codec = codec_of(avro_schema=schema)
    columns = codec.default_schema()
    assert columns is not None
    values = [[list(range(60))] * 60, [[1]], []]
    steps: list[int] = []

    class Counted(BodyBytes):
        def integers(self, *arguments: Any) -> Any:
            steps.append(1)
            return super().integers(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoder, "BodyBytes", Counted)
        decoded = codec.decoder(columns).decode(Bodies.of([body_of(schema, a=each, b=7) for each in values]))
    assert decoded.frame.rows() == [(each, 7) for each in values]
    assert len(steps) < 3_600, "fewer than there are items"


def test_many_items_without_bytes() -> None:
    """A body of ten bytes must not fill the memory."""
    schema = schema_of(a={"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}})
    codec = codec_of(avro_schema=schema)
    columns = codec.default_schema()
    assert columns is not None
    [bad] = codec.decoder(columns).decode(Bodies.of([b"\xfe\xff\xff\xff\xff\xff\x3f\x00"])).bad
    assert bad.reason == "field 'a': more than 1000000 items without a byte"


@pytest.mark.parametrize(
    ("fields", "columns", "message"),
    [
        ({"a": "long"}, {"a": "int64", "b": "int64"}, "column 'b' is not a field"),
        ({"a": "long", "b": "long"}, {"a": "int64"}, "no column for the field 'b'"),
        ({"a": "string"}, {"a": "int64"}, "column 'a' is int64"),
        ({"a": {"type": "map", "values": "long"}}, {"a": "string"}, "column 'a' is string"),
    ],
)
def test_rows_that_a_schema_has_no_place_for(fields: dict[str, Any], columns: dict[str, str], message: str) -> None:
    with pytest.raises(hr.OptionError, match=message):
        codec_of(avro_schema=schema_of(**fields)).encoder(hr.Schema.of(columns))


def test_columns_without_a_type_in_avro() -> None:
    with pytest.raises(hr.OptionError, match="'a' is duration, for which Avro has no type"):
        codec_of().encoder(hr.Schema.of({"a": "duration"}))
    with pytest.raises(hr.OptionError, match="columns are not known"):
        codec_of().encoder(None)


@pytest.mark.parametrize(
    ("avro", "kind", "value"), [("long", pl.Int64(), None), ("int", pl.Int64(), 2**31), ("string", pl.String(), None)]
)
def test_values_that_a_field_does_not_hold(avro: str, kind: pl.DataType, value: Any) -> None:
    encoder = codec_of(avro_schema=schema_of(a=avro)).encoder(hr.Schema({"a": kind}))
    with pytest.raises(hr.DataError, match=r"not a record of the schema|32-bit int"):
        encoder.encode(pl.DataFrame({"a": [value]}, schema={"a": kind}))


def test_rows_of_unknown_columns() -> None:
    schema = schema_of(a="long", b=["null", "string"])
    rows = [b'{"a": 1}', b'{"a": 2}']
    stream = hr.stream("test", "job").from_(MemorySource({"q": rows}), format="json", schema={"a": "int64"})
    frame = stream.map(lambda row: {"a": row["a"], "b": "x"}).collect()
    assert frame.height == 2
    encoder = codec_of(avro_schema=schema).encoder(None)
    from headrace.flow.messages import ROW
    from headrace.flow.rows import pack_rows

    packed = pl.DataFrame({ROW: pack_rows([{"a": 1, "b": "x"}, {"a": 2}])})
    assert list(encoder.encode(packed)) == [body_of(schema, a=1, b="x"), body_of(schema, a=2, b=None)]
    with pytest.raises(hr.DataError, match="'c', which is not a field"):
        encoder.encode(pl.DataFrame({ROW: pack_rows([{"c": 1}])}))


def test_lines_of_a_file_are_refused() -> None:
    with pytest.raises(hr.OptionError, match="cannot be written as lines of a file"):
        codec_of().encoder(hr.Schema.of({"a": "int64"})).encode_lines(pl.DataFrame({"a": [1]}))
