"""A real OpenTelemetry collector before a job, which sends to it, and behind one, which it sends to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otel_collector import Collector
from test_otlp_over_http import JOB, _listens, free_port

from tests.eventually import eventually

pytestmark = pytest.mark.slow
RESOURCE = Resource.create({"service.name": "shop"})


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    with ExitStack() as stack:

        def start(exporter: str = "", **ports: int) -> Collector:
            endpoints = {kind: f"http://127.0.0.1:{port}" for kind, port in ports.items()}
            made = Collector(tmp_path / "collector", endpoints, exporter=exporter)
            stack.callback(made.stop)
            return made

        yield start


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], MemorySink]]:
    """Start a job that takes a signal on a port; return what it has taken."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:

        def start(kind: str, port: int) -> MemorySink:
            sink = MemorySink()
            given: dict[str, Any] = {"port": port, "path": f"/v1/{kind}", "buffer": f"buffer-{kind}"}
            stream = hr.stream("tests", kind).from_http(format=f"otlp-{kind}", **given)
            handle = stream.to(sink).start("light", checkpoint=f"state-{kind}", checkpoint_interval="100 ms")
            stack.callback(handle.stop)
            eventually(lambda: _listens(port), "the job listens")
            return sink

        yield start


ENCODINGS = [
    pytest.param("    encoding: proto\n    compression: gzip", id="proto-gzip"),
    pytest.param("    encoding: json\n    compression: none", id="json"),
    pytest.param("    encoding: json\n    compression: gzip", id="json-gzip"),
    pytest.param("    encoding: proto\n    compression: deflate", id="proto-deflate"),
]


@pytest.mark.parametrize("exporter", ENCODINGS)
def test_logs_of_a_collector(
    collector: Callable[..., Collector], taken: Callable[[str, int], MemorySink], exporter: str
) -> None:
    port = free_port()
    sink = taken("logs", port)
    between = collector(exporter, logs=port)
    provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
    sender = OTLPLogExporter(f"http://127.0.0.1:{between.http_port}/v1/logs")
    provider.add_log_record_processor(SimpleLogRecordProcessor(sender))
    logger = provider.get_logger("shop.login", "1.2")
    values: dict[str, Any] = {"user": "ärnie\n", "tries": 2**53 + 1, "ratio": 0.5, "ok": True, "list": ["a", "b"]}
    for number in range(20):
        logger.emit(
            LogRecord(
                timestamp=1_769_853_600_000_001_000 + number * 1_000, severity_number=SeverityNumber.ERROR,
                severity_text="ERROR", body=f"failed {number}", attributes=values,
            )
        )  # fmt: skip
    provider.shutdown()
    eventually(lambda: len(sink.rows) >= 20, "all records came through the collector")
    assert sorted(row["body"] for row in sink.rows) == sorted(f"failed {number}" for number in range(20))
    row = next(row for row in sink.rows if row["body"] == "failed 2")
    assert (row["severity_number"], row["service_name"], row["scope_name"]) == (17, "shop", "shop.login")
    assert row["time"].isoformat() == "2026-01-31T10:00:00.000003+00:00"
    assert json.loads(row["attributes"]) == values


def test_spans_and_points_of_a_collector(
    collector: Callable[..., Collector], taken: Callable[[str, int], MemorySink]
) -> None:
    """A collector names an endpoint for each signal: a job takes one."""
    ports = {kind: free_port() for kind in ("traces", "metrics")}
    sinks = {kind: taken(kind, port) for kind, port in ports.items()}
    between = collector(**ports)
    tracer_provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    address = f"http://127.0.0.1:{between.http_port}"
    tracer_provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    tracer = tracer_provider.get_tracer("shop")
    with tracer.start_as_current_span("order") as outer, tracer.start_as_current_span("pay") as inner:
        inner.set_attribute("amount", 12.5)
        inner.add_event("refused", {"code": 7})
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{address}/v1/metrics"), export_interval_millis=3_600_000
    )
    meters = MeterProvider([reader], RESOURCE, shutdown_on_exit=False)
    meters.get_meter("shop").create_counter("orders").add(3, {"kind": "new"})
    meters.get_meter("shop").create_histogram("latency").record(0.2)
    meters.shutdown()
    tracer_provider.shutdown()
    eventually(lambda: len(sinks["traces"].rows) == 2 and len(sinks["metrics"].rows) == 2, "all came")
    spans = {row["name"]: row for row in sinks["traces"].rows}
    assert spans["pay"]["parent_span_id"] == f"{outer.get_span_context().span_id:016x}" == spans["order"]["span_id"]
    assert json.loads(spans["pay"]["events"])[0]["attributes"] == {"code": 7}
    points = {row["name"]: row for row in sinks["metrics"].rows}
    assert (points["orders"]["value"], points["latency"]["count"], points["latency"]["sum"]) == (3.0, 1, 0.2)


def test_a_collector_waits_for_a_job_that_is_killed(collector: Callable[..., Collector], tmp_path: Path) -> None:
    """What the collector has in its queue is sent when the job is back: every record is there."""
    port = free_port()
    (tmp_path / "job.py").write_text(JOB)

    def start() -> subprocess.Popen[bytes]:
        job = subprocess.Popen([sys.executable, "job.py", str(port)], cwd=tmp_path)
        eventually(lambda: _listens(port), "the job listens")
        return job

    between = collector(logs=port)
    provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
    sender = OTLPLogExporter(f"http://127.0.0.1:{between.http_port}/v1/logs", timeout=60)
    provider.add_log_record_processor(SimpleLogRecordProcessor(sender))
    logger = provider.get_logger("tests")

    def bodies() -> set[str]:
        parts = (tmp_path / "out").glob("*.json")
        return {json.loads(line)["body"] for part in parts for line in part.read_bytes().splitlines()}

    job = start()
    try:
        for part in range(3):
            for number in range(50):
                logger.emit(LogRecord(body=f"{part} {number}"))
                if number == 25:
                    job.send_signal(signal.SIGKILL)
                    job.wait()
            job = start()
        logger.emit(LogRecord(body="last"))
        eventually(lambda: len(bodies()) == 151, "all are there")
    finally:
        job.kill()
        job.wait()
    assert bodies() == {f"{part} {number}" for part in range(3) for number in range(50)} | {"last"}


def test_rows_into_a_collector(collector: Callable[..., Collector], taken: Callable[[str, int], MemorySink]) -> None:
    """``to_otlp`` sends to the collector, which decodes all of it and sends it on to a job."""
    port = free_port()
    sink = taken("logs", port)
    between = collector(logs=port)
    rows = [
        {"time": f"2026-01-31T10:00:00.{n:06}Z", "severity_number": n % 24 + 1, "body": f"row {n}", "host": f"h{n % 3}",
         "trace_id": f"{n + 1:032x}", "span_id": f"{n + 1:016x}", "service_name": "detection"} for n in range(1_000)
    ]  # fmt: skip
    schema = {
        "time": "timestamp", "severity_number": "int64", "body": "string", "host": "string", "trace_id": "string",
        "span_id": "string", "service_name": "string",
    }  # fmt: skip
    source = MemorySource({"q": [json.dumps(row).encode() for row in rows]})
    letters = MemorySink()
    stream = (
        hr.stream("tests", "into").from_(source, format="json", schema=schema).dead_letters(lambda bad: bad.to(letters))
    )
    stream.to_otlp(f"http://127.0.0.1:{between.http_port}/v1/logs", request_rows=100).run("light", show_progress=False)
    assert letters.rows == []
    eventually(lambda: len(sink.rows) >= 1_000, "all rows went through the collector")
    found = {row["body"]: row for row in sink.rows}
    assert len(found) == 1_000
    for row in rows:
        back = found[row["body"]]
        assert back["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ") == row["time"]
        assert all(back[name] == row[name] for name in ("severity_number", "trace_id", "span_id", "service_name"))
        assert json.loads(back["attributes"]) == {"host": row["host"]}
