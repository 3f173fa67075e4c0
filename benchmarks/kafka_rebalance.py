"""How long partitions rest when instances of a job on the light backend die, stop, or join, under load.

    python -m benchmarks.kafka_rebalance [--rounds 3] [--per-second 2000] [--driver confluent]

Two instances copy numbers from a topic of four partitions into another topic, in transactions, with checkpoints every second.
What is measured is seen from outside, in the target: for each partition, the longest time between two of its records
around the event. ``killed``: ``kill -9`` of one instance, which the brokers notice after ``session_timeout`` (6 s here,
10 s by default). ``stopped``: SIGTERM. ``joined``: a third instance starts; the partitions that it gets are finished first by those
who had them (processed, flushed, committed), which is the time to revoke them. Partitions that do not move rest as well where the driver
stops the world (kafka-python). ``quiet`` is the same gap while nothing happens: what the measurement itself adds.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from tests.servers.kafka import KafkaServer
from tests.servers.sharing import own_server

sys.path.append(str(Path(__file__).resolve().parents[1] / "connectors" / "kafka" / "tests"))
INSTANCES: Any = importlib.import_module("instances")
WORLD: Any = importlib.import_module("kafka_world")

PARTITIONS = 4
SETTLE_SECONDS = 6.0
AFTER_SECONDS = {"quiet": 4.0, "killed": 14.0, "stopped": 8.0, "joined": 12.0}


class Arrivals:
    """Notes, in a thread, when records of each source partition come out of the target."""

    def __init__(self, servers: str, target: str, partition_of: Callable[[int], int]) -> None:
        properties = {"bootstrap.servers": servers, "group.id": "arrivals", "fetch.wait.max.ms": 10}
        self._consumer: Any = ck.Consumer({**properties, "isolation.level": "read_committed"})
        self._consumer.assign([ck.TopicPartition(target, partition, 0) for partition in range(2)])
        self._partition_of = partition_of
        self._stopping = threading.Event()
        self.times: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def gaps(self, begun: float) -> list[float]:
        """Return each partition's longest rest since ``begun``, shortest first."""
        found = []
        for times in self.times.values():
            last = max((one for one in list(times) if one < begun), default=begun)
            seen = [last, *(one for one in list(times) if one >= begun)]
            found.append(max((b - a for a, b in itertools.pairwise(seen)), default=float("inf")))
        return sorted(found)

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                number = json.loads(message.value())["n"]
                self.times[self._partition_of(number)].append(time.monotonic())


def measure(server: KafkaServer, driver: str, per_second: int) -> dict[str, list[float]]:
    """One round: the rests of all partitions, by event."""
    world = WORLD.KafkaWorld(server.bootstrap)
    source, target = (f"{name}-{secrets.token_hex(4)}" for name in ("source", "target"))
    world.create_topic(source, PARTITIONS)
    world.create_topic(target, 2)
    numbers = INSTANCES.Numbers(world, source, PARTITIONS, per_second=per_second)
    arrivals = Arrivals(server.bootstrap, target, lambda number: number // numbers.count % PARTITIONS)
    options: dict[str, Any] = {"servers": server.bootstrap, "driver": driver, "source": source, "target": target}
    options["run"] = {"checkpoint_interval": "1 s", "max_batch_records": 10_000}
    instances = [INSTANCES.Instance(options), INSTANCES.Instance(options)]
    found: dict[str, list[float]] = {}

    def event(name: str, act: Callable[[], object]) -> None:
        time.sleep(SETTLE_SECONDS)
        begun = time.monotonic()
        act()
        time.sleep(AFTER_SECONDS[name])
        found[name] = arrivals.gaps(begun)

    def join() -> None:
        instances.append(INSTANCES.Instance(options))
        instances[-1].wait_until_started()

    try:
        numbers.start()
        for instance in instances:
            instance.wait_until_started()
        time.sleep(SETTLE_SECONDS)
        event("quiet", lambda: None)
        event("joined", join)
        event("stopped", instances[2].stop)
        event("killed", instances[1].kill)
    finally:
        numbers.stop()
        arrivals.stop()
        for instance in instances:
            instance.close()
        world.close()
    return found


def main() -> None:
    """Measure and print a line of JSON: medians over the rounds, in seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-second", type=int, default=2000)
    parser.add_argument("--driver", default="confluent", choices=["confluent", "kafka-python"])
    arguments = parser.parse_args()
    rounds = []
    with own_server(KafkaServer) as server:
        for _ in range(arguments.rounds):
            rounds.append(measure(server, arguments.driver, arguments.per_second))
            print(json.dumps({name: [round(one, 2) for one in gaps] for name, gaps in rounds[-1].items()}), flush=True)
    figures: dict[str, Any] = {"driver": arguments.driver, "records_per_second": arguments.per_second}
    for name in AFTER_SECONDS:
        figures[f"{name}_longest_seconds"] = round(statistics.median(one[name][-1] for one in rounds), 2)
        figures[f"{name}_shortest_seconds"] = round(statistics.median(one[name][0] for one in rounds), 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
