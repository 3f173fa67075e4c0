"""A web server that takes what the sink sends, and answers what the test wants."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    #: As it was sent.
    raw: bytes

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.raw) if self.headers.get("content-encoding") == "gzip" else self.raw

    def rows(self) -> list[dict[str, Any]]:
        if self.headers["content-type"] == "application/x-ndjson":
            return [json.loads(line) for line in self.body.splitlines()]
        found = json.loads(self.body)
        return found if isinstance(found, list) else [found]


#: Status, headers, body.
Reply = tuple[int, dict[str, str], bytes]
OK: Reply = (200, {}, b"")


@dataclass
class Receiver:
    """The server. ``answer`` decides by the request; ``stored`` has the requests that were answered with 2xx."""

    answer: Callable[[Request], Reply] = lambda request: OK
    context: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    stored: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http{'' if self.context is None else 's'}://127.0.0.1:{self._port}/hook"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        if self.context is not None:
            self._server.socket = self.context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()

    def take(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            reply = self.answer(request)
            if 200 <= reply[0] < 300:
                self.stored.append(request)
            return reply

    def rows(self) -> list[dict[str, Any]]:
        return [row for request in self.stored for row in request.rows()]

    def keys(self) -> list[str]:
        return [request.headers["idempotency-key"] for request in self.requests]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._connections):
            self.shutdown_request(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed, and connections cut, on purpose."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def take(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            raw = self.rfile.read(int(headers.get("content-length", 0)))
            status, more, body = receiver.take(Request(self.command, self.path, headers, raw))
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_PATCH = take

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def receiving(answer: Callable[[Request], Reply] = lambda request: OK, **more: Any) -> Iterator[Receiver]:
    receiver = Receiver(answer, **more)
    try:
        yield receiver
    finally:
        receiver.stop()


class ReceiverChecks:
    """Base of contracts of sinks that send rows to a ``Receiver``. It refuses rows whose text is ``refuse me``."""

    receiver: Receiver
    #: With this status.
    refusing: int

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.receiver = Receiver(self.answer)
        yield
        self.receiver.stop()

    def answer(self, request: Request) -> Reply:
        return (self.refusing, {}, b"bad row") if b"refuse me" in request.body else OK

    if TYPE_CHECKING:

        def make_row(self, number: int) -> dict[str, Any]:
            """Return a row; ``SinkContract`` has it."""

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(10**9), "text": "refuse me"}

    def begin_outage(self) -> None:
        self.receiver.stop()

    def end_outage(self) -> None:
        self.receiver.start()
