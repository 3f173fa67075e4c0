"""A box at the edge takes records while nothing upstream answers, and forwards all of them when it does."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.edge.test_docs import block
from tests.eventually import eventually
from tests.servers.ports import release_ports, reserve_ports

_ROWS = 500


@contextmanager
def upstream(port: int, taken: list[int]) -> Iterator[None]:
    """Take JSON arrays of rows by POST."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.extend(row["n"] for row in json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_records_wait_on_disk_until_upstream_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = f"edge-{uuid.uuid4().hex}"  # the port stays free of others while nothing listens
    incoming = reserve_ports(2, owner)
    outgoing = incoming + 1
    taken: list[int] = []
    monkeypatch.chdir(tmp_path)
    text = block("forward")
    assert "port=8088" in text
    assert "127.0.0.1:8089" in text
    made: dict[str, Any] = {}
    exec(compile(text.replace("8088", str(incoming)).replace("8089", str(outgoing)), "edge.md", "exec"), made)
    start = block("start").strip()
    assert start.endswith(").wait()")
    exec("handle = " + start.replace(").wait()", ', checkpoint_interval="100 ms")'), made)
    handle = made["handle"]
    address = f"http://127.0.0.1:{incoming}/"
    try:
        with urllib3.PoolManager(retries=False) as pool:

            def listens() -> bool:
                try:
                    return pool.request("GET", address + "-/health").status == 200
                except urllib3.exceptions.HTTPError:
                    return False

            eventually(listens, "the job listens, though nothing upstream does")
            for first in range(0, _ROWS, 50):
                lines = "".join(f'{{"n": {n}}}\n' for n in range(first, first + 50)).encode()
                answer = pool.request("POST", address, body=lines, headers={"Content-Type": "application/x-ndjson"})
                assert answer.status == 200
        assert taken == []
        with upstream(outgoing, taken):
            eventually(lambda: len(taken) >= _ROWS, "all records are forwarded")
            handle.stop()
            handle.wait()
    finally:
        handle.stop()
        release_ports(owner)
    assert taken == list(range(_ROWS))
