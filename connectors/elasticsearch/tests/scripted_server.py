"""A server that gives recorded answers, for what the test server's Elasticsearch cannot do. Not a substitute for it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Status and body. A list of them is given one by one, the last one for ever.
Answer = tuple[int, Any]

#: What Elasticsearch 9 answers to requests of every start, when there is nothing to say.
USUAL: Mapping[str, Answer] = {
    "GET /": (200, {"version": {"number": "9.5.3"}, "tagline": "You Know, for Search"}),
    "POST /_security/user/_has_privileges": (400, {"error": "no handler found for uri"}),
    "GET /t/_mapping": (200, {"t": {"mappings": {}}}),
}


class ScriptedServer:
    """Gives the answers of a table by method and path; remembers what was asked."""

    def __init__(self, answers: Mapping[str, Answer | list[Answer]], context: ssl.SSLContext | None = None) -> None:
        self.answers = {**USUAL, **answers}
        #: Method and path, headers in lower case, body.
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                asked = f"{self.command} {self.path.partition('?')[0]}"
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, found = outer.take(asked, headers, body)
                content = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json" if not isinstance(found, bytes) else "text/html")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'' if context is None else 's'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, asked: str, headers: dict[str, str], body: bytes) -> Answer:
        with self._lock:
            self.requests.append((asked, headers, body))
            found = self.answers.get(asked, (500, {"error": f"the test has no answer to {asked}"}))
            if isinstance(found, list):
                return found.pop(0) if len(found) > 1 else found[0]
            return found

    def asked(self, what: str) -> list[bytes]:
        """Return the bodies of the requests to a path."""
        return [body for asked, _, body in self.requests if asked == what]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def scripted(answers: Mapping[str, Answer | list[Answer]] | None = None) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answers or {})
    try:
        yield server
    finally:
        server.close()


def items(*found: Mapping[str, Any] | int, action: str = "index") -> Answer:
    """Return the answer to a bulk request: a status for each row, or an item."""
    entries = [{"status": item} if isinstance(item, int) else dict(item) for item in found]
    return 200, {"errors": any("error" in item for item in entries), "items": [{action: item} for item in entries]}
