"""Upgrades under load while processes of jobs and the server are killed: Kafka to MySQL, each row once.

HEADRACE_UPGRADES is how many the long form does of each kind.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pymysql
import pytest
from confluent_kafka import admin as ck_admin
from server_processes import ServerProcess
from upgrade_kinds import KINDS

from tests.eventually import eventually
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(7200)]
PARTITIONS = 3
ROUNDS = int(os.environ.get("HEADRACE_UPGRADES", "200"))


class Numbers:
    """Sends 0, 1, 2, … to Kafka until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        admin: Any = ck_admin.AdminClient({"bootstrap.servers": servers})
        [made] = admin.create_topics([ck_admin.NewTopic(topic, PARTITIONS, 1)]).values()  # type: ignore[attr-defined]
        made.result()
        self._producer: Any = ck.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.count = 0
        self._thread.start()

    def _send(self) -> None:
        for number in itertools.count():
            self._producer.produce(self._topic, json.dumps({"n": number}).encode(), partition=number % PARTITIONS)
            self._producer.poll(0)  # else what was sent stays in its queue
            self.count = number + 1
            if number % 10 == 9 and self._stopping.wait(0.02):
                return

    def stop(self) -> int:
        """Stop; return how many were sent, all of which are stored."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self.count


@pytest.fixture
def stored(mysql_server: MySQLServer, mysql_database: str) -> Iterator[Callable[[], Counter[int]]]:
    """Return the numbers in the table, with how often each is there."""
    server = mysql_server
    place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(**place, database=mysql_database, autocommit=True) as connection:

        def rows() -> Counter[int]:
            with connection.cursor() as cursor:
                cursor.execute("SHOW TABLES LIKE 'numbers'")
                if not cursor.fetchall():
                    return Counter()
                cursor.execute("SELECT n FROM numbers")
                return Counter(n for (n,) in cursor.fetchall())

        yield rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [2, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_upgrades_with_kills_lose_and_double_nothing(
    rounds: int, kind: str, kafka_server: KafkaServer, mysql_server: MySQLServer, mysql_database: str, topic: str, tmp_path: Path,
    stored: Callable[[], Counter[int]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("MYSQL_PASSWORD", mysql_server.password)
    choose = random.Random(20261124)
    place = {
        "host": mysql_server.host,
        "port": mysql_server.port,
        "user": mysql_server.user,
        "database": mysql_database,
    }
    server = ServerProcess(tmp_path)
    upgrade = KINDS[kind](server, place, topic, kafka_server.bootstrap)
    numbers = Numbers(kafka_server.bootstrap, topic)
    done: Counter[str] = Counter()
    never = threading.Event()
    try:
        upgrade.prepare()
        server.start("--on-stop", "leave")
        server.wait_for_state("running", version=1, name="numbers")
        for number in range(1, rounds + 1):
            upgrade.change(number)
            fate = choose.choice(["nothing", "runner", "server"]) if rounds > 2 else ["runner", "server"][number - 1]
            done[fate] += 1
            # A moment between the look at the file and the end of the roll-out.
            never.wait(choose.uniform(0.0, 6.0))
            if fate == "runner":
                _kill_runner(server)
            elif fate == "server":
                upgrade.replace_server()
            eventually(lambda wanted=number: upgrade.is_done(wanted), f"upgrade {number}", shown=server.log)  # type: ignore[misc]
        count = numbers.stop()
        eventually(
            lambda: len(stored()) >= count, f"{count} numbers", shown=lambda: (len(stored()), server.log()[-3000:])
        )
        found = stored()
        lost = set(range(count)) - set(found)
        doubled = {n: often for n, often in found.items() if often != 1}
        assert (lost, doubled) == (set(), {})
    finally:
        numbers.stop()
        server.clean_up()
    print(f"{kind}: {rounds} upgrades, {count} rows, kills: {dict(done)}")


def _kill_runner(server: ServerProcess) -> None:
    pid = server.job("numbers")["job"]["pid"]
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # its roll-out has just ended it
