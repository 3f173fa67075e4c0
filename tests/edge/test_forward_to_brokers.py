"""A box at the edge whose broker is away: what senders were answered is in the topic when the broker is back, also after a kill."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
import urllib3

from tests.eventually import eventually
from tests.servers.fixtures import StartKafkaServer

JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
stream = hr.stream("plant", "forward").from_http(port=given["port"], buffer="buffer", format="json", schema={"n": "int64"})
options = {"format": "json", "retry_timeout": "7 days", "flush_interval": "50 ms", "create_topic": True}
job = stream.to_kafka(given["topic"], servers=given["servers"], **options)
job.start("light", checkpoint="state", checkpoint_interval="100 ms", start_timeout="7 days").wait()
"""


@pytest.mark.timeout(300)
def test_kafka_is_away(start_kafka_server: StartKafkaServer, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    server, topic = start_kafka_server(), fresh_name("forward")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    (tmp_path / "job.py").write_text(JOB)
    given = json.dumps({"port": port, "topic": topic, "servers": server.bootstrap})
    sent = 0

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "job.py", given], cwd=tmp_path)

    def send(count: int) -> None:
        nonlocal sent
        body = "".join(f'{{"n": {n}}}\n' for n in range(sent, sent + count)).encode()
        with urllib3.PoolManager(retries=False) as pool:

            def taken() -> bool:
                try:
                    headers = {"content-type": "application/x-ndjson"}
                    return bool(
                        pool.request("POST", f"http://127.0.0.1:{port}/", body=body, headers=headers).status == 200
                    )
                except urllib3.exceptions.HTTPError:
                    return False

            eventually(taken, "the box has answered")
        sent += count

    def arrived() -> list[Any]:
        # Each look is a group of its own: one that has read begins behind what it has read.
        given = {"servers": server.bootstrap, "group": fresh_name("check"), "format": "json", "schema": {"n": "int64"}}
        stream = hr.stream("plant", "check").from_kafka(topic, **given)
        return [row["n"] for row in stream.collect().iter_rows(named=True)]

    job = start()
    try:
        send(100)
        eventually(lambda: len(set(arrived())) == 100, "what was sent while the broker was there", pause_seconds=0.2)
        server.stop()
        for _ in range(3):
            send(200)
            job.send_signal(signal.SIGKILL)
            job.wait()
            job = start()
        send(100)
        server.start()
        eventually(lambda: len(set(arrived())) == sent, "everything", pause_seconds=0.2)
    finally:
        job.kill()
        job.wait()
    assert sorted(set(arrived())) == list(range(800))
