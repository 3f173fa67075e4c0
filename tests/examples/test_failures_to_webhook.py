"""examples/failures_to_webhook.py, against a web server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.examples.run import run_example


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_failures_to_webhook(backend: str, tmp_path: Path) -> None:
    received: list[tuple[str, str, dict[str, object]]] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append((self.headers["authorization"], self.headers["idempotency-key"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    (tmp_path / "logins.ndjson").write_text(
        "".join(
            json.dumps({"at": f"2026-01-01T00:00:0{n}Z", "user": f"u{n}", "ip": "192.0.2.1", "outcome": outcome}) + "\n"
            for n, outcome in enumerate(("failure", "success", "failure"))
        )
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/logins"
        run_example(
            "failures_to_webhook.py", backend, tmp_path, {"path": "logins.ndjson", "url": url}, {"WEBHOOK_TOKEN": "t"}
        )
        server.shutdown()
        thread.join()
    assert {authorization for authorization, _, _ in received} == {"Bearer t"}
    rows = [row for _, _, body in received for row in body["failures"]]  # type: ignore[attr-defined]
    assert sorted(row["user"] for row in rows) == ["u0", "u2"]
    assert len({row["id"] for row in rows}) == 2
    assert {body["source"] for _, _, body in received} == {"headrace"}
