"""How long output rests while instances of a keyed job are killed again and again: Kafka to MySQL tables.

    python -m benchmarks.kill_storm [--kills 20] [--instances 3] [--every 5-12] [--session 10] [--driver confluent]
                                    [--instance-ids]

Some instances share windows and a join (the job of ``tests/chaos/elastic_job.py``). Every 5 to 12 s one is killed (``kill -9``)
and one is started in its place; ``--instance-ids`` gives it the id of the dead one (``instance_id`` of the Kafka source). Shown is the
longest time without any new row of the join, the longest without one for a single key, and what the instances did meanwhile.
At the end the tables are compared with a model: every row once. No row of it is a matter of seconds, so the short form of
this is a test (``tests/chaos/test_kill_storm.py``).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.elastic_world import KEYS, ElasticWorld, Feed, Instance, OnKafka
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.sharing import own_server

_LOOK_SECONDS = 0.25
_BEGINS = re.compile(r"shard \S+ starts at offset .* after ([0-9.]+) s")


@dataclass
class Rests:
    """Looks at the table of pairs, and remembers how long nothing new came: of all keys, and of each."""

    world: ElasticWorld
    longest_seconds: float = 0.0
    longest_of_a_key_seconds: float = 0.0
    all_longest: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before: dict[str, int] = {}
        moved: dict[str, float] = {}
        last = time.monotonic()
        while not self._stop.wait(_LOOK_SECONDS):
            found, now = self.world.pairs_of_keys(), time.monotonic()
            if found == before:
                continue
            if before and now - last > 1.0:
                self.all_longest.append((last - self._begun, now - last))
            if before:
                self.longest_seconds = max(self.longest_seconds, now - last)
            for key, count in found.items():
                if count != before.get(key):
                    if len(before) == KEYS:
                        self.longest_of_a_key_seconds = max(self.longest_of_a_key_seconds, now - moved[key])
                    moved[key] = now
            before, last = found, now


def measured(world: ElasticWorld, given: argparse.Namespace) -> dict[str, float]:
    """Kill and start, and return what was measured. Raises AssertionError when a row is missing, twice or wrong."""
    choice = random.Random(given.seed)
    first, last = map(float, given.every.split("-"))

    def start(name: str) -> Instance:
        return world.start(name, source_options={"instance_id": name} if given.instance_ids else {})

    for number in range(given.instances):
        start(f"storm-{number}").wait_until_started()
    feed = Feed(world.broker, per_second=given.per_second)
    while len(world.pairs_of_keys()) < KEYS:
        time.sleep(0.5)
    rests = Rests(world)
    lived, with_shards = [], 0
    born = {instance.name: time.monotonic() for instance in world.running}
    for _ in range(given.kills):
        time.sleep(choice.uniform(first, last))
        victim = choice.choice(world.running)
        world.kill(victim)
        lived.append(time.monotonic() - born[victim.name])
        with_shards += bool(_BEGINS.search(victim.log.read_text()))
        start(victim.name)
        born[victim.name] = time.monotonic()
    time.sleep(60)  # output that stands still at the end is one of the rests
    rests.stop()
    print("rests over 1 s (at, seconds):", [(round(at), round(took, 1)) for at, took in rests.all_longest], flush=True)
    print(world.expect_exactly(feed.stop(), seconds=300), flush=True)
    return {
        "kills": given.kills,
        "victims_without_shards": given.kills - with_shards,
        "median_life_seconds": round(statistics.median(lived), 1),
        "longest_rest_seconds": round(rests.longest_seconds, 1),
        "longest_rest_of_a_key_seconds": round(rests.longest_of_a_key_seconds, 1),
    }


def main() -> None:
    """Measure and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--every", default="5-12", help="seconds between two kills, from-to")
    parser.add_argument("--session", type=float, default=10.0, help="session_timeout in seconds")
    parser.add_argument("--driver", choices=["confluent", "kafka-python"], default="confluent")
    parser.add_argument(
        "--instance-ids", action="store_true", help="an instance that is started has the id of the dead one"
    )
    parser.add_argument("--per-second", type=int, default=400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--keep", type=Path, help="directory for the instances' logs")
    given = parser.parse_args()
    with own_server(KafkaServer) as kafka, own_server(MySQLServer) as mysql, tempfile.TemporaryDirectory() as scratch:
        directory = given.keep or Path(scratch)
        directory.mkdir(exist_ok=True)
        broker = OnKafka(
            kafka, f"storm_{secrets.token_hex(4)}", session_timeout=f"{given.session:g} s", driver=given.driver
        )
        world = ElasticWorld(broker, mysql, directory)
        try:
            figures = measured(world, given)
        finally:
            world.close()
    about = {"driver": given.driver, "session_seconds": given.session, "instance_ids": given.instance_ids}
    print(json.dumps(about | figures))


if __name__ == "__main__":
    main()
