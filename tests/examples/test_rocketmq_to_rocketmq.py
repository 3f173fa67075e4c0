"""The example from RocketMQ to RocketMQ, run by the command line as its text says, on both backends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Message

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"id": "int64", "customer": "string", "region": "string", "amount": "float64"}


def orders(first: int, count: int) -> list[Message]:
    """Return orders; every tenth is broken."""
    made = []
    for number in range(first, first + count):
        order = {
            "id": number,
            "customer": f" c{number % 7} ",
            "region": ("EU", "US")[number % 2],
            "amount": number * 1.5,
        }
        body = json.dumps(order) if number % 10 else f'{{"id": {number}, '
        made.append(Message(body.encode(), queue_key=str(number % 7)))
    return made


def expected(last: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "customer": f"c{number % 7}", "region": ("eu", "us")[number % 2], "amount": number * 1.5}
        for number in range(last)
        if number % 10 and number * 1.5 >= 100
    ]


def read(server: RocketMQServer, topic: str, **options: Any) -> list[dict[str, Any]]:
    """Return what a reader that drops repetitions sees in a topic."""
    found = MemorySink()
    hr.stream("tests", "read").from_rocketmq(
        topic, name_servers=server.name_server, deduplicate=True, format="json", **options
    ).to(found).run("light")
    return found.rows


def run(backend: str, checkpoint: Path, **arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("headrace")), "run", "examples/rocketmq_to_rocketmq.py"]
    for name, value in arguments.items():
        command += ["--set", f"{name}={value}"]
    done = subprocess.run(
        [*command, "--backend", backend, "--checkpoint", str(checkpoint)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_large_orders_are_copied_once(
    rocketmq_server: RocketMQServer, fresh_name: Callable[[str], str], tmp_path: Path, backend: str
) -> None:
    source, target, bad = fresh_name("orders"), fresh_name("large"), fresh_name("bad")
    given = {"name_servers": rocketmq_server.name_server, "topic": source, "target": target, "bad": bad}
    with Client(rocketmq_server.name_server) as client:
        client.create_topic(source, 4)
        for first, count in ((0, 150), (150, 50)):  # the second run goes on where the first ended
            sent = client.send_many(source, orders(first, count))
            wait_until_stored(client, source, first + len(sent))
            run(backend, tmp_path / "checkpoint", group=source, **given)
        rows = read(rocketmq_server, target, schema=COLUMNS)
        assert sorted(rows, key=lambda row: int(row["id"])) == expected(200)
        for customer in range(7):
            own = [row["id"] for row in rows if row["customer"] == f"c{customer}"]
            assert own == sorted(own)
        broken = read(rocketmq_server, bad, schema={"reason": "string", "offset": "int64"})
        assert len(broken) == 20
        assert all(row["reason"] for row in broken)


def wait_until_stored(client: Client, topic: str, count: int) -> None:
    """Wait until brokers have entered all messages into the topic's queues."""
    eventually(
        lambda: sum(client.latest_offsets(client.queues(topic)).values()) >= count, f"{topic} holds {count} messages"
    )
