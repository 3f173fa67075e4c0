"""Remote write of Prometheus: samples to rows, answers, and a Prometheus that writes to a running job."""

from __future__ import annotations

import json
import math
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import cramjam
import headrace as hr
import pytest
import urllib3
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract
from headrace_http import HttpSource, HttpSourceSettings
from headrace_http.listener import HttpListener
from headrace_otlp.remote_write import RemoteWriteCodec, RemoteWriteSettings
from headrace_otlp.remote_write_decoder import STALE_BITS
from headrace_otlp.remote_write_messages import WriteRequest

from tests.eventually import eventually

BEGIN = datetime(2026, 1, 31, 10, tzinfo=UTC)
BEGIN_MILLISECONDS = int(BEGIN.timestamp()) * 1000
[STALE] = struct.unpack("<d", STALE_BITS.to_bytes(8, "little"))


def write(*series: tuple[dict[str, str], list[tuple[int, float]]]) -> bytes:
    made = WriteRequest()
    for labels, samples in series:
        each = made.timeseries.add()
        for name, value in labels.items():
            each.labels.add(name=name, value=value)
        for milliseconds, number in samples:
            each.samples.add(timestamp=BEGIN_MILLISECONDS + milliseconds, value=number)
    return bytes(made.SerializeToString())


def snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def decode(*bodies: bytes, columns: Sequence[str] | None = None, **options: Any) -> hr.Decoded:
    codec = RemoteWriteCodec(RemoteWriteSettings.of(options))
    return codec.decoder(codec.default_schema(), columns).decode(hr.Bodies.of(bodies))


class TestRemoteWrite(CodecContract):
    schema: ClassVar = {"time": "timestamp", "name": "string", "labels": "json", "value": "float64"}
    encodes = False
    several_rows = True
    one_line = False

    def make_codec(self) -> RemoteWriteCodec:
        return RemoteWriteCodec(RemoteWriteSettings())

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "time": BEGIN + timedelta(milliseconds=number),
            "name": None if number % 5 == 4 else f"name_{number}",
            "labels": f'{{"job":"é\\n{number}"}}',
            "value": number / 7,
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        labels = {} if row["name"] is None else {"__name__": row["name"]}
        milliseconds = (row["time"] - BEGIN) // timedelta(milliseconds=1)
        return write(({**labels, **json.loads(row["labels"])}, [(milliseconds, row["value"])]))

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(1))
        histogram = WriteRequest()
        histogram.timeseries.add().histograms.add(timestamp=1)
        late = write(({"__name__": "late"}, [(253_402_300_800_000, 1.0)]))
        return [b"junk", good[:-1], snappy(good), good.replace(b"job", b"j\xffb"), histogram.SerializeToString(), late]


def test_each_sample_is_a_row() -> None:
    first = write(
        ({"__name__": "up", "job": "web", "instance": "a:1"}, [(0, 1.0), (15_000, 0.0)]),
        ({"__name__": "none"}, []),
        ({"job": "x"}, [(1, math.inf)]),
    )
    ended = write(({"__name__": "up"}, [(0, STALE), (1, math.nan)]))
    for packed, options in ((bytes, {}), (snappy, {"compression": "snappy"})):
        decoded = decode(packed(first), b"\xff", packed(b""), packed(ended), **options)
        assert decoded.rows is not None
        assert decoded.rows.tolist() == [0, 0, 0, 3, 3]
        assert [each.row for each in decoded.bad] == [1]
        labels = '{"job":"web","instance":"a:1"}'
        assert decoded.frame.head(3).rows() == [
            ("up", labels, BEGIN, 1.0, False),
            ("up", labels, BEGIN + timedelta(seconds=15), 0.0, False),
            (None, '{"job":"x"}', BEGIN + timedelta(milliseconds=1), math.inf, False),
        ]
        assert decoded.frame["stale"].to_list() == [False, False, False, True, False]
        assert decoded.frame["value"].is_nan().to_list() == [False, False, False, True, True]
    assert decode(first, columns=[]).frame.height == 3
    for body, options in ((first, {}), (snappy(b" " * 100_000), {"compression": "snappy"})):
        [bad] = decode(body, max_body_bytes=50, **options).bad
        assert "more than" in bad.reason


def test_what_a_schema_may_say() -> None:
    assert default_registry().find("codec", "prometheus-remote-write") is RemoteWriteCodec
    codec = RemoteWriteCodec(RemoteWriteSettings())
    with pytest.raises(hr.OptionError, match="no column 'metric'"):
        codec.decoder(hr.Schema.of({"metric": "string"}))
    with pytest.raises(hr.OptionError, match="cannot be Int64"):
        codec.decoder(hr.Schema.of({"value": "int64"}))
    with pytest.raises(hr.PlanError, match="can only be read"):
        codec.encoder(None)


class Taking:
    """A source that listens for requests of remote write, and a client."""

    def __init__(self, directory: Path, codec: RemoteWriteCodec) -> None:
        options = {"port": 0, "path": "/api/v1/write", "buffer": str(directory / "buffer"), "request_bytes": 50_000}
        self.source = HttpSource(HttpSourceSettings.of(options, plugin="http"))
        self.source.use_format("prometheus-remote-write", codec, codec.default_schema())
        self.decoder = codec.decoder(codec.default_schema())
        self.reader = self.source.open(hr.Queue("buffer"), hr.EARLIEST)
        shared = self.source._shared
        assert shared is not None
        assert isinstance(shared.listener, HttpListener)
        self.url = shared.listener.url
        self.pool = urllib3.PoolManager(retries=False)

    def send(self, body: bytes, **headers: str) -> urllib3.BaseHTTPResponse:
        usual = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        named = {name.replace("_", "-"): given for name, given in headers.items()}
        return self.pool.request("POST", self.url, body=body, headers={**usual, **named})

    def values(self) -> list[float]:
        """Return the values of samples that came since the last call."""
        raw = self.reader.poll(1_000, timedelta(0))
        return [] if raw is None else list(self.decoder.decode_records(raw).frame["value"])

    def close(self) -> None:
        self.pool.clear()
        self.source.close()


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[Taking]:
    made = Taking(tmp_path, RemoteWriteCodec(RemoteWriteSettings()))
    yield made
    made.close()


GOOD = write(({"__name__": "up"}, [(0, 1.0), (1, 2.0)]))


def test_answers(taking: Taking) -> None:
    answer = taking.send(snappy(GOOD))
    assert (answer.status, answer.data, "Content-Length" in answer.headers) == (204, b"", False)
    assert taking.values() == [1.0, 2.0]
    named = "application/x-protobuf;proto=prometheus.WriteRequest"
    assert taking.send(snappy(GOOD), Content_Type=named).status == 204
    assert taking.values() == [1.0, 2.0]
    assert taking.send(snappy(b"")).status == 204  # as one that has only metadata
    assert taking.values() == []


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (snappy(b"junk"), {}, 400, "not a WriteRequest"),
        (b"junk", {}, 400, "not compressed with Snappy"),
        (snappy(b" " * 60_000), {}, 413, "more than 50000"),
        (GOOD, {"Content_Encoding": "identity"}, 415, "send Content-Encoding: snappy"),
        (GOOD, {"Content_Encoding": "gzip"}, 415, "'gzip' is not supported: send snappy"),
        (snappy(GOOD), {"Content_Type": "application/json"}, 415, "is not supported"),
        (snappy(GOOD), {"Content_Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, 415, "1.0"),
    ],
)
def test_what_is_refused_is_not_stored(
    taking: Taking, body: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    answer = taking.send(body, **headers)
    assert answer.status == status
    assert reason in answer.data.decode()
    assert taking.values() == []


def test_bodies_are_not_decompressed_twice(tmp_path: Path) -> None:
    with pytest.raises(hr.OptionError, match="source decompresses bodies itself"):
        Taking(tmp_path, RemoteWriteCodec(RemoteWriteSettings(compression="snappy")))


JOB = """
import sys
import headrace as hr
(hr.stream("tests", "samples")
   .from_http(port=int(sys.argv[1]), path="/api/v1/write", buffer="buffer", format="prometheus-remote-write")
   .where("name = 'prometheus_build_info' OR name = 'up'").select("name", "time", "value", "labels")
   .to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""
CONFIGURATION = """
global: {{scrape_interval: 200ms}}
scrape_configs:
  - job_name: itself
    static_configs: [{{targets: ["127.0.0.1:{own}"]}}]
remote_write:
  - url: http://127.0.0.1:{port}/api/v1/write
    queue_config: {{min_backoff: 20ms, max_backoff: 200ms, batch_send_deadline: 100ms}}
"""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_writes_to_a_job_that_is_killed(tmp_path: Path) -> None:
    """Prometheus scrapes itself and writes on. The job is killed twice; every sample arrives, in spite of it."""
    port, own = free_port(), free_port()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "prometheus.yml").write_text(CONFIGURATION.format(port=port, own=own))
    command = [
        "prometheus",
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]

    def found() -> list[dict[str, Any]]:
        parts = sorted((tmp_path / "out").glob("*.json"))
        return [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "job.py", str(port)], cwd=tmp_path)

    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:
            for _ in range(2):
                job, before = start(), len(found())
                eventually(lambda seen=before: len(found()) > seen + 20, "samples arrive")  # type: ignore[misc]
                job.send_signal(signal.SIGKILL)
                job.wait()
            job, before = start(), len(found())
            eventually(lambda: len(found()) > before + 20, "samples arrive again")
            job.send_signal(signal.SIGTERM)
            job.wait()
            times = sorted({row["time"] for row in found() if row["name"] == "up"})
            with urllib3.PoolManager() as pool:
                asked = pool.request("GET", f"http://127.0.0.1:{own}/api/v1/query", fields={"query": "up[10m]"}).json()
        finally:
            server.terminate()
            server.wait()
    [series] = asked["data"]["result"]
    known = {f"{datetime.fromtimestamp(float(at), UTC):%Y-%m-%dT%H:%M:%S.%fZ}" for at, _ in series["values"]}
    assert not [each for each in known if times[0] <= each <= times[-1] and each not in times]
    assert {json.loads(row["labels"])["job"] for row in found()} == {"itself"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])
