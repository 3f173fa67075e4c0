"""Log events through the official SDK: what is sent, how often, and that secrets stay at home."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.logs import RateLimit
from headrace.testing import MemorySink, MemorySource
from headrace_metrics import OpenTelemetryExporter
from headrace_metrics.opentelemetry_logs import LogTarget
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

logger = logging.getLogger("headrace.test")


class Kept(LogRecordExporter):
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        self.records += [each.log_record for each in batch]
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is open."""


class Sent:
    """An exporter that keeps events in memory, and the events."""

    def __init__(self) -> None:
        self._kept = Kept()
        self.exporter = OpenTelemetryExporter(logs=SimpleLogRecordProcessor(self._kept))

    def events(self) -> Sequence[LogRecord]:
        return self._kept.records

    def bodies(self) -> list[Any]:
        return [each.body for each in self.events()]


@pytest.fixture
def sent() -> Iterator[Sent]:
    made = Sent()
    made.exporter.open()
    yield made
    made.exporter.close()


def test_an_event_has_its_place_in_attributes(sent: Sent) -> None:
    logger.warning("queue %s offset %d: %s rows are late", "orders-0", 17, 3, extra={"job": "team.orders"})
    [event] = sent.events()
    assert event.body == "queue orders-0 offset 17: 3 rows are late"
    assert (event.severity_number, event.severity_text) == (SeverityNumber.WARN, "WARN")
    assert dict(event.attributes or {}) == {
        "headrace.job": "team.orders",
        "headrace.queue": "orders-0",
        "headrace.offset": 17,
    }


def test_an_error_comes_with_its_trace_and_without_secrets(sent: Sent) -> None:
    try:
        raise ValueError("mysql://app:hunter2@db/shop cannot be reached")
    except ValueError:
        logger.exception("%s was refused", "mysql://app:hunter2@db/shop")
    [event] = sent.events()
    attributes = dict(event.attributes or {})
    assert attributes["exception.type"] == "ValueError"
    assert "cannot be reached" in str(attributes["exception.message"])
    assert "test_opentelemetry_logs.py" in str(attributes["exception.stacktrace"])
    assert "hunter2" not in f"{event.body!r} {attributes}"


def test_other_libraries_are_sent_from_warning_on_and_the_senders_never(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("kafka", "opentelemetry.exporter.otlp", "urllib3.connectionpool", "headrace.light"):
        logging.getLogger(name).info("information of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    assert sent.bodies() == ["warning of kafka", "information of headrace.light", "warning of headrace.light"]


def test_the_rate_is_limited_and_what_is_left_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr("headrace.foundation.logs.RateLimit", lambda: RateLimit(3, 60.0, clock))
    sent = Sent()
    sent.exporter.open()
    for number in range(10):
        logger.warning("again %d", number)
    clock.advance(61.0)
    logger.warning("again %d", 10)
    assert sent.bodies() == ["again 0", "again 1", "again 2", "again 10"]
    assert dict(sent.events()[-1].attributes or {})["headrace.left_out"] == 7
    for number in range(11, 14):
        logger.warning("again %d", number)
    sent.exporter.close()
    assert sent.bodies()[-1] == "1 events like this were left out: again %d"


def test_nothing_is_sent_after_close_and_the_root_logger_is_as_before(sent: Sent) -> None:
    before = [each for each in logging.getLogger().handlers if type(each).__name__ != "LogSender"]
    sent.exporter.close()
    sent.exporter.close()
    logger.warning("too late")
    assert sent.bodies() == []
    assert logging.getLogger().handlers == before


def test_two_jobs_of_a_process_send_an_event_once() -> None:
    kept = Kept()
    first, second = (LogTarget("one endpoint", lambda: SimpleLogRecordProcessor(kept)) for _ in range(2))
    for target in (first, second, second):
        target.open(Resource.create({}))
    logger.warning("one")
    first.close()
    logger.warning("two")
    second.close()
    logger.warning("three")
    assert [each.body for each in kept.records] == ["one", "two"]


def test_what_a_job_logs_is_sent(sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = hr.stream("team", "logged").from_(
        MemorySource({"q0": [b'{"v": 1}']}), format="json", schema={"v": "int64"}
    )
    stream.map(_complain).to(MemorySink()).run("light", metrics=sent.exporter)
    assert "v is 1" in sent.bodies()


def _complain(row: dict[str, Any]) -> dict[str, Any]:
    logger.warning("v is %d", row["v"])
    return row
