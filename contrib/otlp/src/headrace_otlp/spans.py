"""Reads the columns of spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Message

from headrace_otlp.json_messages import ExportTraceServiceRequest as Struct
from headrace_otlp.signals import Reader, Signal
from headrace_otlp.values import MESSAGES, STRUCTS, Forms, attributes_of, encode

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
_INT64_MAX = 2**63 - 1


def _name(number: int, names: tuple[str, ...]) -> str:
    """Return the name of an enumeration's number, or the number itself if this version does not know it."""
    return names[number] if 0 <= number < len(names) else str(number)


def _duration(begin: int, end: int) -> int | None:
    found = end - begin
    return found if begin and end and abs(found) <= _INT64_MAX else None


def _events(events: Iterable[Any] | None, forms: Forms) -> bytes:
    return encode(
        [
            {
                "time_unix_nano": forms.uint64(each.time_unix_nano),
                "name": each.name or "",
                "attributes": attributes_of(each.attributes, forms.value),
                "dropped_attributes_count": forms.uint32(each.dropped_attributes_count),
            }
            for each in events or ()
        ]
    )


def _links(links: Iterable[Any] | None, forms: Forms) -> bytes:
    return encode(
        [
            {
                "trace_id": forms.identifier(each.trace_id),
                "span_id": forms.identifier(each.span_id),
                "trace_state": each.trace_state or None,
                "flags": forms.uint32(each.flags),
                "attributes": attributes_of(each.attributes, forms.value),
                "dropped_attributes_count": forms.uint32(each.dropped_attributes_count),
            }
            for each in links or ()
        ]
    )


def _readers(forms: Forms) -> Mapping[str, Reader]:
    def each_of(read: Callable[[Any], Any]) -> Reader:
        return lambda spans: [read(span) for span in spans]

    return {
        "start_time": each_of(lambda span: forms.uint64(span.start_time_unix_nano)),
        "end_time": each_of(lambda span: forms.uint64(span.end_time_unix_nano)),
        "duration_ns": each_of(
            lambda span: _duration(forms.uint64(span.start_time_unix_nano), forms.uint64(span.end_time_unix_nano))
        ),
        "name": each_of(lambda span: span.name or None),
        "kind": each_of(lambda span: _name(forms.int32(span.kind), KINDS)),
        "status": each_of(lambda span: _name(forms.int32(span.status.code) if span.status else 0, STATUSES)),
        "status_message": each_of(lambda span: (span.status and span.status.message) or None),
        "attributes": each_of(lambda span: encode(attributes_of(span.attributes, forms.value))),
        "dropped_attributes_count": each_of(lambda span: forms.uint32(span.dropped_attributes_count)),
        "events": each_of(lambda span: _events(span.events, forms)),
        "dropped_events_count": each_of(lambda span: forms.uint32(span.dropped_events_count)),
        "links": each_of(lambda span: _links(span.links, forms)),
        "dropped_links_count": each_of(lambda span: forms.uint32(span.dropped_links_count)),
        "flags": each_of(lambda span: forms.uint32(span.flags)),
        "trace_state": each_of(lambda span: span.trace_state or None),
        "trace_id": each_of(lambda span: forms.identifier(span.trace_id)),
        "span_id": each_of(lambda span: forms.identifier(span.span_id)),
        "parent_span_id": each_of(lambda span: forms.identifier(span.parent_span_id)),
    }


SIGNAL = Signal(
    request="ExportTraceServiceRequest",
    message=Message,
    read_json=msgspec.json.Decoder(Struct).decode,
    resources="resource_spans",
    scopes="scope_spans",
    records=lambda part: part.spans or (),
    message_readers=_readers(MESSAGES),
    struct_readers=_readers(STRUCTS),
)
