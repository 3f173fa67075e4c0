"""The format ``otlp-logs``: each body is a request with log records of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean

if TYPE_CHECKING:
    from headrace_http import RequestProtocol

#: The columns of a log record, and their types.
COLUMNS: Mapping[str, str] = {
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
    "scope_name": "string",
    "scope_version": "string",
    "scope_attributes": "json",
    "service_name": "string",
    "resource_attributes": "json",
}
_TYPES = hr.Schema.of(COLUMNS)


class OtlpLogsSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the format ``otlp-logs``."""

    encoding: Annotated[
        Literal["auto", "protobuf", "json"],
        hr.option("How bodies are written; auto: a body that begins with { is JSON, another one Protocol Buffers."),
    ] = "auto"
    max_body_bytes: Annotated[
        int, hr.option("The largest size of a body, in bytes. A larger body is a bad record.", ge=1)
    ] = 64 * 1024 * 1024


class OtlpLogsCodec(hr.Codec):
    """Requests of OTLP (``ExportLogsServiceRequest``), one row for each log record."""

    Settings: ClassVar[type[OtlpLogsSettings]] = OtlpLogsSettings

    def default_schema(self) -> hr.Schema:
        """Return all columns of a log record."""
        return _TYPES

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for columns that a record does not have, or of another type."""
        from headrace_otlp.logs_decoder import OtlpLogsDecoder

        for name, kind in schema.items():
            _check(name, kind)
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        return OtlpLogsDecoder(wanted, self.settings.encoding, self.settings.max_body_bytes)

    def request_protocol(self) -> RequestProtocol:
        """Return how ``from_http`` takes requests of OTLP and answers them."""
        from headrace_otlp.protocol import OtlpLogsProtocol

        return OtlpLogsProtocol()

    def encoder(self, schema: hr.Schema | None) -> hr.Encoder:
        """Raise PlanError: the format can only be read."""
        raise hr.PlanError(
            "the format 'otlp-logs' can only be read",
            plugin="otlp-logs",
            hint="write another format, such as format='json'",
        )


def _check(name: str, kind: pl.DataType) -> None:
    if name not in COLUMNS:
        raise hr.OptionError(
            f"a log record has no column {name!r}",
            plugin="otlp-logs",
            option="schema",
            hint=did_you_mean(name, COLUMNS, known="columns"),
        )
    if not (isinstance(kind, pl.Datetime) if COLUMNS[name] == "timestamp" else kind == _TYPES[name]):
        raise hr.OptionError(
            f"column {name!r} cannot be {kind}",
            plugin="otlp-logs",
            option="schema",
            hint=f"declare it {COLUMNS[name]}, and convert it by an expression",
        )
