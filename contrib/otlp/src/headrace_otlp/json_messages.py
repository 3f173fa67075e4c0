"""The messages of OTLP in their JSON encoding: structs with the same attributes as the messages of Protocol Buffers.

An integer may be a text, because the JSON encoding of Protocol Buffers writes 64-bit integers as texts. Ids are
hexadecimal digits. NULL means the default value, as if the key were missing. Unknown keys are ignored.
"""

from __future__ import annotations

import msgspec

Integer = int | str | None
Number = float | str | None


class AnyValue(msgspec.Struct, rename="camel"):
    """A value. At most one of the attributes is set."""

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
    """The service or host that produced the records."""

    attributes: list[KeyValue] | None = None


class Scope(msgspec.Struct, rename="camel"):
    """The library that produced the records."""

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
    """The records of one resource."""

    resource: Resource | None = None
    scope_logs: list[ScopeLogs] | None = None
    schema_url: str | None = None


class ExportLogsServiceRequest(msgspec.Struct, rename="camel"):
    """A request."""

    resource_logs: list[ResourceLogs] | None = None


class SpanEvent(msgspec.Struct, rename="camel"):
    """Something that happened in a span."""

    time_unix_nano: Integer = None
    name: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Integer = None


class SpanLink(msgspec.Struct, rename="camel"):
    """A reference to another span that is related to this one."""

    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Integer = None
    flags: Integer = None


class SpanStatus(msgspec.Struct):
    """Whether the operation of a span succeeded, and a message."""

    message: str | None = None
    code: int | None = None


class Span(msgspec.Struct, rename="camel"):
    """One span."""

    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    parent_span_id: str | None = None
    flags: Integer = None
    name: str | None = None
    kind: int | None = None
    start_time_unix_nano: Integer = None
    end_time_unix_nano: Integer = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Integer = None
    events: list[SpanEvent] | None = None
    dropped_events_count: Integer = None
    links: list[SpanLink] | None = None
    dropped_links_count: Integer = None
    status: SpanStatus | None = None


class ScopeSpans(msgspec.Struct, rename="camel"):
    """The spans of one library."""

    scope: Scope | None = None
    spans: list[Span] | None = None


class ResourceSpans(msgspec.Struct, rename="camel"):
    """The spans of one resource."""

    resource: Resource | None = None
    scope_spans: list[ScopeSpans] | None = None


class ExportTraceServiceRequest(msgspec.Struct, rename="camel"):
    """A request with spans."""

    resource_spans: list[ResourceSpans] | None = None


class Exemplar(msgspec.Struct, rename="camel"):
    """A sampled measurement, with the span in which it was taken."""

    filtered_attributes: list[KeyValue] | None = None
    time_unix_nano: Integer = None
    as_double: Number = None
    as_int: Integer = None
    span_id: str | None = None
    trace_id: str | None = None


class NumberDataPoint(msgspec.Struct, rename="camel"):
    """A number that was measured at one time."""

    attributes: list[KeyValue] | None = None
    start_time_unix_nano: Integer = None
    time_unix_nano: Integer = None
    as_double: Number = None
    as_int: Integer = None
    exemplars: list[Exemplar] | None = None
    flags: Integer = None


class HistogramDataPoint(msgspec.Struct, rename="camel"):
    """How many measurements lie in each bucket; the bounds of the buckets are listed."""

    attributes: list[KeyValue] | None = None
    start_time_unix_nano: Integer = None
    time_unix_nano: Integer = None
    count: Integer = None
    sum: Number = None
    bucket_counts: list[int | str] | None = None
    explicit_bounds: list[float | str] | None = None
    exemplars: list[Exemplar] | None = None
    flags: Integer = None
    min: Number = None
    max: Number = None


class Buckets(msgspec.Struct, rename="camel"):
    """Counts of consecutive buckets, from the bucket ``offset`` on."""

    offset: int | None = None
    bucket_counts: list[int | str] | None = None


class ExponentialHistogramDataPoint(msgspec.Struct, rename="camel"):
    """How many measurements lie in each bucket; the bounds of the buckets grow exponentially."""

    attributes: list[KeyValue] | None = None
    start_time_unix_nano: Integer = None
    time_unix_nano: Integer = None
    count: Integer = None
    sum: Number = None
    scale: int | None = None
    zero_count: Integer = None
    positive: Buckets | None = None
    negative: Buckets | None = None
    flags: Integer = None
    exemplars: list[Exemplar] | None = None
    min: Number = None
    max: Number = None
    zero_threshold: Number = None


class Quantile(msgspec.Struct):
    """A quantile of measurements."""

    quantile: Number = None
    value: Number = None


class SummaryDataPoint(msgspec.Struct, rename="camel"):
    """Quantiles of measurements. Only older libraries send these."""

    attributes: list[KeyValue] | None = None
    start_time_unix_nano: Integer = None
    time_unix_nano: Integer = None
    count: Integer = None
    sum: Number = None
    quantile_values: list[Quantile] | None = None
    flags: Integer = None


class Gauge(msgspec.Struct, rename="camel"):
    """Numbers of which the newest is the current value."""

    data_points: list[NumberDataPoint] | None = None


class Sum(msgspec.Struct, rename="camel"):
    """Numbers that add up, such as a count of requests."""

    data_points: list[NumberDataPoint] | None = None
    aggregation_temporality: int | None = None
    is_monotonic: bool | None = None


class Histogram(msgspec.Struct, rename="camel"):
    """Histograms whose bounds are listed."""

    data_points: list[HistogramDataPoint] | None = None
    aggregation_temporality: int | None = None


class ExponentialHistogram(msgspec.Struct, rename="camel"):
    """Histograms whose bounds grow exponentially."""

    data_points: list[ExponentialHistogramDataPoint] | None = None
    aggregation_temporality: int | None = None


class Summary(msgspec.Struct, rename="camel"):
    """Summaries."""

    data_points: list[SummaryDataPoint] | None = None


class MetricData(msgspec.Struct, rename="camel"):
    """One metric. At most one of the types is set."""

    name: str | None = None
    description: str | None = None
    unit: str | None = None
    gauge: Gauge | None = None
    sum: Sum | None = None
    histogram: Histogram | None = None
    exponential_histogram: ExponentialHistogram | None = None
    summary: Summary | None = None


class ScopeMetrics(msgspec.Struct, rename="camel"):
    """The metrics of one library."""

    scope: Scope | None = None
    metrics: list[MetricData] | None = None


class ResourceMetrics(msgspec.Struct, rename="camel"):
    """The metrics of one resource."""

    resource: Resource | None = None
    scope_metrics: list[ScopeMetrics] | None = None


class ExportMetricsServiceRequest(msgspec.Struct, rename="camel"):
    """A request with metrics."""

    resource_metrics: list[ResourceMetrics] | None = None
