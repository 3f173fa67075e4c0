"""A job that copies one topic to another, run by tests also as a program: ``python copy_job.py '<json of copy()'s arguments>'``."""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr
from headrace.jobs.job import Job

SCHEMA = {"number": "int64", "text": "string"}


def copy(name_servers: str, source: str, target: str, delivery: str = "at_least_once", **options: Any) -> Job:
    """Return a job that copies ``source`` to ``target``; ``options`` are the source's.

    What a test looks at is the column ``number``; ``text`` is changed, so that the operators do something.
    """
    stream = hr.stream("rocketmq_tests", "copy").from_rocketmq(
        source, name_servers=name_servers, format="json", schema=SCHEMA, request_timeout="3 s", **options
    )
    job: Job = stream.with_columns(text="upper(text)").to_rocketmq(
        target,
        name_servers=name_servers,
        key="number",
        delivery=delivery,
        request_timeout="3 s",
        flush_interval="100 ms",
    )
    return job


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run_options = {"backend": "light", "checkpoint_interval": "300 ms", **given.pop("run", {})}
    handle = copy(**given).start(**run_options)
    print("started", flush=True)
    sys.stdin.read()  # until the test closes it
    handle.stop()
