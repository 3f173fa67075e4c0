"""The job that the Elasticsearch tests kill: numbers from a topic of Kafka into an index.

    python kafka_elasticsearch_job.py '<json of build()'s arguments, "backend", and "run": options of the run>'

It says ``started``, and stops gracefully on SIGTERM.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr

from tests.job_programs import run_given

ROW = {"n": "int64", "partition": "string", "position": "int64", "copy": "int64"}


def copies(n: int) -> int:
    """Return how many documents a number becomes: some none, some two, to have more than one index."""
    return 0 if n % 7 == 3 else 2 if n % 10 == 0 else 1


def copied(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "copy": copy} for copy in range(copies(row["n"]))]


def build(servers: str, topic: str, url: str, index: str) -> hr.Job:
    """Return the job. Documents tell which record they come from; nothing but their place in the topic is their id."""
    made: hr.Job = (
        hr.stream("chaos", "kafka-elasticsearch")
        .from_kafka(
            topic,
            servers=servers,
            format="json",
            schema={"n": "int64"},
            metadata={"partition": "queue", "position": "offset"},
            session_timeout="6 s",
            metadata_interval="2 s",
        )
        .where("n % 7 <> 3")
        .flat_map(copied, schema=ROW)
        .dead_letters(lambda bad: bad.to_elasticsearch(f"{index}-dead", url=url, create_index=True))
        .to_elasticsearch(index, url=url, batch_size=200, request_rows=70, flush_interval="50 ms")
    )
    return made


if __name__ == "__main__":
    run_given(build, json.loads(sys.argv[1]))
