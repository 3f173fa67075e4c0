"""The keyed job whose instances the elastic tests start, stop and kill: windows by key from a broker into a table.

    python -m tests.chaos.elastic_job '<JSON: source, source_options, mysql, run>'

It says ``started``, and stops gracefully when its standard input ends. Its log tells when shards came and went.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import headrace as hr

EVENTS = {"k": "string", "n": "int64", "ts": "timestamp"}


def build(source: str, topic: str, source_options: dict[str, Any], mysql: dict[str, Any]) -> hr.Job:
    """Return the job: windows of ten seconds by key, and pairs of an even and an odd event of a key within a second."""
    stream = hr.stream("chaos", topic)
    options = {"format": "json", "schema": EVENTS, **source_options}
    events = stream.from_kafka(topic, **options) if source == "kafka" else stream.from_rocketmq(topic, **options)
    events = events.where("k <> 'last'")
    counts = events.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum(n)")
    even, odd = events.where("n % 2 = 0").select("k", "ts", l="n"), events.where("n % 2 = 1").select("k", "ts", r="n")
    pairs = even.join(odd, "k", within=("-1 s", "1 s"), time="ts").select("k", "l", "r")
    options = {**mysql, "flush_interval": "50 ms", "batch_size": 500}
    written: hr.Job = counts.select("k", "window_start", "n", "s").to_mysql(table="counts", **options)
    return written.also(pairs.to_mysql(table="pairs", **options))


def main(given: dict[str, Any], build: Callable[..., hr.Job] = build) -> None:
    """Run a job until standard input ends; ``given`` has its options, and those of its run."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    run = given.pop("run")
    handle = build(**given).start(run.pop("backend", "light"), **run)
    print("started", flush=True)
    sys.stdin.read()  # until the test closes it
    handle.stop(timedelta(seconds=100))
    handle.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
