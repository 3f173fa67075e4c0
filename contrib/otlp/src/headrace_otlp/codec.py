"""The formats of OpenTelemetry: each body is a request with log records, spans, or metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec

if TYPE_CHECKING:
    from headrace_http import RequestProtocol

    from headrace_otlp.signals import Signal

_SCOPE_AND_RESOURCE: Mapping[str, str] = {
    "scope_name": "string",
    "scope_version": "string",
    "scope_attributes": "json",
    "service_name": "string",
    "resource_attributes": "json",
}
#: The columns of a log record, and their types.
LOG_COLUMNS: Mapping[str, str] = {
    "time": "timestamp",
    "observed_time": "timestamp",
    "severity_number": "int64",
    "severity_text": "string",
    "event_name": "string",
    "body": "string",
    "attributes": "json",
    "dropped_attributes_count": "int64",
    "flags": "int64",
    "trace_id": "string",
    "span_id": "string",
    **_SCOPE_AND_RESOURCE,
}
#: The columns of a span.
SPAN_COLUMNS: Mapping[str, str] = {
    "start_time": "timestamp",
    "end_time": "timestamp",
    "duration_ns": "int64",
    "name": "string",
    "kind": "string",
    "status": "string",
    "status_message": "string",
    "trace_id": "string",
    "span_id": "string",
    "parent_span_id": "string",
    "trace_state": "string",
    "flags": "int64",
    "attributes": "json",
    "dropped_attributes_count": "int64",
    "events": "json",
    "dropped_events_count": "int64",
    "links": "json",
    "dropped_links_count": "int64",
    **_SCOPE_AND_RESOURCE,
}
#: The columns of a data point.
DATA_POINT_COLUMNS: Mapping[str, str] = {
    "time": "timestamp",
    "start_time": "timestamp",
    "name": "string",
    "type": "string",
    "unit": "string",
    "description": "string",
    "temporality": "string",
    "is_monotonic": "boolean",
    "attributes": "json",
    "value": "float64",
    "value_int64": "int64",
    "count": "int64",
    "sum": "float64",
    "min": "float64",
    "max": "float64",
    "distribution": "json",
    "exemplars": "json",
    "flags": "int64",
    **_SCOPE_AND_RESOURCE,
}


class OtlpSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the formats ``otlp-logs``, ``otlp-traces`` and ``otlp-metrics``."""

    encoding: Annotated[
        Literal["auto", "protobuf", "json"],
        hr.option("Encoding of bodies; auto: a body that begins with { is JSON, any other body is Protocol Buffers."),
    ] = "auto"
    max_body_bytes: MaxBodyBytes = 64 * 1024 * 1024


class _OtlpCodec(ReadOnlyCodec):
    Settings: ClassVar[type[OtlpSettings]] = OtlpSettings
    #: What messages call a row, its columns, and the name of the signal's module. The module is imported on first use:
    #: it needs Protocol Buffers.
    _record: ClassVar[str]
    _columns: ClassVar[Mapping[str, str]]
    _module: ClassVar[str]

    def default_schema(self) -> hr.Schema:
        """Return all columns."""
        return hr.Schema.of(self._columns)

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for a column that the signal does not have, or that has another type."""
        from headrace_otlp.decoder import OtlpDecoder

        for name, kind in schema.items():
            self._check(name, kind)
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        return OtlpDecoder(self._signal(), wanted, self.settings.encoding, self.settings.max_body_bytes)

    def request_protocol(self) -> RequestProtocol:
        """Return the protocol by which ``from_http`` accepts requests of OTLP and answers them."""
        from headrace_otlp.protocol import OtlpProtocol

        return OtlpProtocol(self._signal())

    def _signal(self) -> Signal:
        found: Signal = import_module(self._module).SIGNAL
        return found

    def _check(self, name: str, kind: pl.DataType) -> None:
        if name not in self._columns:
            raise hr.OptionError(
                f"a {self._record} has no column {name!r}",
                plugin=self.name,
                option="schema",
                hint=did_you_mean(name, self._columns, known="columns"),
            )
        declared = self._columns[name]
        if not (isinstance(kind, pl.Datetime) if declared == "timestamp" else kind == self.default_schema()[name]):
            raise hr.OptionError(
                f"column {name!r} cannot be {kind}",
                plugin=self.name,
                option="schema",
                hint=f"declare it {declared}, and convert it by an expression",
            )


class OtlpLogsCodec(_OtlpCodec):
    """Requests of OTLP with logs (``ExportLogsServiceRequest``), one row for each log record."""

    name = "otlp-logs"
    _record = "log record"
    _columns = LOG_COLUMNS
    _module = "headrace_otlp.log_records"


class OtlpTracesCodec(_OtlpCodec):
    """Requests of OTLP with traces (``ExportTraceServiceRequest``), one row for each span."""

    name = "otlp-traces"
    _record = "span"
    _columns = SPAN_COLUMNS
    _module = "headrace_otlp.spans"


class OtlpMetricsCodec(_OtlpCodec):
    """Requests of OTLP with metrics (``ExportMetricsServiceRequest``), one row for each data point."""

    name = "otlp-metrics"
    _record = "data point"
    _columns = DATA_POINT_COLUMNS
    _module = "headrace_otlp.data_points"
