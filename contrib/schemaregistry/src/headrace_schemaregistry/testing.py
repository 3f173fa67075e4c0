"""A small server of the registry's protocol on loopback, for tests of formats.

It simulates outages, logins and answers that a real registry does not give on demand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class SmallRegistry:
    """Schemas by id, and the ids of each subject's versions."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        #: Status and body of the answers to the next requests. When the list is empty, the registry answers by itself.
        self.answers: list[tuple[int, bytes]] = []
        self.url = ""

    def add(self, subject: str, text: str, **further: Any) -> int:
        """Register a schema; return its id."""
        given = {"schema": text, **further}
        found = next((number for number, each in self.schemas.items() if each == given), len(self.schemas) + 1)
        self.schemas[found] = given
        versions = self.subjects.setdefault(subject, [])
        if found not in versions:
            versions.append(found)
        return found

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self.answers:
            return self.answers.pop(0)
        parts = path.strip("/").split("/")
        sent = json.loads(body) if body else {}
        if method == "GET" and parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.schemas:
            return _json(self.schemas[int(parts[2])])
        if method == "GET" and parts[0] == "subjects" and parts[1] in self.subjects:
            versions = self.subjects[parts[1]]
            found = versions[-1] if parts[3] == "latest" else versions[int(parts[3]) - 1]
            return _json({"id": found, "subject": parts[1], **self.schemas[found]})
        if method == "POST" and parts[-1] == "versions":
            kind = {"schemaType": sent["schemaType"]} if "schemaType" in sent else {}
            return _json({"id": self.add(parts[1], sent["schema"], **kind)})
        if method == "POST" and parts[1] in self.subjects:
            for found in self.subjects[parts[1]]:
                if self.schemas[found]["schema"] == sent["schema"]:
                    return _json({"id": found})
        return 404, b'{"error_code":40403,"message":"not found"}'


def _json(value: object) -> tuple[int, bytes]:
    return 200, json.dumps(value).encode()


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    """Run a registry until the block ends."""
    registry = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            registry.requests.append((self.command, self.path, self.headers.get("authorization")))
            status, content = registry.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
