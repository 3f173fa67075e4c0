"""Builds log records and spans from rows. The columns are those of the formats ``otlp-logs`` and ``otlp-traces``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from headrace_otlp.request_bodies import OtlpBodies, bad, identifier, key_values
from headrace_otlp.spans import KINDS, STATUSES


class LogBodies(OtlpBodies):
    """Makes an ``ExportLogsServiceRequest`` of rows."""

    def record(self, row: Mapping[str, Any], attributes: list[KeyValue]) -> bytes:
        body = row.get("body")
        made = LogRecord(
            time_unix_nano=row.get("time", 0),
            observed_time_unix_nano=row.get("observed_time", 0),
            severity_number=row.get("severity_number") or 0,  # type: ignore[arg-type]
            severity_text=row.get("severity_text") or "",
            event_name=row.get("event_name") or "",
            body=None if body is None else AnyValue(string_value=body),
            attributes=attributes,
            dropped_attributes_count=row.get("dropped_attributes_count") or 0,
            flags=row.get("flags") or 0,
            trace_id=identifier(row.get("trace_id"), 16, "trace_id"),
            span_id=identifier(row.get("span_id"), 8, "span_id"),
        )
        return bytes(made.SerializeToString())


class SpanBodies(OtlpBodies):
    """Makes an ``ExportTraceServiceRequest`` of rows."""

    def record(self, row: Mapping[str, Any], attributes: list[KeyValue]) -> bytes:
        begin, end = row.get("start_time", 0), row.get("end_time", 0)
        if row.get("duration_ns") is not None and begin:
            end = begin + row["duration_ns"]  # columns of times are microseconds
        made = Span(
            start_time_unix_nano=begin,
            end_time_unix_nano=end,
            name=row.get("name") or "",
            kind=_number(row.get("kind"), KINDS, "kind"),  # type: ignore[arg-type]
            status=Status(
                code=_number(row.get("status"), STATUSES, "status"),  # type: ignore[arg-type]
                message=row.get("status_message") or "",
            ),
            trace_id=identifier(row.get("trace_id"), 16, "trace_id"),
            span_id=identifier(row.get("span_id"), 8, "span_id"),
            parent_span_id=identifier(row.get("parent_span_id"), 8, "parent_span_id"),
            trace_state=row.get("trace_state") or "",
            flags=row.get("flags") or 0,
            attributes=attributes,
            events=[_event(each) for each in _objects(row.get("events"), "events")],
            links=[_link(each) for each in _objects(row.get("links"), "links")],
            dropped_attributes_count=row.get("dropped_attributes_count") or 0,
            dropped_events_count=row.get("dropped_events_count") or 0,
            dropped_links_count=row.get("dropped_links_count") or 0,
        )
        return bytes(made.SerializeToString())


def _number(name: str | None, names: tuple[str, ...], column: str) -> int:
    if name is None:
        return 0
    if name in names:
        return names.index(name)
    if name.isdecimal() and name.isascii():
        return int(name)  # a number that the decoder's version did not know, as the format gives it
    raise bad(f"{column!r} is {name!r:.80}, which is none of {', '.join(names)}")


def _objects(text: str | None, column: str) -> list[dict[str, Any]]:
    if text is None:
        return []
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise bad(f"{column!r} is not a JSON array of objects: {error}") from None


def _event(each: Mapping[str, Any]) -> Span.Event:
    return Span.Event(
        time_unix_nano=each.get("time_unix_nano") or 0,
        name=each.get("name") or "",
        attributes=key_values((each.get("attributes") or {}).items()),
        dropped_attributes_count=each.get("dropped_attributes_count") or 0,
    )


def _link(each: Mapping[str, Any]) -> Span.Link:
    return Span.Link(
        trace_id=identifier(each.get("trace_id"), 16, "links.trace_id"),
        span_id=identifier(each.get("span_id"), 8, "links.span_id"),
        trace_state=each.get("trace_state") or "",
        flags=each.get("flags") or 0,
        attributes=key_values((each.get("attributes") or {}).items()),
        dropped_attributes_count=each.get("dropped_attributes_count") or 0,
    )
