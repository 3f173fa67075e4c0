"""The job that the tests of changes kill: a table that comes as changes through Kafka, copied to MySQL and Elasticsearch, and summed.

    python changes_job.py '<json of build()'s arguments, "backend", and "run": options of the run>'

It says ``started``, and stops gracefully on SIGTERM.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr

from tests.job_programs import run_given

SCHEMA = {"id": "int64", "who": "string", "n": "int64"}


def build(
    servers: str,
    topic: str,
    options: dict[str, Any],
    mysql: dict[str, Any],
    url: str | None,
    index: str,
    changes: str | None,
) -> hr.Job:
    """Return the job. ``options``: of the format. ``url``: of Elasticsearch; ``changes``: a topic for the sums as changes."""
    goods = hr.stream("chaos", "changes").from_kafka(
        topic, servers=servers, schema=SCHEMA, key="id", session_timeout="6 s", metadata_interval="2 s", **options
    )
    sums = goods.where("who IS NOT NULL").key_by("who").agg(n="count(*)", s="sum(n)", most="max(n)")
    quickly = {"batch_size": 50, "flush_interval": "50 ms"}
    job: hr.Job = goods.to_mysql("goods", mode="upsert", name="goods", **mysql, **quickly)
    job = job.also(sums.to_mysql("sums", mode="upsert", name="sums", **mysql, **quickly))
    if url is not None:
        job = job.also(goods.where("n > 20").to_elasticsearch(index, url=url, id="id", name="documents", **quickly))
    if changes is not None:
        written = {"format": "debezium-json", "key": "who", "delivery": "exactly_once"}
        job = job.also(sums.to_kafka(changes, servers=servers, name="changes", **written, **quickly))
    return job


if __name__ == "__main__":
    run_given(build, json.loads(sys.argv[1]))
