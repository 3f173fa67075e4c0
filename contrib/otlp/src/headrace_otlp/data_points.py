"""Reads data points of metrics. A record is a data point together with its metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as Message

from headrace_otlp.json_messages import ExportMetricsServiceRequest as Struct
from headrace_otlp.signals import BadRequestError, Reader, Signal
from headrace_otlp.values import MESSAGES, STRUCTS, Forms, attributes_of, encode, json_number

_TYPES = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_NUMBERS = ("gauge", "sum")
_TEMPORALITIES = ("unspecified", "delta", "cumulative")
_INT64_MAX = 2**63 - 1


class _Record(NamedTuple):
    metric: Any
    type: str
    data: Any
    point: Any


def _records(part: Any, forms: Forms) -> Sequence[_Record]:
    found = []
    for metric in part.metrics or ():
        kind = forms.which(metric, "data", _TYPES)
        if kind not in _TYPES:
            continue  # a metric without data points, or of a type that is newer than this
        data = getattr(metric, kind)
        for point in data.data_points or ():
            if kind not in _NUMBERS and forms.uint64(point.count) > _INT64_MAX:
                raise BadRequestError(f"the count {point.count} of metric {metric.name!r:.100} is 2^63 or more")
            found.append(_Record(metric, kind, data, point))
    return found


def _number(point: Any, forms: Forms) -> int | float | None:
    kind = forms.which(point, "value", ("as_double", "as_int"))
    if kind is None:
        return None
    return forms.int64(point.as_int) if kind == "as_int" else forms.double(point.as_double)


def _whole(record: _Record, forms: Forms) -> int | None:
    found = _number(record.point, forms) if record.type in _NUMBERS else None
    return found if type(found) is int else None


def _value(record: _Record, forms: Forms) -> float | None:
    found = _number(record.point, forms) if record.type in _NUMBERS else None
    return None if found is None else float(found)


def _optional(record: _Record, name: str, forms: Forms) -> float | None:
    """Return ``sum``, ``min`` or ``max``. A summary has only a sum, and always has one."""
    if record.type in _NUMBERS or (record.type == "summary" and name != "sum"):
        return None
    if record.type == "summary":
        return forms.double(record.point.sum)
    return forms.double(getattr(record.point, name)) if forms.has(record.point, name) else None


def _buckets(buckets: Any, forms: Forms) -> dict[str, Any]:
    return {
        "offset": forms.int32(buckets.offset) if buckets else 0,
        "counts": [forms.uint64(each) for each in (buckets and buckets.bucket_counts) or ()],
    }


def _distribution(record: _Record, forms: Forms) -> bytes | None:
    point = record.point
    if record.type in _NUMBERS:
        return None
    if record.type == "histogram":
        bounds = [json_number(forms.double(each)) for each in point.explicit_bounds or ()]
        return encode({"bounds": bounds, "counts": [forms.uint64(each) for each in point.bucket_counts or ()]})
    if record.type == "summary":
        pairs = [(forms.double(each.quantile), forms.double(each.value)) for each in point.quantile_values or ()]
        return encode([{"quantile": json_number(quantile), "value": json_number(value)} for quantile, value in pairs])
    return encode(
        {
            "scale": forms.int32(point.scale),
            "zero_count": forms.uint64(point.zero_count),
            "zero_threshold": json_number(forms.double(point.zero_threshold)),
            "positive": _buckets(point.positive, forms),
            "negative": _buckets(point.negative, forms),
        }
    )


def _exemplars(record: _Record, forms: Forms) -> bytes:
    every: Iterable[Any] = () if record.type == "summary" else record.point.exemplars or ()
    return encode(
        [
            {
                "time_unix_nano": forms.uint64(each.time_unix_nano),
                "value": json_number(_number(each, forms)),
                "trace_id": forms.identifier(each.trace_id),
                "span_id": forms.identifier(each.span_id),
                "attributes": attributes_of(each.filtered_attributes, forms.value),
            }
            for each in every
        ]
    )


def _temporality(record: _Record, forms: Forms) -> str | None:
    if record.type in ("gauge", "summary"):
        return None
    number = forms.int32(record.data.aggregation_temporality)
    return _TEMPORALITIES[number] if 0 <= number < len(_TEMPORALITIES) else str(number)


def _readers(forms: Forms) -> Mapping[str, Reader]:
    def each_of(read: Callable[[_Record], Any]) -> Reader:
        return lambda records: [read(record) for record in records]

    return {
        "name": each_of(lambda record: record.metric.name or None),
        "description": each_of(lambda record: record.metric.description or None),
        "unit": each_of(lambda record: record.metric.unit or None),
        "type": each_of(lambda record: record.type),
        "temporality": each_of(lambda record: _temporality(record, forms)),
        "is_monotonic": each_of(lambda record: bool(record.data.is_monotonic) if record.type == "sum" else None),
        "attributes": each_of(lambda record: encode(attributes_of(record.point.attributes, forms.value))),
        "start_time": each_of(lambda record: forms.uint64(record.point.start_time_unix_nano)),
        "time": each_of(lambda record: forms.uint64(record.point.time_unix_nano)),
        "value": each_of(lambda record: _value(record, forms)),
        "value_int64": each_of(lambda record: _whole(record, forms)),
        "count": each_of(lambda record: None if record.type in _NUMBERS else forms.uint64(record.point.count)),
        "sum": each_of(lambda record: _optional(record, "sum", forms)),
        "min": each_of(lambda record: _optional(record, "min", forms)),
        "max": each_of(lambda record: _optional(record, "max", forms)),
        "distribution": each_of(lambda record: _distribution(record, forms)),
        "exemplars": each_of(lambda record: _exemplars(record, forms)),
        "flags": each_of(lambda record: forms.uint32(record.point.flags)),
    }


_FORMS_OF_PARTS: Mapping[bool, Forms] = {True: STRUCTS, False: MESSAGES}

SIGNAL = Signal(
    request="ExportMetricsServiceRequest",
    message=Message,
    read_json=msgspec.json.Decoder(Struct).decode,
    resources="resource_metrics",
    scopes="scope_metrics",
    records=lambda part: _records(part, _FORMS_OF_PARTS[isinstance(part, msgspec.Struct)]),
    message_readers=_readers(MESSAGES),
    struct_readers=_readers(STRUCTS),
)
