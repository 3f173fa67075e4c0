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

from tests.job_programs import windows_and_pairs

EVENTS = {"k": "string", "n": "int64", "ts": "timestamp"}


def build(source: str, topic: str, source_options: dict[str, Any], mysql: dict[str, Any]) -> hr.Job:
    """Return the job: windows of ten seconds by key, and pairs of an even and an odd event of a key within a second."""
    stream = hr.stream("chaos", topic)
    options = {"format": "json", "schema": EVENTS, **source_options}
    events = stream.from_kafka(topic, **options) if source == "kafka" else stream.from_rocketmq(topic, **options)
    events = events.where("k <> 'last'")
    return windows_and_pairs(events, mysql)


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
