"""The source on a disk that fills up: no sender gets 200 for what is not stored, and it accepts again when there is room."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from test_http_source import JOB, Taking, free_port

from tests.eventually import eventually
from tests.small_device import fill, mounted


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as place:
        yield place


def test_what_was_accepted_is_there_and_what_was_refused_is_not(device: Path, caplog: pytest.LogCaptureFixture) -> None:
    accepted: list[bytes] = []
    one = Taking(device, buffer_max_bytes="64 MiB")
    try:
        for turn in range(3):
            ballast = fill(device)
            refused = one.send(b'"refused"' + b" " * 5_000 + b"\n" + b'"%d"' % turn, "application/x-ndjson")
            assert refused.status == 503
            assert "cannot be stored now" in refused.json()["error"]
            assert refused.headers["Retry-After"] == "5"
            ballast.unlink()
            body = b"[%d, %d]" % (2 * turn, 2 * turn + 1)
            assert one.send(body).status == 200
            accepted += [b"%d" % (2 * turn), b"%d" % (2 * turn + 1)]
            assert one.stored() == accepted
    finally:
        one.close()
    assert "No space left on device" in caplog.text
    again = Taking(device, buffer_max_bytes="64 MiB")
    try:
        assert again.stored() == accepted
    finally:
        again.close()


class _Sender:
    """Sends one number after the other, the same again until it is accepted."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self._ended = threading.Event()
        self.accepted: list[int] = []
        self.again: set[int] = set()
        self.statuses: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        number = 0
        with urllib3.PoolManager(retries=False, timeout=10.0) as pool:
            while not self._ended.is_set():
                body = json.dumps({"n": number, "filling": "x" * 3_000}).encode()
                try:
                    answer = pool.request("POST", self._url, body=body, headers={"Content-Type": "application/json"})
                except urllib3.exceptions.HTTPError:
                    self.again.add(number)  # it may have been stored: nobody knows
                    self._ended.wait(0.01)
                    continue
                self.statuses[answer.status] += 1
                if answer.status == 200:
                    self.accepted.append(number)
                    number += 1
                else:
                    self._ended.wait(0.005)

    def wait_for(self, status: int, count: int = 20) -> None:
        seen = self.statuses[status]
        eventually(lambda: self.statuses[status] >= seen + count, f"the answer {status} comes")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


def test_a_job_is_killed_while_the_disk_of_its_buffer_is_full(device: Path, tmp_path: Path) -> None:
    """Killed, started while there is still no room, given room; three times, while somebody sends."""
    port = free_port()
    program = JOB.replace('buffer="buffer"', f"buffer={str(device / 'buffer')!r}")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program, str(port)], cwd=tmp_path)

    sender, job = _Sender(port), start()
    try:
        for _ in range(3):
            sender.wait_for(200)
            ballast = fill(device)
            sender.wait_for(503)
            job.send_signal(signal.SIGKILL)
            job.wait()
            job = start()
            sender.wait_for(503, 1)
            ballast.unlink()
        sender.wait_for(200)
    finally:
        sender.close()
        job.send_signal(signal.SIGKILL)
        job.wait()
    ended = program.replace(".start(", ".run(").replace(".wait()", "")
    assert subprocess.run([sys.executable, "-c", ended, str(port)], cwd=tmp_path, check=False).returncode == 0
    found = Counter(
        json.loads(line)["n"] for part in (tmp_path / "out").glob("*.json") for line in part.read_bytes().splitlines()
    )
    assert set(sender.accepted) <= set(found)
    assert {number for number, count in found.items() if count > 1} <= sender.again
