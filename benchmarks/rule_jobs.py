"""Whole jobs with rules: from a real Kafka topic or from files, on light and on Spark, with 41 and 1,000 rules.

    python -m benchmarks.rule_jobs [--messages 200000] [--counts 41 1000]        # everything, as JSON lines
    python -m benchmarks.rule_jobs run BACKEND kafka|file COUNT PLACE            # one job, as JSON

The topic has four partitions, the events also lie in two files; what matches goes to files. Everything counts, from building
the job and compiling its rules to the last row on disk. On Spark (``local[2]``) the job is run twice in one session and the
second run counts; light runs on one core, twice as well. CPU seconds are those of all processes of the job, without the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_seconds, measure
from benchmarks.rule_sets import COLUMNS, rule_set

PARTITIONS = 4
SETTINGS = (("light", "kafka"), ("spark", "kafka"), ("light", "file"), ("spark", "file"))


def run(backend: str, source: str, count: int, place: str) -> dict[str, Any]:
    """Run a job twice and return what the second run took. ``place``: ``SERVERS/TOPIC``, or the files' directory."""
    import headrace as hr

    options: dict[str, Any] = {"master": "local[2]"} if backend == "spark" else {}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as out:
        for _ in range(2):
            shutil.rmtree(out)
            pipe = hr.stream("benchmark", f"rules{count}")
            if source == "kafka":
                servers, _, topic = place.partition("/")
                stream = pipe.from_kafka(
                    topic, servers=servers, group=f"{topic}-{secrets.token_hex(4)}", format="json", schema=COLUMNS
                )
            else:
                stream = pipe.from_file(f"{place}/events-*.ndjson", format="json", schema=COLUMNS)
            job = stream.rules(rule_set("selective", count)).to_file(out, format="json")
            begun, begun_cpu = time.perf_counter(), cpu_seconds()
            report = job.run(backend, show_progress=False, **options)
            figures = {
                "seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - begun_cpu,
                "read": report.records_read, "rows": sum(report.rows_written.values()),
            }  # fmt: skip
    return figures


def fill(servers: str, topic: str, directory: Path) -> int:
    """Put the events of the files into a new topic; return how many there are."""
    import confluent_kafka as ck
    from confluent_kafka import admin as ck_admin

    admin: Any = ck_admin.AdminClient({"bootstrap.servers": servers})
    [created] = admin.create_topics([ck_admin.NewTopic(topic, PARTITIONS, 1)]).values()  # type: ignore[attr-defined]
    created.result()
    producer: Any = ck.Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "all"})
    count = 0
    for path in sorted(directory.glob("events-*.ndjson")):
        bodies = path.read_bytes().splitlines()
        for start in range(0, len(bodies), 5_000):
            messages = [{"value": body} for body in bodies[start : start + 5_000]]
            producer.produce_batch(topic, messages, partition=(start // 5_000) % PARTITIONS)
            producer.flush()
        count += len(bodies)
    return count


def everything(messages: int, counts: list[int], kept: Path | None = None) -> list[dict[str, Any]]:
    """Run all jobs against a Kafka server that is started for them; return their figures."""
    from demo.security_events import write
    from tests.servers.kafka import KafkaServer
    from tests.servers.sharing import own_server

    found = []
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place, own_server(KafkaServer) as server:
        write(Path(place), messages, 2, 7, 0)
        servers, topic = server.to_variable(), "benchmark-rules"
        fill(servers, topic, Path(place))
        for count in counts:
            for backend, source in SETTINGS:
                where = f"{servers}/{topic}" if source == "kafka" else place
                one = backend == "light"
                environment = {"POLARS_MAX_THREADS": "1"} if one else None
                taken = measure("benchmarks.rule_jobs", "run", backend, source, str(count), where,
                                cores=[0] if one else [0, 1], environment=environment)  # fmt: skip
                figures = {"backend": backend, "source": source, "rules": count, **taken.figures}
                figures["load"] = os.getloadavg()[0]
                assert figures["read"] == messages, figures
                print(json.dumps(figures), flush=True)
                found.append(figures)
    if kept is not None:
        kept.write_text("".join(json.dumps(one) + "\n" for one in found))
    return found


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        backend, source, count, place = sys.argv[2:]
        print(json.dumps(run(backend, source, int(count), place)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--counts", type=int, nargs="*", default=[41, 1_000])
    given = parser.parse_args()
    everything(given.messages, given.counts)


if __name__ == "__main__":
    main()
