"""``to_otlp``: sends rows as log records or spans to a collector, or to any other receiver of OTLP over HTTP."""

from __future__ import annotations

import logging
from typing import Annotated, Any, ClassVar, Literal

import headrace as hr
from google.protobuf.message import DecodeError
from headrace_http import RequestBodies, RequestSink, RequestSinkSettings
from headrace_http.client import Answer, Client
from headrace_http.settings import Url

from headrace_otlp.codec import LOG_COLUMNS, SPAN_COLUMNS

logger = logging.getLogger(__name__)


class OtlpSinkSettings(RequestSinkSettings, frozen=True, kw_only=True):
    """Options of ``to_otlp``."""

    plugin_name: ClassVar[str] = "otlp"

    url: Url
    signal: Annotated[Literal["logs", "traces"], hr.option("what a row is: a log record or a span")] = "logs"
    service_name: Annotated[
        str | None, hr.option("service.name of the resource for rows that name no service; default: none")
    ] = None
    compress: Annotated[bool, hr.option("whether requests are compressed with gzip")] = True


class OtlpSink(RequestSink):
    """Sends rows by OTLP over HTTP, in Protocol Buffers. Guarantee: at least once.

    Columns with the names that the formats ``otlp-logs`` and ``otlp-traces`` give fill the fields of a record; every
    other column becomes an attribute. A request that is answered with ``partial_success`` counts as stored: the
    receiver does not say which records it rejected, and OTLP forbids sending the request again. The number of rejected
    records is logged.
    """

    Settings: ClassVar[type[hr.SinkSettings]] = OtlpSinkSettings
    settings: OtlpSinkSettings

    def __init__(self, settings: OtlpSinkSettings) -> None:
        super().__init__(settings)

    def bodies(self, schema: hr.Schema | None) -> RequestBodies:
        """Return the object that builds requests from rows. Raises OptionError for a column whose type OpenTelemetry
        does not have.
        """
        from headrace_otlp.record_bodies import LogBodies, SpanBodies

        if schema is None:
            raise hr.OptionError(
                "the columns are not known when the job is built",
                plugin="otlp",
                hint="give the map() before it an option schema={...}",
            )
        if self.settings.signal == "logs":
            return LogBodies(schema, LOG_COLUMNS, self.settings.service_name)
        return SpanBodies(schema, SPAN_COLUMNS, self.settings.service_name)

    def client(self) -> Client:
        """Return the connections."""
        return Client(self.settings, compress=self.settings.compress)

    def judge(self, answer: Answer) -> None:
        """Log how many records of a request the receiver rejected."""
        partial = self._partial_success(answer.content)
        left_out = 0 if partial is None else partial.rejected_log_records if self._is_logs else partial.rejected_spans
        if left_out:
            logger.warning(
                "to_otlp: %s did not send %d records: %s", self.settings.url, left_out, partial.error_message
            )

    @property
    def _is_logs(self) -> bool:
        return self.settings.signal == "logs"

    def _partial_success(self, content: bytes) -> Any:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        response = ExportLogsServiceResponse() if self._is_logs else ExportTraceServiceResponse()
        try:
            response.ParseFromString(content)
        except DecodeError:
            return None  # some receivers answer with another body than OTLP specifies; the status alone says that the records are stored
        return response.partial_success
