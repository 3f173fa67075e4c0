"""The messages of OTLP as its JSON has them: structs with the attributes of the messages of Protocol Buffers.

Whole numbers may be texts, as the JSON form of Protocol Buffers writes those of 64 bits; ids are in hexadecimal digits.
NULL stands for the value that a missing key has. Keys that are not known are left out.
"""

from __future__ import annotations

import msgspec

Integer = int | str | None


class AnyValue(msgspec.Struct, rename="camel"):
    """A value; at most one attribute is given."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: ArrayValue | None = None
    kvlist_value: KeyValueList | None = None


class KeyValue(msgspec.Struct):
    """One attribute."""

    key: str | None = None
    value: AnyValue | None = None


class ArrayValue(msgspec.Struct):
    """Values in order."""

    values: list[AnyValue] | None = None


class KeyValueList(msgspec.Struct):
    """Values by name."""

    values: list[KeyValue] | None = None


class Resource(msgspec.Struct, rename="camel"):
    """What has sent the records."""

    attributes: list[KeyValue] | None = None


class Scope(msgspec.Struct, rename="camel"):
    """Which library has made the records."""

    name: str | None = None
    version: str | None = None
    attributes: list[KeyValue] | None = None


class LogRecord(msgspec.Struct, rename="camel"):
    """One log record."""

    time_unix_nano: Integer = None
    observed_time_unix_nano: Integer = None
    severity_number: int | None = None
    severity_text: str | None = None
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Integer = None
    flags: Integer = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


class ScopeLogs(msgspec.Struct, rename="camel"):
    """The records of one library."""

    scope: Scope | None = None
    log_records: list[LogRecord] | None = None
    schema_url: str | None = None


class ResourceLogs(msgspec.Struct, rename="camel"):
    """The records of one sender."""

    resource: Resource | None = None
    scope_logs: list[ScopeLogs] | None = None
    schema_url: str | None = None


class ExportLogsServiceRequest(msgspec.Struct, rename="camel"):
    """A request."""

    resource_logs: list[ResourceLogs] | None = None
