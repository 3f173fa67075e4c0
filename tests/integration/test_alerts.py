"""From logins to people: rules, correlations, deduplicate, throttle, group, enrich; by webhook, mail and Elasticsearch.

The webhook answers 500 and 429 now and then, the mail server refuses for now, the job is killed: no alert is lost, and what
comes twice has the id that it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mail_server import MailServer
from receiver import OK, Receiver, Reply, Request

from tests.eventually import eventually
from tests.integration.alerts_job import build, lay_out
from tests.integration.stored_documents import stored_documents
from tests.servers.elasticsearch import ElasticsearchServer

ROOT = Path(__file__).parents[2]
BEGIN = datetime(2026, 1, 1, 10, tzinfo=UTC)
HOSTS = ("h0", "h1", "h2", "h3")
OWNERS = {"h0": "ann@example.org", "h1": "bob@example.org", "h2": "ann@example.org"}
LINE = re.compile(r"(\S+) (\S+) (\d+) (\[.*\]) (\d+)")


class World:
    """What stands around the job: its files, and the servers that get its alerts."""

    def __init__(self, place: Path, elasticsearch: str, index: str) -> None:
        self.place, self.elasticsearch, self.index = place, elasticsearch, index
        lay_out(place)
        self._answers = random.Random(1)
        self.receiver = Receiver(self._answer)
        self.mail = MailServer(place / "mail")
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        self.receiver.stop()
        self.mail.stop()

    def _answer(self, request: Request) -> Reply:
        return self._answers.choice([OK, OK, OK, (500, {}, b"try again"), (429, {"Retry-After": "0"}, b"slowly")])

    def arguments(self, idle_timeout: str | None = None) -> dict[str, Any]:
        return {
            "place": str(self.place), "webhook": self.receiver.url, "smtp_port": self.mail.port, "index": self.index,
            "elasticsearch": self.elasticsearch, "idle_timeout": idle_timeout,
        }  # fmt: skip

    def send(self, count: int, *, files: int = 2) -> None:
        """Append logins, in the order of their times, to files in turn."""
        chance = random.Random(len(self.events))
        made: list[dict[str, Any]] = []
        for number in range(len(self.events), len(self.events) + count):
            at = BEGIN + timedelta(seconds=number, microseconds=number)
            made.append(
                {"n": number, "ts": at.isoformat(), "Host": chance.choice(HOSTS), "User": f"u{chance.randrange(6)}",
                 "EventID": chance.choice([4624, 4625, 4625, 1])}
            )  # fmt: skip
        for name in range(files):
            with (self.place / "in" / f"{name}.ndjson").open("a") as file:
                file.writelines(json.dumps(one) + "\n" for one in made if one["n"] % files == name)
        self.events += made

    # ------------------------------------------------------------------------------------------------ what has come

    def documents(self) -> list[dict[str, Any]]:
        return stored_documents(self.elasticsearch, self.index)

    def told_by_webhook(self) -> dict[str, dict[str, Any]]:
        """Return the rows by their ids. A row that came twice must be the same both times."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.receiver.rows():
            assert found.setdefault(row["id"], row) == row, "one id, two rows"
        return found

    def told_by_mail(self) -> set[tuple[str, ...]]:
        return {found.groups() for line in self.mail.lines() if (found := LINE.fullmatch(line.strip()))}


def alerts_of(events: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """Return (rule, number of the event) of the alerts that logins give, as plainly as it can be said."""
    found: Counter[tuple[str, int]] = Counter()
    _add(found, "many", events, ("Host",), 30, {4625}, lambda window: len(window) >= 5)
    _add(found, "sprayed", events, ("Host",), 30, {4625}, lambda window: len({one["User"] for one in window}) >= 4)
    _add(
        found,
        "both",
        events,
        ("User", "Host"),
        20,
        {4624, 4625},
        lambda window: len({one["EventID"] for one in window}) == 2,
    )
    _add(found, "guessed", events, ("User",), 20, {4624, 4625}, _in_order)
    return found


def _in_order(window: list[dict[str, Any]]) -> bool:
    kinds = [one["EventID"] for one in window]
    return 4625 in kinds and 4624 in kinds[kinds.index(4625) :]


def _add(
    found: Counter[tuple[str, int]],
    rule: str,
    events: list[dict[str, Any]],
    keys: tuple[str, ...],
    seconds: int,
    kinds: set[int],
    is_true: Callable[[list[dict[str, Any]]], bool],
) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    was: dict[tuple[str, ...], tuple[int, bool]] = {}
    starts: set[tuple[tuple[str, ...], int]] = set()
    for event in events:
        if event["EventID"] not in kinds:
            continue
        group = tuple(event[name] for name in keys)
        groups.setdefault(group, []).append(event)
        # Times are seconds and as many microseconds as seconds: a window of n seconds ends just before the event n before.
        window = [one for one in groups[group] if event["n"] - one["n"] < seconds]
        true = is_true(window)
        last, before = was.get(group, (-seconds, False))
        start = (group, window[0]["n"])
        if true and not (before and event["n"] - last < seconds) and start not in starts:
            starts.add(start)
            found[rule, event["n"]] += 1
        was[group] = (event["n"], true)


@pytest.fixture
def world(tmp_path: Path, elasticsearch_server: ElasticsearchServer, index_name: str) -> Iterator[World]:
    made = World(tmp_path, elasticsearch_server.url, index_name)
    yield made
    made.close()


@contextmanager
def started(world: World, backend: str = "light", **run: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job in a process of its own; killed at the end of the block, with all that it has started."""
    given = {**world.arguments(), "backend": backend, "run": {"checkpoint": str(world.place / "state"), **run}}
    with (world.place / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.alerts_job", json.dumps(given)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n", (world.place / "log.txt").read_text()[-3000:]
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def check_all(world: World) -> None:
    """Check that each alert has come: to the store once, to people at least once and never as another."""
    wanted = alerts_of(world.events)
    assert wanted.total() > 20
    documents = world.documents()
    assert Counter((one["rule.id"], one["n"]) for one in documents) == wanted
    first = documents[0]
    assert first["event.kind"] == "alert"
    assert {one.get("host.owner") for one in documents} == {*OWNERS.values(), None}, "h3 has no owner"
    assert {one["network.zone"] for one in documents if one.get("host.owner")} == {"office", "plant"}
    by_place = Counter((rule, world.events[n]["Host"]) for rule, n in wanted.elements())
    told = Counter[tuple[str, str]]()
    for row in world.told_by_webhook().values():
        told[row["rule_id"], row["Host"]] += 1 + row["suppressed_count"]
    assert told == by_place, "alerts, and those that they stand for, add up"
    owners = Counter[str]()
    for _, owner, alerts, _, _ in world.told_by_mail():
        owners[owner] += int(alerts)
    assert owners == Counter(
        owner for (_, host), count in by_place.items() for owner in [OWNERS.get(host)] * count if owner
    )
    recipients = {
        (tuple(to), line.split(" ")[1]) for to, mail in world.mail.mails() for line in mail.get_content().splitlines()
    }
    assert all(to == (owner,) for to, owner in recipients), "each gets what is his"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_alerts_reach_people_and_the_store(world: World, workers: int) -> None:
    world.send(300)
    world.mail.answer = "451 later"
    with build(**world.arguments()).start("light", checkpoint=world.place / "state", workers=workers, shards=2):
        eventually(lambda: world.mail.greeted > 1, "the mail server was asked")
        world.mail.answer = None
        eventually(lambda: len(world.told_by_mail()) > 1 and len(world.told_by_webhook()) > 5, "the first alerts")
    world.send(50)
    build(**world.arguments()).run("light", checkpoint=world.place / "state", workers=workers, shards=2)
    check_all(world)
    assert len({request.raw for request in world.receiver.stored}) < len(world.receiver.requests), "some were refused"


def test_a_killed_job_loses_no_alert(world: World) -> None:
    for _ in range(3):
        world.send(120)
        seen = len(world.receiver.requests)
        with started(world):
            eventually(lambda: len(world.receiver.requests) > seen + 3, "alerts are under way")  # noqa: B023
    build(**world.arguments()).run("light", checkpoint=world.place / "state")
    check_all(world)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark(world: World) -> None:
    world.send(200)
    seen = len(world.receiver.requests)
    with started(world, "spark", shards=2):
        eventually(lambda: len(world.receiver.requests) > seen + 3, "alerts are under way", seconds=300)
    world.send(100)
    build(**world.arguments()).run("spark", checkpoint=world.place / "state", shards=2, show_progress=False)
    check_all(world)


def test_silent_sources(world: World) -> None:
    """One file has no login at all, the other none after the last that makes an alert: it is told nevertheless."""
    (world.place / "in" / "1.ndjson").touch()
    world.send(100, files=1)
    wanted = alerts_of(world.events)
    job = build(**world.arguments("1 s"))
    with job.start("light", checkpoint=world.place / "state"):
        eventually(lambda: len(world.documents()) == wanted.total(), "all documents")
        owned = sum(world.events[n]["Host"] in OWNERS for _, n in wanted.elements())
        eventually(lambda: sum(int(line[2]) for line in world.told_by_mail()) == owned, "all mails")
        eventually(
            lambda: sum(1 + row["suppressed_count"] for row in world.told_by_webhook().values()) == wanted.total(),
            "all of the webhook",
        )
    check_all(world)
