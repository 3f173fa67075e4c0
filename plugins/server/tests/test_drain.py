"""SIGTERM: the server stops taking work, says so on the port of health, and ends when each job is at a checkpoint. Real processes."""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from pathlib import Path

import httpx
import pytest
from server_processes import ServerProcess

from tests.eventually import eventually

#: Its batch ends only when a file is there, so the job cannot stop before.
WAITS = """
import pathlib, threading
import headrace as hr
def _pass(row):
    while row["n"] >= 100 and not pathlib.Path({marker!r}).exists():
        pathlib.Path({begun!r}).touch()
        threading.Event().wait(0.02)
    return row
job = (hr.stream("test", "slow").from_file({events!r}, format="json", schema={{"n": "int64"}})
       .map(_pass).to_file({out!r}, format="json"))
"""


def health(server: ServerProcess) -> str:
    return str(json.loads((server.data / "server.json").read_text())["health"])


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_server_that_ends_drains_its_jobs_and_says_so(server: ServerProcess, number: signal.Signals) -> None:
    marker, begun, out = server.root / "marker", server.root / "begun", server.root / "slow"
    server.write_copy()
    text = WAITS.format(marker=str(marker), begun=str(begun), events=str(server.events), out=str(out))
    (server.jobs / "slow.py").write_text(text)
    server.add_events(0, 100)
    server.start("--health-port", "0")
    for name in ("copy", "slow"):
        server.wait_for_state("running", name=name)
    server.wait_for_rows(100)
    url = health(server)
    assert [httpx.get(f"{url}/health/{each}").status_code for each in ("live", "ready")] == [200, 200]
    for path in ("/v1/jobs", "/metrics", "/", "/v1/openapi.json"):
        assert httpx.get(url + path, headers={"Authorization": f"Bearer {server.token}"}).status_code == 404
    server.add_events(100, 200)
    eventually(begun.exists, "the slow job is at work", shown=server.log)

    server.signal(number)
    eventually(lambda: httpx.get(f"{url}/health/ready").status_code == 503, "it is not ready", shown=server.log)
    assert httpx.get(f"{url}/health/ready").json() == {"status": "stopping"}
    assert httpx.get(f"{url}/health/live").status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url}/health/live")
    assert server.is_alive()  # the slow job is at work still
    marker.touch()
    assert server.wait() == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/health/live")
    assert not list(server.data.glob("run/*.sock"))

    server.add_events(200, 300)
    server.start()
    server.wait_for_rows(300)
    eventually(lambda: rows(out) == Counter(range(300)), "each row of the slow job once", shown=lambda: rows(out))
    runs = [each["outcome"] for each in server.job("slow")["runs"]]
    assert runs == [None, "stopped"]


def rows(out: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for part in out.glob("*.json"):
        found.update(json.loads(line)["n"] for line in part.read_text().splitlines())
    return found


def test_a_port_of_health_that_is_taken_is_refused_before_anything_starts(server: ServerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = server.command(
            "serve", "--jobs", str(server.jobs), "--data", str(server.data), "--port", "0", "--health-port",
            str(taken.getsockname()[1]),
        )  # fmt: skip
    assert done.returncode == 2
    assert "choose another one with --health-port" in done.stderr
    server.start()  # the data directory is free again
    assert server.client.ask("GET", "/v1/jobs") == []


def test_a_server_that_is_ended_as_soon_as_it_is_known_ends_in_order(server: ServerProcess) -> None:
    server.start()  # returns when the file with its address is there
    assert server.stop() == 0
    assert not (server.data / "server.json").exists()
