"""Runs the contract suite on the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace.flow.schema import Schema
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract
from headrace_contract.contract import for_each
from headrace_protobuf.codec import ProtobufCodec
from messages import add_message, file_of, write


class ProtobufContract(CodecContract):
    one_line = False
    options = {"descriptor_file": "x", "message": "test.Row"}
    kind = "optional"

    @pytest.fixture(autouse=True)
    def descriptors(self, tmp_path: Path) -> None:
        file = file_of(imports=["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
        add_message(
            file, "Row", id="optional int64", text="optional string", amount="optional double", flag="optional bool"
        )
        add_message(file, "Pair", a="optional int64", b="optional string")
        for name, kind in VALUES.items():
            add_message(file, name, id="int64", value=kind)
        self.file = write(tmp_path / "test.desc", file)

    def make_codec(self) -> ProtobufCodec:
        return ProtobufCodec(ProtobufCodec.Settings.of({"descriptor_file": self.file, "message": "test.Row"}))

    def bad_bodies(self) -> list[bytes]:
        good = self.make_body(self.make_row(0))
        return [good[:-1], b"\xff", good + b"\x0a\x80", b"\x12\x01\xff"]


VALUES = {
    "string": "optional string", "boolean": "optional bool", "int32": "optional int32", "int64": "optional sint64",
    "float32": "optional float", "float64": "optional double", "binary": "optional bytes",
    "timestamp": ".google.protobuf.Timestamp", "duration": ".google.protobuf.Duration", "struct": ".test.Pair",
}  # fmt: skip


class TestProtobuf(ProtobufContract):
    types = ("string", "boolean", "int32", "int64", "float32", "float64", "binary", "timestamp", "duration",
             "struct<a: int64, b: string>")  # fmt: skip

    @for_each("type_name", "types")
    def test_values_of_type(self, type_name: str) -> None:
        name = type_name.partition("<")[0]
        codec = ProtobufCodec(ProtobufCodec.Settings.of({"descriptor_file": self.file, "message": f"test.{name}"}))
        schema = Schema.of({"id": "int64", "value": type_name})
        values: list[Any] = [*self.edge_values(type_name), None]
        frame = self._frame([{"id": number, "value": value} for number, value in enumerate(values)], schema)
        decoded = codec.decoder(schema).decode(_bodies(codec.encoder(schema).encode(frame)))
        self._expect_good(decoded, frame, what=f"values of {type_name}", mend="")


def _bodies(bodies: Any) -> Any:
    from headrace.flow.messages import Bodies

    return Bodies.of(list(bodies))


def test_it_is_found_by_its_name() -> None:
    assert default_registry().find("codec", "protobuf") is ProtobufCodec
