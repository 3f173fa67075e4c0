"""Reads requests of OpenTelemetry: bytes become lists of values, one list for each column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError

from headrace_otlp.values import NotAValueError, ValueOf, attributes, text_of, value_of_message, value_of_struct

Encoding = Literal["auto", "protobuf", "json"]
Values = list[Any]
#: A function that reads one column of all records. Times are nanoseconds, JSON is bytes, and None is a value that is
#: not set.
Reader = Callable[[Sequence[Any]], Values]

SCOPE_COLUMNS = frozenset({"scope_name", "scope_version", "scope_attributes"})
RESOURCE_COLUMNS = frozenset({"service_name", "resource_attributes"})


class BadRequestError(ValueError):
    """A body is not a request. The message says why."""


@dataclass(frozen=True)
class Signal:
    """A kind of telemetry (logs, traces or metrics): where a request holds its records, and how their columns are
    read.
    """

    #: The name of the request's message.
    request: str
    #: The request's class of Protocol Buffers, and the decoder of its JSON encoding, whose structs have the same
    #: attributes.
    message: Callable[[], Any]
    read_json: Callable[[bytes], Any]
    #: The attributes that hold the parts of a request by resource, and by scope.
    resources: str
    scopes: str
    #: Returns the records of a part. Raises BadRequestError if one of them cannot be a row, whichever columns are
    #: wanted.
    records: Callable[[Any], Sequence[Any]]
    message_readers: Mapping[str, Reader]
    struct_readers: Mapping[str, Reader]


@dataclass(slots=True)
class RequestColumns:
    """Values by column. A value of a scope or resource is stored once, with the number of records that it belongs
    to.
    """

    records: dict[str, Values] = field(default_factory=dict)
    scopes: dict[str, Values] = field(default_factory=dict)
    resources: dict[str, Values] = field(default_factory=dict)
    scope_counts: list[int] = field(default_factory=list)
    resource_counts: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(self.resource_counts)

    def add(self, other: RequestColumns) -> None:
        """Append the records of another request."""
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


def columns_of(signal: Signal, body: bytes, encoding: Encoding, wanted: Collection[str]) -> RequestColumns:
    """Return the wanted columns of a body. Raises BadRequestError. Which bodies are refused does not depend on the
    wanted columns.
    """
    if is_json(body, encoding):
        return _of_json(signal, body)
    message = signal.message()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise BadRequestError(f"the body is no {signal.request} of Protocol Buffers: {error}") from None
    return _columns(signal, message, signal.message_readers, value_of_message, wanted)


def _of_json(signal: Signal, body: bytes) -> RequestColumns:
    """Return all columns, because reading them is what checks their values."""
    try:
        request = signal.read_json(body)
        everything = {*signal.struct_readers, *SCOPE_COLUMNS, *RESOURCE_COLUMNS}
        return _columns(signal, request, signal.struct_readers, value_of_struct, everything)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is no {signal.request} as JSON: {error}") from None
    except NotAValueError as error:
        raise BadRequestError(str(error)) from None


def _columns(
    signal: Signal, request: Any, readers: Mapping[str, Reader], value_of: ValueOf, wanted: Collection[str]
) -> RequestColumns:
    found = RequestColumns()
    records: list[Any] = []
    scopes: list[Any] = []
    sent = getattr(request, signal.resources) or ()
    for of_resource in sent:
        before = len(records)
        for part in getattr(of_resource, signal.scopes) or ():
            of_scope = signal.records(part)
            records.extend(of_scope)
            scopes.append(part.scope)
            found.scope_counts.append(len(of_scope))
        found.resource_counts.append(len(records) - before)
    resources = [each.resource for each in sent]
    for name in wanted:
        if name in SCOPE_COLUMNS:
            found.scopes[name] = _of_scopes(name, scopes, value_of)
        elif name in RESOURCE_COLUMNS:
            found.resources[name] = _of_resources(name, resources, value_of)
        else:
            found.records[name] = readers[name](records)
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
