"""Reads the columns of log records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest as Message

from headrace_otlp.json_messages import ExportLogsServiceRequest as Struct
from headrace_otlp.signals import Reader, Signal
from headrace_otlp.values import (
    INT32_MAX,
    UINT32_MAX,
    UINT64_MAX,
    attributes,
    hexadecimal,
    integer,
    text_of,
    value_of_message,
    value_of_struct,
)

_MESSAGE: Mapping[str, Reader] = {
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
_STRUCT: Mapping[str, Reader] = {
    "time": lambda records: [integer(each.time_unix_nano, 0, UINT64_MAX) for each in records],
    "observed_time": lambda records: [integer(each.observed_time_unix_nano, 0, UINT64_MAX) for each in records],
    "severity_number": lambda records: [
        integer(each.severity_number, -INT32_MAX - 1, INT32_MAX) or None for each in records
    ],
    "severity_text": lambda records: [each.severity_text or None for each in records],
    "event_name": lambda records: [each.event_name or None for each in records],
    "body": lambda records: [text_of(value_of_struct(each.body)) for each in records],
    "attributes": lambda records: [attributes(each.attributes, value_of_struct) for each in records],
    "dropped_attributes_count": lambda records: [
        integer(each.dropped_attributes_count, 0, UINT32_MAX) for each in records
    ],
    "flags": lambda records: [integer(each.flags, 0, UINT32_MAX) for each in records],
    "trace_id": lambda records: [hexadecimal(each.trace_id) for each in records],
    "span_id": lambda records: [hexadecimal(each.span_id) for each in records],
}

SIGNAL = Signal(
    request="ExportLogsServiceRequest",
    message=Message,
    read_json=msgspec.json.Decoder(Struct).decode,
    resources="resource_logs",
    scopes="scope_logs",
    records=lambda part: part.log_records or (),
    message_readers=_MESSAGE,
    struct_readers=_STRUCT,
)
