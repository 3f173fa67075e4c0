"""Jobs of a group that read one topic of a real Kafka together: what happens to one of them does not disturb the others."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as ck_admin
from server_processes import ServerProcess

from tests.eventually import eventually
from tests.servers.kafka import KafkaServer

JOB = """
import headrace as hr
job = (hr.stream("teams", {name!r})
       .from_kafka({topic!r}, servers={servers!r}, format="json", schema={{"n": "int64", "t": "string"}})
       {verbs}
       .to_file({out!r}, format="json"))
"""
VERBS = {
    "amounts": '.where("n >= 0").select("n")',
    "texts": '.where("t IS NOT NULL").select("n", "t")',
    "rules": '.rules([{"id": "all", "expression": "n >= 0"}]).select("n")',
    "counts": '.with_columns(k="n % 3").key_by("k").distinct().select(n="k")',
}


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_each_job_of_a_group_has_its_rows_once_whatever_happens_to_the_others(
    server: ServerProcess, kafka_server: KafkaServer, topic: str
) -> None:
    admin: Any = ck_admin.AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    [made] = admin.create_topics([ck_admin.NewTopic(topic, 2, 1)]).values()  # type: ignore[attr-defined]
    made.result()
    producer: Any = ck.Producer({"bootstrap.servers": kafka_server.bootstrap, "enable.idempotence": True})
    count = 0

    def send(more: int) -> None:
        nonlocal count
        for number in range(count, count + more):
            # Every tenth text is none: a bad record of the job that reads texts alone.
            body = {"n": number, "t": number if number % 10 == 0 else f"text {number}"}
            producer.produce(topic, json.dumps(body).encode(), partition=number % 2)
        assert producer.flush(60) == 0
        count += more

    def rows(name: str) -> Counter[int]:
        parts = (server.root / f"out-{name}").glob("*.json")
        return Counter(json.loads(line)["n"] for part in parts for line in part.read_text().splitlines())

    def wanted(name: str) -> Counter[int]:
        if name == "counts":
            return Counter(range(3))
        return Counter(n for n in range(count) if name != "texts" or n % 10)

    def arrive(*names: str) -> None:
        for name in names:
            eventually(lambda: rows(name) == wanted(name), f"rows of {name}", shown=server.log)  # noqa: B023

    (server.jobs / "job.yaml").write_text(
        "group: teams\nhealth_window: 300 ms\noptions: {shared_reading: true, checkpoint_interval: 200 ms}\n"
    )
    send(50)
    for name, verbs in VERBS.items():
        where = {"topic": topic, "servers": kafka_server.bootstrap, "out": str(server.root / f"out-{name}")}
        (server.jobs / f"{name}.py").write_text(JOB.format(name=name, verbs=verbs, **where))
    server.start()
    pids = {server.wait_for_state("running", name=name)["job"]["pid"] for name in VERBS}
    assert len(pids) == 1
    arrive(*VERBS)

    assert server.command("stop", "amounts").returncode == 0
    send(50)
    arrive("texts", "rules", "counts")
    assert server.command("start", "amounts").returncode == 0
    arrive("amounts")

    server.client.ask("PUT", "/v1/jobs/rules/rules", {"text": "- {id: new, expression: n >= 0 AND n < 1000000}"})
    assert server.command("restart", "texts").returncode == 0
    send(50)
    arrive(*VERBS)

    os.kill(pids.pop(), signal.SIGKILL)
    send(50)
    arrive(*VERBS)
    for name in VERBS:
        found = server.wait_for_state("running", name=name)["job"]
        letters = found["figures"]["dead_letters"] if found.get("figures") else 0
        assert (letters > 0) <= (name == "texts"), (name, letters)
    letters = [
        json.loads(line)["offset"]
        for part in (server.data / "jobs" / "texts").rglob("dead-letters/**/*.json")
        for line in part.read_text().splitlines()
    ]
    assert len(letters) == count // 10
