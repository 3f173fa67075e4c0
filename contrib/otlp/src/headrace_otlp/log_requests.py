"""Requests with log records: from bytes to lists of values, one list for each column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest as Message

from headrace_otlp.json_messages import ExportLogsServiceRequest as Struct
from headrace_otlp.values import (
    NotAValueError,
    ValueOf,
    attributes,
    hexadecimal,
    integer,
    text_of,
    value_of_message,
    value_of_struct,
)

Encoding = Literal["auto", "protobuf", "json"]
Values = list[Any]
_UINT32, _UINT64, _INT32 = 2**32 - 1, 2**64 - 1, 2**31
_read_json = msgspec.json.Decoder(Struct).decode

#: What is read of each record, of its scope and of its resource. Times are nanoseconds, JSON is bytes; None: not given.
RECORD_COLUMNS = frozenset(
    {
        "time", "observed_time", "severity_number", "severity_text", "event_name", "body", "attributes",
        "dropped_attributes_count", "flags", "trace_id", "span_id",
    }
)  # fmt: skip
SCOPE_COLUMNS = frozenset({"scope_name", "scope_version", "scope_attributes"})
RESOURCE_COLUMNS = frozenset({"service_name", "resource_attributes"})


class BadRequestError(ValueError):
    """A body is no request; the text says why."""


@dataclass(slots=True)
class LogColumns:
    """Values by column. Those of scopes and resources stand there once, with the number of records that have them."""

    records: dict[str, Values] = field(default_factory=dict)
    scopes: dict[str, Values] = field(default_factory=dict)
    resources: dict[str, Values] = field(default_factory=dict)
    scope_counts: list[int] = field(default_factory=list)
    resource_counts: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(self.resource_counts)

    def add(self, other: LogColumns) -> None:
        """Put the records of another request behind these."""
        for mine, others in (
            (self.records, other.records), (self.scopes, other.scopes), (self.resources, other.resources),
        ):  # fmt: skip
            for name, values in others.items():
                mine.setdefault(name, []).extend(values)
        self.scope_counts += other.scope_counts
        self.resource_counts += other.resource_counts


def is_json(body: bytes, encoding: Encoding) -> bool:
    """Return whether a body is JSON. No request in Protocol Buffers begins with ``{``: its only field has another number."""
    return encoding == "json" or (encoding == "auto" and body[:1] == b"{")


def log_columns(body: bytes, encoding: Encoding, wanted: Collection[str]) -> LogColumns:
    """Return the wanted columns of a body. Raises BadRequestError, for the same bodies whatever is wanted."""
    if is_json(body, encoding):
        return _of_json(body)
    message = Message()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise BadRequestError(f"the body is no ExportLogsServiceRequest of Protocol Buffers: {error}") from None
    return _columns(message.resource_logs, _MESSAGE, value_of_message, wanted)


def _of_json(body: bytes) -> LogColumns:
    """Return all columns: their values are checked as they are made."""
    try:
        request: Struct = _read_json(body)
        everything = RECORD_COLUMNS | SCOPE_COLUMNS | RESOURCE_COLUMNS
        return _columns(request.resource_logs or (), _STRUCT, value_of_struct, everything)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is no ExportLogsServiceRequest as JSON: {error}") from None
    except NotAValueError as error:
        raise BadRequestError(str(error)) from None


def _columns(
    requests: Sequence[Any],
    readers: Mapping[str, Callable[[Sequence[Any]], Values]],
    value_of: ValueOf,
    wanted: Collection[str],
) -> LogColumns:
    found = LogColumns()
    records: list[Any] = []
    scopes: list[Any] = []
    for sent in requests:
        before = len(records)
        for part in sent.scope_logs or ():
            of_scope = part.log_records or ()
            records.extend(of_scope)
            scopes.append(part.scope)
            found.scope_counts.append(len(of_scope))
        found.resource_counts.append(len(records) - before)
    resources = [sent.resource for sent in requests]
    for name in wanted:
        if name in RECORD_COLUMNS:
            found.records[name] = readers[name](records)
        elif name in SCOPE_COLUMNS:
            found.scopes[name] = _of_scopes(name, scopes, value_of)
        else:
            found.resources[name] = _of_resources(name, resources, value_of)
    return found


def _of_scopes(name: str, scopes: Sequence[Any], value_of: ValueOf) -> Values:
    if name == "scope_name":
        return [(scope and scope.name) or None for scope in scopes]
    if name == "scope_version":
        return [(scope and scope.version) or None for scope in scopes]
    return [attributes(scope and scope.attributes, value_of) for scope in scopes]


def _of_resources(name: str, resources: Sequence[Any], value_of: ValueOf) -> Values:
    if name == "resource_attributes":
        return [attributes(resource and resource.attributes, value_of) for resource in resources]
    names = []
    for resource in resources:
        pairs = (resource and resource.attributes) or ()
        values = [value_of(pair.value) for pair in pairs if pair.key == "service.name"]
        names.append(text_of(values[-1]) if values else None)
    return names


_MESSAGE: Mapping[str, Callable[[Sequence[Any]], Values]] = {
    "time": lambda records: [each.time_unix_nano for each in records],
    "observed_time": lambda records: [each.observed_time_unix_nano for each in records],
    "severity_number": lambda records: [each.severity_number or None for each in records],
    "severity_text": lambda records: [each.severity_text or None for each in records],
    "event_name": lambda records: [each.event_name or None for each in records],
    "body": lambda records: [text_of(value_of_message(each.body)) for each in records],
    "attributes": lambda records: [attributes(each.attributes, value_of_message) for each in records],
    "dropped_attributes_count": lambda records: [each.dropped_attributes_count for each in records],
    "flags": lambda records: [each.flags for each in records],
    "trace_id": lambda records: [each.trace_id.hex() or None for each in records],
    "span_id": lambda records: [each.span_id.hex() or None for each in records],
}
_STRUCT: Mapping[str, Callable[[Sequence[Any]], Values]] = {
    "time": lambda records: [integer(each.time_unix_nano, 0, _UINT64) for each in records],
    "observed_time": lambda records: [integer(each.observed_time_unix_nano, 0, _UINT64) for each in records],
    "severity_number": lambda records: [integer(each.severity_number, -_INT32, _INT32 - 1) or None for each in records],
    "severity_text": lambda records: [each.severity_text or None for each in records],
    "event_name": lambda records: [each.event_name or None for each in records],
    "body": lambda records: [text_of(value_of_struct(each.body)) for each in records],
    "attributes": lambda records: [attributes(each.attributes, value_of_struct) for each in records],
    "dropped_attributes_count": lambda records: [
        integer(each.dropped_attributes_count, 0, _UINT32) for each in records
    ],
    "flags": lambda records: [integer(each.flags, 0, _UINT32) for each in records],
    "trace_id": lambda records: [hexadecimal(each.trace_id) for each in records],
    "span_id": lambda records: [hexadecimal(each.span_id) for each in records],
}
