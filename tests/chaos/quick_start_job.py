"""Running counts by key into a table, and each row with its number into another: shards that move begin before their state is there.

    python -m tests.chaos.quick_start_job '<JSON: source, topic, source_options, mysql, run>'

It says ``started``, and stops gracefully when its standard input ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import headrace as hr

from tests.chaos.elastic_job import main


def numbered(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
    """Number the rows of each key."""
    state["seen"] = state.get("seen", 0) + 1
    yield {"k": row["k"], "number": state["seen"]}


def build(source: str, topic: str, source_options: dict[str, Any], mysql: dict[str, Any]) -> hr.Job:
    """Return the job. A message names the keys from ``first`` to before ``last``, ``step`` apart."""
    stream = hr.stream("chaos", topic)
    schema = {"first": "int64", "last": "int64", "step": "int64"}
    options = {"format": "json", "schema": schema, **source_options}
    ranges = stream.from_kafka(topic, **options) if source == "kafka" else stream.from_rocketmq(topic, **options)
    keys = ranges.flat_map(
        lambda row: [{"k": k} for k in range(row["first"], row["last"], row["step"])], schema={"k": "int64"}
    ).key_by("k")
    into = {**mysql, "flush_interval": "50 ms", "batch_size": 2_000}
    written: hr.Job = keys.agg(n="count(*)", s="sum(k)").to_mysql(table="totals", mode="upsert", **into)
    return written.also(
        keys.process(numbered, schema={"k": "int64", "number": "int64"}).to_mysql(table="numbers", **into)
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), build)
