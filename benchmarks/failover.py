"""How long the keys of a killed instance rest: a running count per key in shards that two instances share.

    python -m benchmarks.failover kafka|rocketmq [--keys 1000000] [--rounds 3] [--store topic|mysql] [--quick-start on|off|both]

The job counts a million keys; events of some keys keep coming. One instance is killed (``kill -9``); its shards go to the
other, which loads their state. Shown is the time from the kill to the first new result of the key that waited longest, in a
table of MariaDB, and how long loading the state took: all of it, or what a shard with quick start begins with, and then the
rest. The broker notices the death by a closed connection (RocketMQ) or when the session is over (Kafka: 6 s, the least that a
broker allows unless told otherwise).
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import pymysql

from tests.chaos.elastic_world import QUEUES, Broker, Instance, OnKafka, OnRocketMQ
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import own_server

PROBES = 64
_KEYS_A_MESSAGE = 1_000
_BEGUN = re.compile(
    r"shard (\S+) starts at offset \d+ with \d+ rows of state(?: \(the rest is loaded later\))?, after ([0-9.]+) s"
)
_RESTORED = re.compile(r"shard (\S+) has all of its (\d+) rows of state, after ([0-9.]+) s")
_FILL_SECONDS_MAX = 600.0


def run_instance(given: dict[str, Any]) -> None:
    """Run one instance until its standard input ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    keys = given["keys"]
    stream = hr.stream("benchmark", given["topic"])
    options = {"format": "json", "schema": {"first": "int64", "last": "int64"}, **given["source_options"]}
    source = stream.from_kafka if given["source"] == "kafka" else stream.from_rocketmq
    ranges = source(given["topic"], **options)
    rows = ranges.flat_map(lambda row: [{"k": k} for k in range(row["first"], row["last"])], schema={"k": "int64"})
    counts = rows.key_by("k").agg(n="count(*)").where(f"k >= {keys}")
    job = counts.to_mysql("probes", mode="upsert", flush_interval="20 ms", **given["mysql"])
    handle = job.start("light", **given["run"])
    print("started", flush=True)
    sys.stdin.read()
    handle.stop(timedelta(minutes=2))


class Probes:
    """Sends an event of every probe key again and again, and notes when each of them has a new result."""

    def __init__(self, broker: Broker, connection: Any, keys: int) -> None:
        self._broker, self._connection, self._keys = broker, connection, keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def counts(self) -> dict[int, int]:
        """Return the results that the table shows."""
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT k, n FROM probes")
            return dict(cursor.fetchall())

    def until_all_move(self, seconds_max: float = 120.0) -> float:
        """Return the seconds until every probe key has a result that is newer than those there are now."""
        begun, before = time.monotonic(), self.counts()
        while time.monotonic() - begun < seconds_max:
            now = self.counts()
            if len(now) == PROBES and all(now[key] > before.get(key, 0) for key in now):
                return time.monotonic() - begun
            time.sleep(0.01)
        raise TimeoutError(f"not all keys have a new result after {seconds_max:g} s")

    def _send(self) -> None:
        body = json.dumps({"first": self._keys, "last": self._keys + PROBES}).encode()
        turn = 0
        while not self._stop.wait(0.05):
            self._broker.write(turn % QUEUES, [body])
            turn += 1


def measure(
    broker: Broker, mysql: dict[str, Any], given: argparse.Namespace, directory: Path, *, quick_start: bool
) -> None:
    """Fill the state, kill instances, and print what was measured."""
    connection = pymysql.connect(**mysql, autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE probes (k BIGINT PRIMARY KEY, n BIGINT)")
    for first in range(0, given.keys, _KEYS_A_MESSAGE):
        last = min(given.keys, first + _KEYS_A_MESSAGE)
        broker.write(first // _KEYS_A_MESSAGE % QUEUES, [json.dumps({"first": first, "last": last}).encode()])
    run: dict[str, Any] = {"reliability": "high", "shards": 4, "checkpoint_interval": "1 s"}
    if given.store == "mysql":
        run |= {"state_store": "mysql", "state_options": mysql, "quick_start": quick_start}
    started = 0

    def start() -> Instance:
        nonlocal started
        started += 1
        about = {
            "source": broker.source, "topic": broker.topic, "source_options": broker.source_options, "mysql": mysql,
            "keys": given.keys, "run": run,
        }  # fmt: skip
        instance = Instance(about, directory / f"{started}.log", module="benchmarks.failover")
        instance.wait_until_started()
        return instance

    running = [start()]
    probes = Probes(broker, connection, given.keys)
    found: list[float] = []
    try:
        probes.until_all_move(_FILL_SECONDS_MAX)
        for _ in range(given.rounds):
            running.append(start())
            time.sleep(20)
            probes.until_all_move(_FILL_SECONDS_MAX)
            victim = running.pop(0)
            victim.kill()
            seconds = probes.until_all_move()
            found.append(seconds)
            time.sleep(2 if quick_start else 0)
            log = running[0].log.read_text()
            begun = [(name, float(took)) for name, took in _BEGUN.findall(log)]
            restored = [(name, int(rows), float(took)) for name, rows, took in _RESTORED.findall(log)]
            print(
                f"killed: {seconds:.2f} s; the survivor's shards began after {begun}, had all after {restored}",
                flush=True,
            )
    finally:
        probes.stop()
        for instance in running:
            instance.kill()
        connection.close()
    quick = f", quick start {'on' if quick_start else 'off'}" if given.store == "mysql" else ""
    print(f"{broker.source}, {given.keys:,} keys, state in {given.store}{quick}: median {statistics.median(found):.2f} s, "
          f"worst {max(found):.2f} s of {len(found)}")  # fmt: skip


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        run_instance(json.loads(sys.argv[1]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("broker", choices=["kafka", "rocketmq"])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", choices=["topic", "mysql"], default="topic")
    parser.add_argument("--quick-start", choices=["on", "off", "both"], default="on", help="with --store mysql")
    given = parser.parse_args()
    modes = {"on": [True], "off": [False], "both": [False, True]}[given.quick_start]
    with ExitStack() as stack:
        make: Callable[[str], Broker]
        if given.broker == "kafka":
            make = partial(OnKafka, stack.enter_context(own_server(KafkaServer)))
        else:
            make = partial(OnRocketMQ, stack.enter_context(own_server(RocketMQServer)))
        server = stack.enter_context(own_server(MySQLServer))
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        for quick_start in modes:
            name = f"failover-{secrets.token_hex(4)}"
            broker = make(name)
            stack.callback(broker.close)
            database = name.replace("-", "_")
            with pymysql.connect(**place, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {database}")
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            measure(broker, {**place, "database": database}, given, directory, quick_start=quick_start)


if __name__ == "__main__":
    main()
