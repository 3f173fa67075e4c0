"""Requests with log records, made by the messages of opentelemetry-proto and by the JSON of the specification."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

BEGIN = datetime(2026, 1, 31, 10, tzinfo=UTC)
BEGIN_NANOS = int(BEGIN.timestamp()) * 10**9


def value(of: Any) -> AnyValue:
    if of is None:
        return AnyValue()
    if isinstance(of, bool):
        return AnyValue(bool_value=of)
    if isinstance(of, int):
        return AnyValue(int_value=of)
    if isinstance(of, float):
        return AnyValue(double_value=of)
    if isinstance(of, bytes):
        return AnyValue(bytes_value=of)
    if isinstance(of, list):
        made = AnyValue()
        made.array_value.SetInParent()
        made.array_value.values.extend(value(each) for each in of)
        return made
    if isinstance(of, dict):
        made = AnyValue()
        made.kvlist_value.SetInParent()
        made.kvlist_value.values.extend(pairs(of))
        return made
    return AnyValue(string_value=of)


def pairs(of: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value(each)) for key, each in of.items()]


def request(
    *records: LogRecord, resource: Mapping[str, Any] | None = None, scope: str = ""
) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    sent = made.resource_logs.add()
    if resource is not None:
        sent.resource.attributes.extend(pairs(resource))
    part = sent.scope_logs.add()
    if scope:
        part.scope.name = scope
    part.log_records.extend(records)
    return made


def as_json(message: Message) -> bytes:
    """Return the JSON that OTLP asks for: ids are hexadecimal digits, enumerations are numbers."""
    return json.dumps(_with_hexadecimal_ids(MessageToDict(message, use_integers_for_enums=True))).encode()


def _with_hexadecimal_ids(told: Any) -> Any:
    if isinstance(told, list):
        return [_with_hexadecimal_ids(each) for each in told]
    if not isinstance(told, dict):
        return told
    return {
        key: base64.b64decode(each).hex().upper()
        if key in ("traceId", "spanId", "parentSpanId")
        else _with_hexadecimal_ids(each)
        for key, each in told.items()
    }
