"""Descriptor sets for tests, made without protoc."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

F = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "double": F.TYPE_DOUBLE, "float": F.TYPE_FLOAT, "int64": F.TYPE_INT64, "uint64": F.TYPE_UINT64, "int32": F.TYPE_INT32,
    "fixed64": F.TYPE_FIXED64, "fixed32": F.TYPE_FIXED32, "bool": F.TYPE_BOOL, "string": F.TYPE_STRING,
    "bytes": F.TYPE_BYTES, "uint32": F.TYPE_UINT32, "sint32": F.TYPE_SINT32, "sint64": F.TYPE_SINT64,
}  # fmt: skip


def file_of(name: str = "test.proto", *, syntax: str = "proto3", imports: Sequence[str] = ()) -> Any:
    """Return an empty file of the package ``test``."""
    return descriptor_pb2.FileDescriptorProto(name=name, package="test", syntax=syntax, dependency=imports)


def add_message(file: Any, name: str, /, **fields: str) -> Any:
    """Add a message. A field is ``[optional|repeated|required] type``, where a type of messages or enums begins with a point."""
    message = file.message_type.add(name=name)
    for number, (field, text) in enumerate(fields.items(), 1):
        words = text.split()
        kind = words[-1]
        made = message.field.add(name=field, number=number, label=F.LABEL_OPTIONAL)
        if kind.startswith("enum:"):
            made.type, made.type_name = F.TYPE_ENUM, kind.removeprefix("enum:")
        elif kind.startswith("."):
            made.type, made.type_name = F.TYPE_MESSAGE, kind
        else:
            made.type = TYPES[kind]
        if words[0] == "repeated":
            made.label = F.LABEL_REPEATED
        elif words[0] == "required":
            made.label = F.LABEL_REQUIRED
        elif words[0] == "optional" and file.syntax == "proto3":
            made.proto3_optional = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field}")
    return message


def add_map(message: Any, name: str, number: int, key: str, value: str) -> None:
    """Add a map to a message of the package."""
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=TYPES[key], label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=TYPES[value], label=F.LABEL_OPTIONAL)
    type_name = f".test.{message.name}.{entry.name}"
    message.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=type_name, label=F.LABEL_REPEATED)


def write(path: Path, *files: Any) -> str:
    """Write a descriptor set; return its path."""
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    return str(path)
