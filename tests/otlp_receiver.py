"""A collector of OpenTelemetry for tests: takes OTLP over HTTP and hands on what was sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OtlpServer(ThreadingHTTPServer):
    """Gives each request to ``take``: path, headers by their names in lower case, and the body without compression.

    Answers that it was stored.
    """

    def __init__(self, take: Callable[[str, Mapping[str, str], bytes], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.take = take


class _Handler(BaseHTTPRequestHandler):
    server: OtlpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to say."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Let a server run in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
