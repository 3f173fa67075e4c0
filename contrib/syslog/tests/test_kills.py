"""What was in the buffer when the process was killed is read once, and nothing of it twice."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from headrace_buffer import RecordLog
from taking import free_port

from tests.eventually import eventually

JOB = """
import sys
import headrace as hr
port = int(sys.argv[1])
(hr.stream("tests", "killed").from_syslog(
    tcp_port=port, udp_port=port, buffer="buffer", format="syslog", schema={"message": "string"},
    metadata={"offset": "offset"})
   .to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""
KILLS = 4


class Sender:
    """Sends each number once, over TCP and over UDP in turns, whether anybody takes it or not."""

    def __init__(self, port: int) -> None:
        self.address = ("127.0.0.1", port)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        number = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            while not self.ended.is_set():
                try:
                    with socket.create_connection(self.address) as connection:
                        while not self.ended.wait(0.001):
                            lines = [b"<13>app: %d" % each for each in range(number, number + 40)]
                            number += len(lines)
                            connection.sendall(b"\n".join(lines[:20]) + b"\n")
                            for line in lines[20:]:
                                datagrams.sendto(line, self.address)
                except OSError:
                    self.ended.wait(0.01)

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


def start(directory: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", JOB, str(port)], cwd=directory)


def written(directory: Path) -> list[int]:
    """Return the offsets of the buffer that were written, in the order of files."""
    parts = (directory / "out").glob("*.json")
    return [int(json.loads(line)["offset"]) for part in parts for line in part.read_bytes().splitlines()]


def end_of_buffer(directory: Path) -> int:
    """Return the offset after the last record: recovery of a killed process's buffer takes place here, as in the next run."""
    with RecordLog(directory / "buffer") as log:
        return log.latest


def test_kills(tmp_path: Path) -> None:
    port = free_port()
    sender = Sender(port)
    ends: list[int] = []
    try:
        for _ in range(KILLS):
            before = len(written(tmp_path))
            job = start(tmp_path, port)
            try:
                eventually(lambda known=before: len(written(tmp_path)) > known + 200, "rows are written")  # type: ignore[misc]
            finally:
                job.send_signal(signal.SIGKILL)
                job.wait()
            ends.append(end_of_buffer(tmp_path))
    finally:
        sender.end()
    bounded = JOB.replace(".start(", ".run(").replace(".wait()", "")
    assert subprocess.run([sys.executable, "-c", bounded, str(port)], cwd=tmp_path, check=False).returncode == 0
    # All that was in the buffer at any time, each record once.
    assert sorted(written(tmp_path)) == list(range(end_of_buffer(tmp_path)))
    assert ends == sorted(ends)
    assert ends[-1] > KILLS * 200
