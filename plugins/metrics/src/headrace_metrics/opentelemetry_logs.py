"""OpenTelemetry: the log events of this process, given to a log record processor of the official SDK."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

from headrace.foundation.logs import LimitedHandler, RateLimit, place_of
from headrace.foundation.secrecy import masked
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

_NANOSECONDS = 1_000_000_000
#: Loggers of what sends the events. Their warnings that a collector is away must not become new events to send.
_SENDERS = ("opentelemetry", "urllib3", "requests")
#: The severity from each level of Python on. Source: the field SeverityNumber in OpenTelemetry's data model of logs.
_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)


class LogSender(LimitedHandler):
    """Gives each event that is logged in this process to a ``LogRecordProcessor``.

    It sends what ``headrace.foundation.logs`` writes: the same events, limited to the same rate, with the same secrets masked. Job,
    node, queue and offset of an event are attributes ``headrace.job`` and so on. ``LogTarget`` adds it to the root logger.
    """

    def __init__(self, processor: LogRecordProcessor, resource: Resource, *, limit: RateLimit | None = None) -> None:
        super().__init__(limit=limit)
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(processor)

    def handle(self, record: logging.LogRecord) -> bool:
        return record.name.split(".", 1)[0] not in _SENDERS and super().handle(record)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._provider.get_logger(record.name).emit(_event(record))
        except Exception:  # a handler reports its faults as the standard library's do, and does not disturb who logs
            self.handleError(record)

    def flush(self) -> None:
        """Send what is waiting. Returns when it was sent, or when the time-out of the SDK's exporter has passed."""
        self._provider.force_flush()

    def close(self) -> None:
        """Tell what was left out, send what is waiting, and end the processor. Called once."""
        super().close()
        self._provider.shutdown()


def _event(record: logging.LogRecord) -> LogRecord:
    attributes: dict[str, Any] = {}
    for name, value in place_of(record).items():
        attributes[f"headrace.{name}"] = masked(value) if isinstance(value, str) else value
    if record.__dict__.get("left_out"):
        attributes["headrace.left_out"] = record.__dict__["left_out"]
    if record.exc_info and record.exc_info[0] is not None:
        kind, error, _ = record.exc_info
        attributes["exception.type"] = kind.__qualname__
        attributes["exception.message"] = masked(str(error))
        attributes["exception.stacktrace"] = masked("".join(traceback.format_exception(*record.exc_info)))
    severity = next((found for level, found in _SEVERITIES if record.levelno >= level), SeverityNumber.TRACE)
    return LogRecord(
        timestamp=int(record.created * _NANOSECONDS),
        severity_number=severity,
        severity_text=severity.name,
        body=masked(record.getMessage()),
        attributes=attributes,
    )


class LogTarget:
    """Where the events of this process go. Targets of one endpoint share a sender: jobs that name it send each event once."""

    _shared: ClassVar[dict[str, tuple[LogSender, set[LogTarget]]]] = {}
    _sharing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, make_processor: Callable[[], LogRecordProcessor]) -> None:
        self._name = name
        self._make_processor = make_processor

    @classmethod
    def of_endpoint(cls, endpoint: str) -> LogTarget:
        """Return the target of an endpoint of OTLP over HTTP."""
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        return cls(endpoint, lambda: BatchLogRecordProcessor(OTLPLogExporter(endpoint=endpoint)))

    def open(self, resource: Resource) -> None:
        """Send what is logged from now on. May be called again."""
        with self._sharing:
            if self._name not in self._shared:
                sender = LogSender(self._make_processor(), resource)
                self._shared[self._name] = sender, set()
                logging.getLogger().addHandler(sender)
            self._shared[self._name][1].add(self)

    def flush(self) -> None:
        """Send what is waiting, as ``LogSender.flush`` does."""
        with self._sharing:
            sender, _ = self._shared.get(self._name, (None, None))
        if sender is not None:
            sender.flush()

    def close(self) -> None:
        """Send no more for this target. The last one of an endpoint sends what is waiting. May be called twice."""
        with self._sharing:
            sender, targets = self._shared.get(self._name, (None, set()))
            if sender is None or self not in targets:
                return
            targets.discard(self)
            if targets:
                return
            del self._shared[self._name]
            logging.getLogger().removeHandler(sender)
        sender.close()
