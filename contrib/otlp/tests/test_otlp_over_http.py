"""Requests over HTTP: answers in the encoding of the request, and OpenTelemetry's own exporter with a job that is killed."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
import requests
import urllib3
from google.rpc.status_pb2 import Status
from headrace.testing import MemorySink
from headrace_http import HttpSource, HttpSourceSettings
from headrace_otlp import OtlpLogsCodec, OtlpSettings
from log_messages import as_json, request, value
from opentelemetry._logs import LogRecord as Emitted
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from tests.eventually import eventually
from tests.listening_sources import HttpListening, each_closed

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MESSAGE = request(LogRecord(body=value("hello\nworld")), LogRecord(body=value("again")))
TEXTS = ["hello\nworld", "again"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Taking(HttpListening):
    """A source that listens for log records, and a client."""

    def __init__(self, directory: Path, **options: Any) -> None:
        given = {"port": 0, "path": "/v1/logs", "buffer": str(directory / "buffer"), **options}
        source = HttpSource(HttpSourceSettings.of(given, plugin="http"))
        self.codec = OtlpLogsCodec(OtlpSettings())
        source.use_format("otlp-logs", self.codec, self.codec.default_schema())
        super().__init__(source)

    def send(self, body: bytes, kind: str = PROTOBUF, **headers: str) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): given for name, given in headers.items()}
        return self.pool.request("POST", self.url, body=body, headers={"Content-Type": kind, **named})

    def texts(self) -> list[str]:
        """Return the bodies of the log records that came since the last call."""
        raw = self.reader.poll(1_000, timedelta(0))
        if raw is None:
            return []
        decoded = self.codec.decoder(self.codec.default_schema()).decode_records(raw)
        assert not decoded.bad
        return list(decoded.frame["body"])


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[Callable[..., Taking]]:
    yield from each_closed(Taking, tmp_path)


def test_requests_are_answered_in_their_encoding(taking: Callable[..., Taking]) -> None:
    one = taking()
    binary, text = MESSAGE.SerializeToString(), as_json(MESSAGE)
    for body, headers in ((binary, {}), (gzip.compress(binary), {"Content_Encoding": "gzip"})):
        answer = one.send(body, **headers)
        assert (answer.status, answer.headers["Content-Type"]) == (200, PROTOBUF)
        assert ExportLogsServiceResponse.FromString(answer.data) == ExportLogsServiceResponse()
        assert one.texts() == TEXTS
    for body, headers in ((b"\n " + text, {}), (gzip.compress(text), {"Content_Encoding": "gzip"})):
        answer = one.send(body, f"{JSON}; charset=utf-8", **headers)
        assert (answer.status, answer.headers["Content-Type"], answer.json()) == (200, JSON, {})
        assert one.texts() == TEXTS
    for body, kind in ((b"", PROTOBUF), (b"{}", JSON)):  # no records: an empty request must be answered all the same
        assert one.send(body, kind).status == 200
    assert one.texts() == []


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status", "reason"),
    [
        (b"junk", PROTOBUF, {}, 400, "no ExportLogsServiceRequest"),
        (b"{}", PROTOBUF, {}, 400, "does not match its content type"),
        (b"{", JSON, {}, 400, "no ExportLogsServiceRequest"),
        (MESSAGE.SerializeToString(), JSON, {}, 400, "does not match its content type"),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"spanId": "-"}]}]}]}', JSON, {}, 400, "hexadecimal"),
        (b"junk", PROTOBUF, {"Content_Encoding": "gzip"}, 400, "not gzip"),
        (b"", PROTOBUF, {"Content_Encoding": "zstd"}, 415, "content encoding 'zstd'"),
        (gzip.compress(b" " * 60_000, mtime=0), PROTOBUF, {"Content_Encoding": "gzip"}, 413, "more than 50000 bytes"),
    ],
)
def test_what_is_refused_is_not_stored(
    taking: Callable[..., Taking], body: bytes, kind: str, headers: dict[str, str], status: int, reason: str
) -> None:
    one = taking(request_bytes=50_000)
    answer = one.send(body, kind, **headers)
    assert (answer.status, answer.headers["Content-Type"]) == (status, kind)
    assert reason in (Status.FromString(answer.data).message if kind == PROTOBUF else answer.json()["message"])
    assert one.texts() == []


def test_other_content_and_senders_without_the_token(taking: Callable[..., Taking]) -> None:
    one = taking(token="letmein")
    assert one.send(MESSAGE.SerializeToString()).status == 401
    answer = one.send(b"hello", "text/plain", Authorization="Bearer letmein")
    assert (answer.status, answer.headers["Content-Type"]) == (415, JSON)
    assert one.send(MESSAGE.SerializeToString(), Authorization="Bearer letmein").status == 200
    assert one.texts() == TEXTS


def test_a_full_buffer_asks_for_the_same_again(taking: Callable[..., Taking]) -> None:
    one = taking(buffer_max_bytes=1024**2)
    body = request(*[LogRecord(body=value("x" * 1_000))] * 100).SerializeToString()
    answers = [one.send(body) for _ in range(20)]
    assert {answer.status for answer in answers} == {200, 429}
    assert answers[-1].headers["Retry-After"] == "5"
    assert "send the same again" in Status.FromString(answers[-1].data).message


@pytest.mark.parametrize("compression", list(Compression))
def test_the_exporter_of_opentelemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    monkeypatch.chdir(tmp_path)
    port, sink = free_port(), MemorySink()
    logs = hr.stream("tests", "otlp").from_http(port=port, path="/v1/logs", buffer="buffer", format="otlp-logs")
    handle = logs.to(sink).start("light", checkpoint="state", checkpoint_interval="100 ms")
    exporter = OTLPLogExporter(f"http://127.0.0.1:{port}/v1/logs", timeout=60, compression=compression)
    provider = LoggerProvider(Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    try:
        eventually(lambda: _listens(port), "it listens")
        logger = provider.get_logger("shop.login", "1.2")
        for number in range(3):
            logger.emit(
                Emitted(
                    timestamp=1_769_853_600_000_001_000 + number * 1_000, severity_number=SeverityNumber.ERROR,
                    severity_text="ERROR", body=f"failed {number}", attributes={"user": "alice", "tries": number},
                )
            )  # fmt: skip
        assert provider.force_flush()
        eventually(lambda: len(sink.rows) == 3, "rows arrive")
    finally:
        provider.shutdown()
        handle.stop()
    row = sink.rows[2]
    assert (row["severity_number"], row["severity_text"], row["body"]) == (17, "ERROR", "failed 2")
    assert (row["scope_name"], row["scope_version"], row["service_name"]) == ("shop.login", "1.2", "shop")
    assert row["time"].isoformat() == "2026-01-31T10:00:00.000003+00:00"
    assert row["observed_time"] is not None
    assert json.loads(row["attributes"]) == {"user": "alice", "tries": 2}


JOB = """
import sys
import headrace as hr
(hr.stream("tests", "killed").from_http(port=int(sys.argv[1]), path="/v1/logs", buffer="buffer", format="otlp-logs")
   .select("body").to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""


class Recording(requests.Session):
    """Counts, for each log record, how often a request with it was answered with 200, and how often it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: Counter[str] = Counter()
        self.others: Counter[str] = Counter()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        assert isinstance(request.body, bytes)
        sent = ExportLogsServiceRequest.FromString(gzip.decompress(request.body)).resource_logs
        texts = [each.body.string_value for part in sent for scope in part.scope_logs for each in scope.log_records]
        try:
            response = super().send(request, **options)
        except BaseException:
            self.others.update(texts)
            raise
        (self.answered if response.status_code == 200 else self.others).update(texts)
        return response


def emit_until(ended: threading.Event, name: str, port: int, session: Recording) -> None:
    """Emit log records, 20 in each request, until ``ended``. The exporter itself sends again what had no answer."""
    endpoint = f"http://127.0.0.1:{port}/v1/logs"
    exporter = OTLPLogExporter(endpoint, timeout=60, compression=Compression.Gzip, session=session)
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=3_600_000))
    logger = provider.get_logger("tests")
    number = 0
    while not ended.is_set():
        for _ in range(20):
            logger.emit(Emitted(body=f"{name} {number}"))
            number += 1
        provider.force_flush(60_000)
    provider.shutdown()


def test_every_record_that_was_answered_with_200_is_there_once_though_the_job_is_killed(tmp_path: Path) -> None:
    """Three applications log by OpenTelemetry's SDK; the job is killed three times meanwhile."""
    port, ended = free_port(), threading.Event()
    (tmp_path / "job.py").write_text(JOB)
    sessions = [Recording() for _ in range(3)]
    senders = [
        threading.Thread(target=emit_until, args=(ended, f"application {number}", port, session))
        for number, session in enumerate(sessions)
    ]
    for sender in senders:
        sender.start()
    try:
        for _ in range(3):
            seen = sum(len(session.answered) for session in sessions)
            job = subprocess.Popen([sys.executable, "job.py", str(port)], cwd=tmp_path)
            eventually(partial(_answered_more, sessions, seen + 500), "log records are taken")
            job.send_signal(signal.SIGKILL)
            job.wait()
        ended.set()  # what is on its way is sent to the job that runs now
        job = subprocess.Popen([sys.executable, "job.py", str(port)], cwd=tmp_path)
        for sender in senders:
            sender.join()
        job.send_signal(signal.SIGKILL)
        job.wait()
    finally:
        ended.set()
        for sender in senders:
            sender.join()
    whole = JOB.replace(".start(", ".run(").replace(".wait()", "")
    subprocess.run([sys.executable, "-c", whole, str(port)], cwd=tmp_path, check=True)
    parts = (tmp_path / "out").glob("*.json")
    found = Counter(json.loads(line)["body"] for part in parts for line in part.read_bytes().splitlines())
    answered, others = Counter[str](), Counter[str]()
    for session in sessions:
        answered += session.answered
        others += session.others
    assert len(answered) > 1_500
    assert others  # the kills were noticed
    assert set(answered.values()) == {1}  # the SDK does not repeat what was answered
    assert not [text for text in answered if not found[text]]
    assert not [text for text, count in found.items() if count > 1 and not others[text]]
    assert not [text for text, count in found.items() if count > answered[text] + others[text]]


def _answered_more(sessions: list[Recording], count: int) -> bool:
    return sum(len(session.answered) for session in sessions) > count
