"""Records per second out of Kafka: the source by both drivers, against the least that one would write by hand.

    python -m benchmarks.kafka_connector [quick] [--records 1000000] [--rounds 5]

All in one run on one server: ``HEADRACE_TEST_KAFKA=host:port``, or one that is started for it. The bare loops count what
``consume(1000)`` of confluent-kafka and ``poll(max_records=1000)`` of kafka-python return, and look at nothing; of confluent's
there is one with the settings that the source uses, and one that also takes from each message what the source gives: body,
offset, time. Server and client share the machine, so besides records per second of wall time there is the client's own CPU
time. Each way is measured in turn; a ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin
from headrace.interfaces.backend import JobReport
from headrace.interfaces.source import EARLIEST
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource

from tests.servers.kafka import KafkaServer
from tests.servers.sharing import own_server

PARTITIONS = 4
RECORD_BYTES = 200
#: kafka-python takes so many times as long.
_SLOWER = 5
_WAIT = timedelta(milliseconds=100)
#: What the source sets for confluent-kafka, and a loop can set as well: its default rests for a second when much waits.
TUNED: dict[str, Any] = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100}


@dataclass(frozen=True)
class Took:
    """What one way has taken in one round."""

    seconds: float
    cpu_seconds: float


@contextlib.contextmanager
def _server() -> Iterator[KafkaServer]:
    address = os.environ.get(KafkaServer.variable)
    if address:
        yield KafkaServer.from_variable(address)
    else:
        with own_server(KafkaServer) as server:
            yield server


def make_topic(servers: str, records: int) -> str:
    """Create a topic and fill it."""
    topic = f"benchmark-{secrets.token_hex(4)}"
    admin: Any = ck_admin.AdminClient({"bootstrap.servers": servers})
    [created] = admin.create_topics([ck_admin.NewTopic(topic, PARTITIONS, 1)]).values()  # type: ignore[attr-defined]
    created.result()
    producer: Any = ck.Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "all"})
    each = records // PARTITIONS
    for partition in range(PARTITIONS):
        for begin in range(0, each, 10_000):
            bodies = [b"%0*d" % (RECORD_BYTES, number) for number in range(begin, min(each, begin + 10_000))]
            producer.produce_batch(topic, [{"value": body} for body in bodies], partition=partition)
            producer.flush()
    return topic


def bare_confluent(servers: str, topic: str, records: int, *, looks: bool = False, **settings: Any) -> None:
    """Read with ``consume(1000)`` and count; ``looks``: and take from each message what the source gives."""
    properties = {"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, **settings}
    consumer: Any = ck.Consumer(properties)
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    count = 0
    while count < records:
        messages = consumer.consume(1000, 0.1)
        count += len(messages)
        if looks:
            taken = []
            for message in messages:
                if message.error() is None:
                    taken.append((message.partition(), message.offset(), message.timestamp()[1], message.value()))
    consumer.close()


def bare_kafka_python(servers: str, topic: str, records: int) -> None:
    """Read with ``poll(max_records=1000)`` and count."""
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    partitions = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    count = 0
    while count < records:
        count += sum(map(len, consumer.poll(timeout_ms=100, max_records=1000).values()))
    consumer.close()


def source(servers: str, topic: str, records: int, *, driver: str) -> None:
    """Read all partitions in turn through the source's readers, as the light backend does."""
    options = {"topic": topic, "servers": servers, "driver": driver}
    made = KafkaSource(KafkaSourceSettings.of(options, plugin="kafka"))
    readers = [made.open(queue, EARLIEST) for queue in made.queues()]
    count = 0
    while count < records:
        before = count
        for reader in readers:
            batch = reader.poll(10_000, timedelta(0))
            count += 0 if batch is None else len(batch)
        if count == before:
            batch = readers[0].poll(10_000, _WAIT)
            count += 0 if batch is None else len(batch)
    for reader in readers:
        reader.close()
    made.close()


def light(servers: str, topic: str, records: int, *, driver: str) -> None:
    """Run a job that reads the topic and drops everything: bodies become a column, and pass a condition."""
    import headrace as hr

    report: JobReport = (
        hr.stream("benchmark", "kafka")
        .from_kafka(topic, servers=servers, driver=driver, group=f"{topic}-{secrets.token_hex(4)}", format="raw")
        .where("line = 'nothing'")
        .print()
        .run("light", show_progress=False)
    )
    if report.records_read != records:
        raise AssertionError(f"read {report.records_read} records instead of {records}")


def timed(action: Callable[[], None]) -> Took:
    """Measure one call."""
    cpu, begun = time.process_time(), time.perf_counter()
    action()
    return Took(time.perf_counter() - begun, time.process_time() - cpu)


def ratio(of: list[Took], to: list[Took]) -> float:
    """Return how many times as fast ``of`` is as ``to``: the median over the rounds."""
    return round(statistics.median(base.seconds / one.seconds for one, base in zip(of, to, strict=True)), 2)


def compare(servers: str, topic: str, records: int, rounds: int, driver: str) -> dict[str, Any]:
    """Measure one driver: the bare loop, the source, a job on the light backend."""
    if driver == "confluent":
        ways = {
            "bare": partial(bare_confluent, servers, topic, records),
            "bare_tuned": partial(bare_confluent, servers, topic, records, **TUNED),
            "bare_tuned_looking": partial(bare_confluent, servers, topic, records, looks=True, **TUNED),
        }
    else:
        ways = {"bare": partial(bare_kafka_python, servers, topic, records)}
    bare = list(ways)
    ways |= {
        "source": partial(source, servers, topic, records, driver=driver),
        "light": partial(light, servers, topic, records, driver=driver),
    }
    found: dict[str, list[Took]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            took = timed(way)
            if turn:  # the first one warms up
                found[name].append(took)
    figures: dict[str, Any] = {"driver": driver, "records": records, "rounds": rounds}
    for name, all_took in found.items():
        figures[f"{name}_records_per_second"] = round(records / statistics.median(one.seconds for one in all_took))
        cpu_seconds = statistics.median(one.cpu_seconds for one in all_took)
        figures[f"{name}_cpu_microseconds_per_record"] = round(cpu_seconds / records * 1e6, 2)
    for name in ("source", "light"):
        figures |= {f"{name}_to_{base}": ratio(found[name], found[base]) for base in bare}
    return figures


def run(records: int, rounds: int) -> list[dict[str, Any]]:
    """Return the figures of both drivers."""
    with _server() as server:
        figures = []
        for driver, count in (("confluent", records), ("kafka-python", records // _SLOWER)):
            topic = make_topic(server.bootstrap, count)
            figures.append(compare(server.bootstrap, topic, count, rounds, driver))
        return figures


def main() -> None:
    """Measure and print a line of JSON for each driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quick", nargs="?", choices=["quick"])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="kafka")
    quick = arguments.quick is not None
    for figures in run(200_000 if quick else arguments.records, 3 if quick else arguments.rounds):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
