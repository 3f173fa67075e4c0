"""The OpenTelemetry collector, built by Go from its official modules in ``collector/``: it takes gRPC and HTTP, and sends by HTTP."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.servers.directories import cache_directory, digest, locked
from tests.servers.ports import release_ports, reserve_ports

_SOURCES = Path(__file__).with_name("collector")


def program() -> Path:
    """Return the collector; Go builds it the first time, which takes minutes. Skips the test where there is no Go, or no module."""
    texts = b"".join((_SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    made = cache_directory() / f"otel-collector-{digest(texts)}"
    with locked(cache_directory() / "otel-collector.lock"):
        if not made.exists():
            go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"]))
            if go is None:
                pytest.skip("Go is not installed, with which the collector is built")
            command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(made), "."]
            done = subprocess.run(command, cwd=_SOURCES, capture_output=True, text=True, check=False)
            if done.returncode and ("dial tcp" in done.stderr or "proxy" in done.stderr):
                pytest.skip(f"the modules of the collector cannot be fetched: {done.stderr[-300:]}")
            assert done.returncode == 0, done.stderr[-3000:]
    return made


class Collector:
    """A collector that takes OTLP over gRPC and HTTP, and sends it on over HTTP.

    ``endpoints`` has an address for each signal; ``exporter`` are further lines of its exporter.
    """

    def __init__(self, directory: Path, endpoints: Mapping[str, str], *, exporter: str = "") -> None:
        self._program = program()
        self._directory = directory
        self._owner = f"collector {directory}"
        self.grpc_port = reserve_ports(2, self._owner)
        self.http_port = self.grpc_port + 1
        directory.mkdir(exist_ok=True)
        lines = "\n".join(f"    {kind}_endpoint: {address}/v1/{kind}" for kind, address in endpoints.items())
        pipelines = "\n".join(f"    {kind}: {{receivers: [otlp], exporters: [otlphttp]}}" for kind in endpoints)
        (directory / "collector.yaml").write_text(f"""
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{self.grpc_port}"}}
      http: {{endpoint: "127.0.0.1:{self.http_port}"}}
exporters:
  otlphttp:
{lines}
    retry_on_failure: {{initial_interval: 100ms, max_interval: 500ms, max_elapsed_time: 0s}}
{exporter}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
{pipelines}
""")
        with (directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--config", "file:collector.yaml"], cwd=directory, stdout=log, stderr=log
            )
        try:
            eventually(self._listens, "the collector listens")
        except BaseException:
            self.stop()
            raise

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log()[-3000:]
        for port in (self.grpc_port, self.http_port):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def log(self) -> str:
        return (self._directory / "log").read_text()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        release_ports(self._owner)
