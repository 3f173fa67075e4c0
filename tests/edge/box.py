"""A box at the edge that takes records over HTTP and forwards them to a broker, and what the broker has got."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace as hr
import urllib3

from tests.edge.limits import Group
from tests.eventually import eventually

JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
buffer = {"buffer": "buffer", **given["buffer"]}
stream = hr.stream("plant", "forward").from_http(port=given["port"], format="json", schema={"n": "int64", "pad": "string"}, **buffer)
options = {"format": "json", "retry_timeout": "7 days", "flush_interval": "50 ms", "create_topic": True, **given["servers"]}
job = getattr(stream.select("n"), "to_" + given["broker"])(given["topic"], **options)
job.start("light", checkpoint="state", checkpoint_interval="100 ms", start_timeout="7 days").wait()
"""


class Box:
    """A job in a process of its own, which takes records over HTTP and forwards them to a broker.

    ``python`` is that of the environment that it runs in, ``group`` limits what it may use.
    """

    def __init__(
        self,
        directory: Path,
        broker: str,
        servers: dict[str, str],
        topic: str,
        *,
        python: str | Path = sys.executable,
        group: Group | None = None,
        **buffer: Any,
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        (directory / "job.py").write_text(JOB)
        given = {"port": self.port, "broker": broker, "servers": servers, "topic": topic, "buffer": buffer}
        command = [str(python), "job.py", json.dumps(given)]
        self._command = command if group is None else group.inside(command)
        self._directory = directory
        self.sent = 0
        self.start()

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self._directory, stderr=log)

    @property
    def most_memory_kb(self) -> int:
        """The most resident memory of the present process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def send(self, count: int, *, pad: str = "", until: tuple[int, ...] = (200,)) -> None:
        """Send records in one request until it is answered so."""
        numbers = range(self.sent, self.sent + count)
        body = "".join(json.dumps({"n": n, "pad": pad}) + "\n" for n in numbers).encode()
        with urllib3.PoolManager(retries=False) as pool:

            def answered() -> bool:
                headers = {"content-type": "application/x-ndjson"}
                try:
                    address = f"http://127.0.0.1:{self.port}/"
                    return pool.request("POST", address, body=body, headers=headers).status in until
                except urllib3.exceptions.HTTPError:
                    return False

            eventually(answered, "the box has answered")
        self.sent += count


def arrived(broker: str, servers: dict[str, str], topic: str, group: str) -> list[int]:
    """Return what the topic has, as a group that has read nothing."""
    given: dict[str, Any] = {**servers, "group": group, "format": "json", "schema": {"n": "int64"}}
    stream = getattr(hr.stream("plant", "check"), f"from_{broker}")(topic, **given)
    try:
        return [row["n"] for row in stream.collect().iter_rows(named=True)]
    except hr.JobError as error:
        if "there is no topic" in str(error):  # the box makes it
            return []
        raise
