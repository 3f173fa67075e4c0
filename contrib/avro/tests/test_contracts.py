"""Runs the contract suite on the format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.interfaces.registry import default_registry
from headrace_avro.codec import AvroCodec
from headrace_contract import CodecContract

TYPES = (
    "string", "boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(38, 18)", "decimal(12, 2)", "date",
    "time", "timestamp", "timestamp_ntz", "binary", "json", "array<int64>", "array<string>", "struct<a: int64, b: string>",
)  # fmt: skip


class TestAvroOfDeclaredColumns(CodecContract):
    types = TYPES
    one_line = False

    def make_codec(self) -> AvroCodec:
        return AvroCodec(AvroCodec.Settings.of({}))

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(0))
        return [b"", good[:-1], good + b"\x00", b"\x04" + good[1:], b"\x02" + b"\xff" * 11]


SCHEMA = """
{"type": "record", "name": "event", "namespace": "test", "fields": [
  {"name": "amount", "type": ["null", "double"]},
  {"name": "text", "type": ["string", "null"]},
  {"name": "id", "type": "long"},
  {"name": "tags", "type": {"type": "array", "items": {"type": "record", "name": "tag", "fields": [
    {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}}, {"name": "at", "type": ["null", "int"]}]}}},
  {"name": "hash", "type": {"type": "fixed", "name": "hash", "size": 3}},
  {"name": "flag", "type": ["null", "boolean"]}
]}
"""


class TestAvroOfASchema(CodecContract):
    schema = {
        "id": "int64", "text": "string", "amount": "float64", "flag": "boolean", "hash": "binary",
        "tags": "array<struct<kind: string, at: int32>>",
    }  # fmt: skip
    one_line = False
    encodes = False
    options = {"avro_schema": SCHEMA}

    def make_codec(self) -> AvroCodec:
        return AvroCodec(AvroCodec.Settings.of({"avro_schema": SCHEMA}))

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "id": 10**number if number < 19 else -number,
            "text": None if number % 5 == 1 else f"text {number} é" * (number % 4),
            "amount": None if number % 3 == 2 else number / 8,
            "flag": None if number % 7 == 4 else number % 2 == 0,
            "hash": bytes([number % 256]) * 3,
            "tags": [{"kind": "AB"[at % 2], "at": None if at == 2 else at} for at in range(number % 4)],
        }

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(3))
        return [b"", good[:-1], good + b"\x00", b"\x04" + good[1:], b"\x03" + good[1:]]


class TestAvroOfAUnion(TestAvroOfASchema):
    """A union of several types, which is read record by record."""

    schema = {"id": "int64", "text": "json"}
    union = """{"type": "record", "name": "event", "fields": [
        {"name": "text", "type": ["string", "null", "long", {"type": "map", "values": "long"}]}, {"name": "id", "type": "long"}]}"""

    def make_codec(self) -> AvroCodec:
        return AvroCodec(AvroCodec.Settings.of({"avro_schema": self.union}))

    def make_row(self, number: int) -> dict[str, Any]:
        return {"id": number, "text": (None, '"word"', "17", '{"key":1}')[number % 4]}

    def make_body(self, row: dict[str, Any]) -> bytes:
        values = {None: b"\x02", '"word"': b"\x00\x08word", "17": b"\x04\x22", '{"key":1}': b"\x06\x02\x06key\x02\x00"}
        return values[row["text"]] + bytes([2 * row["id"]])

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"",
            b"\x02",
            b"\x01\x02",
            b"\x08\x02",
            b"\x02\x02\x02",
            b"\x00\x03\x02",
            b"\x00\x02\xff\x02",
            b"\x06\x01\x02\x00",
        ]


def test_it_is_found_by_its_name() -> None:
    assert default_registry().find("codec", "avro") is AvroCodec
