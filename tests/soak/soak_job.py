"""The jobs of a soak: ``python -m tests.soak.soak_job '<JSON: job, and what it needs>'``.

``windows``: windows and a join, Kafka to MySQL, in instances that share shards. ``rules``: rules that are replaced, Kafka to RocketMQ, with
worker processes. ``documents``: Kafka to Elasticsearch, on Spark. Each says ``started``, and stops gracefully when its standard input ends.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import headrace as hr

from tests.job_programs import windows_and_pairs
from tests.soak.model import copies

EVENTS = {"k": "string", "n": "int64", "ts": "timestamp", "v": "int64"}
PLACE = {"partition": "queue", "position": "offset"}


def _events(name: str, kafka: dict[str, Any], **options: Any) -> hr.Stream:
    topic = kafka.pop("topic")
    return hr.stream("soak", name).from_kafka(topic, format="json", schema=EVENTS, **kafka, **options)


def windows(kafka: dict[str, Any], mysql: dict[str, Any]) -> hr.Job:
    events = _events("windows", kafka).where("k <> 'last'")
    return windows_and_pairs(events, mysql)


def rules(kafka: dict[str, Any], rocketmq: dict[str, Any], rules_file: str) -> hr.Job:
    found = _events("rules", kafka, metadata=PLACE).where("k <> 'last'").rules(rules_file, reload_interval="2 s")
    rows = found.select("n", "partition", "position", rule="rule_ids[1]")
    written: hr.Job = rows.to_rocketmq(**rocketmq, delivery="idempotent", request_timeout="3 s", flush_interval="20 ms")
    return written


def copied(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"n": row["n"], "v": row["v"], "copy": copy} for copy in range(copies(row["n"]))]


def documents(kafka: dict[str, Any], elasticsearch: dict[str, Any]) -> hr.Job:
    rows = _events("documents", kafka).where("k <> 'last'").select("n", "v")
    made = rows.flat_map(copied, schema={"n": "int64", "v": "int64", "copy": "int64"})
    written: hr.Job = made.to_elasticsearch(**elasticsearch, batch_size=500, flush_interval="50 ms")
    return written


JOBS: dict[str, Callable[..., hr.Job]] = {"windows": windows, "rules": rules, "documents": documents}


def main(given: dict[str, Any]) -> None:
    """Run a job until standard input ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    run = given.pop("run")
    handle = JOBS[given.pop("job")](**given).start(run.pop("backend"), **run)
    print("started", flush=True)
    sys.stdin.read()
    handle.stop(timedelta(seconds=200))
    handle.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
