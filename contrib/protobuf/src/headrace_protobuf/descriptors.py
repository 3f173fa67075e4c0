"""Makes message classes from descriptor sets, which ``protoc --descriptor_set_out`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message
from headrace.foundation.errors import OptionError, did_you_mean

_FORMAT = "protobuf"
#: Files that come with Protocol Buffers; a descriptor set may lack them.
_WELL_KNOWN = (
    any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2,
)  # fmt: skip


def read_descriptor_file(path: str) -> bytes:
    """Return the bytes of a descriptor set. Raises OptionError for a file that cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _refused(f"cannot read {path!r}: {error.strerror or error}") from error


def message_class(content: bytes, name: str) -> type[Message]:
    """Return the class of a message. Raises OptionError if the bytes are not a descriptor set, or if the message or
    imports are missing.
    """
    given = descriptor_pb2.FileDescriptorSet()
    try:
        given.ParseFromString(content)
    except DecodeError as error:
        raise _refused(f"it is not a descriptor set: {error}") from error
    files = {each.name: each for each in given.file}
    if not files:
        raise _refused("the descriptor set contains no files")
    known = {module.DESCRIPTOR.name: descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
             for module in _WELL_KNOWN}  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: str, above: tuple[str, ...]) -> None:
        if file in added:
            return
        found = files.get(file) or known.get(file)
        if found is None:
            raise _refused(f"it lacks the file {file!r}, which {above[-1]!r} imports")
        if file in above:
            raise _refused(f"{file!r} imports itself")
        for each in found.dependency:
            add(each, (*above, file))
        try:
            pool.Add(found)
        except (TypeError, ValueError) as error:
            raise _refused(f"the file {file!r} in it is not valid: {error}") from error
        added.add(file)

    for file in files:
        add(file, ())
    try:
        descriptor = pool.FindMessageTypeByName(name)
    except KeyError:
        hint = did_you_mean(name, _names(list(files.values())), known="messages")
        raise OptionError(
            f"the descriptor set has no message {name!r}", plugin=_FORMAT, option="message", hint=hint
        ) from None
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    return made


def _refused(why: str) -> OptionError:
    hint = "make it with protoc --include_imports --descriptor_set_out=FILE"
    return OptionError(why, plugin=_FORMAT, option="descriptor_file", hint=hint)


def _names(files: Sequence[Any]) -> list[str]:
    """Return the full names of all messages."""
    found: list[str] = []

    def collect(messages: Sequence[Any], prefix: str) -> None:
        for each in messages:
            if not each.options.map_entry:
                found.append(f"{prefix}{each.name}")
                collect(each.nested_type, f"{prefix}{each.name}.")

    for file in files:
        collect(file.message_type, f"{file.package}." if file.package else "")
    return found
