"""What happens to a version that is not healthy, with real servers and runners: state, rows, and servers that die meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as ck_admin
from server_processes import ServerProcess

from tests.eventually import eventually
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

#: The process of the job ends at once when a file appears.
FAILS = """
import os, pathlib, threading
def _watch():
    while not pathlib.Path({marker!r}).exists():
        threading.Event().wait(0.02)
    os._exit(3)
threading.Thread(target=_watch, daemon=True).start()
"""
SUM = """
import headrace as hr
job = (hr.stream("test", "copy")
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .with_columns(k="n % 3").key_by("k").agg({aggregates})
       .to_file({out!r}, format="json", changes="column", change_column="op"))
"""


def window(server: ServerProcess, length: str, options: str = "") -> None:
    (server.jobs / "job.yaml").write_text(f"health_window: {length}\n{options}")


def say(server: ServerProcess) -> str:
    return str([(each["kind"], each["step"]) for each in server.client.ask("GET", "/v1/operations")])


@pytest.mark.parametrize(
    "when", [pytest.param("while no server is there", marks=pytest.mark.slow), "when the next server is there"]
)
def test_a_version_that_fails_after_its_server_died_in_the_window_is_taken_back(
    server: ServerProcess, when: str
) -> None:
    marker = server.root / "fail"
    server.write_copy()
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    window(server, "10 min")
    text = (server.jobs / "copy.py").read_text()
    (server.jobs / "copy.py").write_text(text + FAILS.format(marker=str(marker)))
    eventually(lambda: "watching it" in say(server), "the window begins", shown=server.log)
    server.kill()
    if when == "while no server is there":
        marker.touch()
    server.start()
    marker.touch()
    eventually(lambda: server.job()["versions"][0]["state"] == "fell_back", "it is taken back", shown=server.log)
    assert "was taken back" in server.wait_for_state("running", version=1)["job"]["problem"]
    server.add_events(100, 200)
    server.wait_for_rows(200)
    assert not (server.data / "jobs" / "copy" / "roll-out.json").exists()


#: Begins a job whose state lies in a MySQL server.
STATE_IN_MYSQL = """
import headrace as hr
hr.namespace("test", state_store="mysql", state_options={options!r} | {{"password": "${{MYSQL_PASSWORD}}"}})
"""


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(300)
def test_the_old_version_reads_its_state_in_mysql_after_a_fall_back(
    server: ServerProcess, mysql_server: MySQLServer, mysql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PASSWORD", mysql_server.password)
    place = {
        "host": mysql_server.host,
        "port": mysql_server.port,
        "user": mysql_server.user,
        "database": mysql_database,
    }
    _fall_back(
        server, "c='count(*)'", begin=STATE_IN_MYSQL.format(options=place), settings="secrets: [MYSQL_PASSWORD]\n"
    )


@pytest.mark.parametrize("new", [pytest.param("c='count(*)'", marks=pytest.mark.slow), "c='count(*)', s='sum(n)'"])
def test_the_old_version_reads_its_state_after_a_fall_back(server: ServerProcess, new: str) -> None:
    _fall_back(server, new)


def _fall_back(server: ServerProcess, new: str, *, begin: str = "", settings: str = "") -> None:
    """Roll a version out that works for a while and then fails; compare every row."""
    marker = server.root / "fail"
    both = {"events": str(server.events), "out": str(server.out)}
    settings += "options: {sinks_ahead: write, checkpoint_interval: 200 ms}\n"
    window(server, "300 ms", settings)
    (server.jobs / "copy.py").write_text(begin + SUM.format(aggregates="c='count(*)', s='sum(n)'", **both))
    server.add_events(0, 90)
    server.start()
    server.wait_for_state("running", version=1)
    eventually(lambda: last(server) == {0: 30, 1: 30, 2: 30}, "counts", shown=server.log)
    window(server, "10 min", settings)
    text = begin + SUM.format(aggregates=new, **both) + FAILS.format(marker=str(marker))
    (server.jobs / "copy.py").write_text(text)
    eventually(lambda: "watching it" in say(server), "the window begins", shown=server.log)
    server.add_events(90, 180)
    eventually(lambda: last(server) == {0: 60, 1: 60, 2: 60}, "counts of version 2", shown=server.log)
    stored = server.data / "jobs" / "copy" / "checkpoint" / "light" / "checkpoint.json"
    eventually(
        lambda: json.loads(stored.read_text())["queues"][0]["offset"] >= 180, "a checkpoint", shown=stored.read_text
    )
    marker.touch()
    eventually(lambda: server.job()["versions"][0]["state"] == "fell_back", "it is taken back", shown=server.log)
    found = server.wait_for_state("running", version=1)
    assert ("may be there twice" in found["job"]["problem"]) is ("s=" not in new), found["job"]["problem"]
    server.add_events(180, 270)
    eventually(
        lambda: last(server) == {0: 90, 1: 90, 2: 90}, "counts go on", shown=lambda: (last(server), server.log())
    )
    _compare_each_row(server, same_state="s=" in new)
    aside = server.data / "jobs" / "copy" / "checkpoint.taken-back"
    assert aside.exists() is ("s=" not in new)


SUM_IN_TOPICS = """
import headrace as hr
job = (hr.stream("test", "copy")
       .from_kafka({topic!r}, servers={servers!r}, format="json", schema={{"n": "int64"}})
       .with_columns(k="n % 3").key_by("k").agg({aggregates})
       .to_file({out!r}, format="json", changes="column", change_column="op"))
"""
IN_TOPICS = "options: {reliability: high, shards: 2, checkpoint_interval: 200 ms}\n"


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_state_in_topics_has_a_way_back_to_a_version_that_reads_it_and_others_are_refused(
    server: ServerProcess, kafka_server: KafkaServer, topic: str
) -> None:
    both, marker = "c='count(*)', s='sum(n)'", server.root / "fail"
    place = {"topic": topic, "servers": kafka_server.bootstrap, "out": str(server.out)}
    admin: Any = ck_admin.AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    [made] = admin.create_topics([ck_admin.NewTopic(topic, 1, 1)]).values()  # type: ignore[attr-defined]
    made.result()
    producer: Any = ck.Producer({"bootstrap.servers": kafka_server.bootstrap, "enable.idempotence": True})

    def send(first: int) -> None:
        for number in range(first, first + 90):
            producer.produce(topic, json.dumps({"n": number}).encode())
        assert producer.flush(60) == 0
        count = (first + 90) // 3
        eventually(
            lambda: last(server) == dict.fromkeys(range(3), count), f"{count} of each", shown=lambda: (last(server), server.log())
        )  # fmt: skip

    def write(aggregates: str, health_window: str, end: str = "") -> None:
        window(server, health_window, IN_TOPICS)
        (server.jobs / "copy.py").write_text(SUM_IN_TOPICS.format(aggregates=aggregates, **place) + end)

    write(both, "300 ms")
    server.start()
    server.wait_for_state("running", version=1)
    send(0)
    write(both, "10 min", FAILS.format(marker=str(marker)))
    eventually(lambda: "watching it" in say(server), "the window begins", shown=server.log)
    send(90)
    marker.touch()
    eventually(lambda: server.job()["versions"][0]["state"] == "fell_back", "it is taken back", shown=server.log)
    pid = server.wait_for_state("running", version=1)["job"]["pid"]
    send(180)
    _compare_each_row(server, same_state=True)
    write("c='count(*)'", "300 ms")
    eventually(lambda: server.job()["versions"][0]["state"] == "refused", "it is refused", shown=server.log)
    found = server.wait_for_state("running", version=1)
    assert "there would be no way back from it" in found["job"]["problem"]
    assert found["job"]["pid"] == pid
    for command in ("stop", "upgrade", "start"):
        done = server.command(command, "copy")
        assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_state("running", version=3)
    send(270)


def _compare_each_row(server: ServerProcess, *, same_state: bool) -> None:
    """Compare every change in the output. What a version adds and takes back again leaves the last row of each key, once."""
    old, new = ([row for row in written(server) if ("s" in row) is has_sum] for has_sum in (True, False))
    assert all(row["s"] == sum(range(row["k"], row["k"] + 3 * row["c"], 3)) for row in old)
    # The old version's rows are those of a job that never stopped, whether it went on from the new one's checkpoint or from its own.
    assert balance(old) == {(key, 90): 1 for key in range(3)}
    assert len(old) == len({(row["op"], row["k"], row["c"]) for row in old})
    # What the new version has written from its own state stays: from the last row before it to its own last row.
    expected = {(key, count): sign for key in range(3) for count, sign in ((30, -1), (60, 1))}
    assert balance(new) == ({} if same_state else expected)
    assert len(new) == len({(row["op"], row["k"], row["c"]) for row in new})


def balance(rows: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Return how often each count of a key was added more often than taken back."""
    found: Counter[tuple[int, int]] = Counter()
    for row in rows:
        found[row["k"], row["c"]] += 1 if row["op"] in ("insert", "update_after") else -1
    return {each: times for each, times in found.items() if times}


def written(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for part in server.out.glob("*.json") for line in part.read_text().splitlines()]


def last(server: ServerProcess) -> dict[int, int]:
    """Return the greatest count of each key."""
    found: dict[int, int] = {}
    for row in written(server):
        found[row["k"]] = max(found.get(row["k"], 0), row["c"])
    return found
