"""One instance of a job, as a process of its own: ``python instance.py OPTIONS``, until SIGTERM.

OPTIONS is a JSON object: backend, servers, driver, source (topic), target (topic), and more options of source, sink and
run; with ``mysql``, options of ``to_mysql``, into a table as well. Copies numbers exactly once. Prints a line when it
has started, and its report when it has stopped.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import headrace as hr

from tests.job_programs import log_warnings, run_until_stopped


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    log_warnings()
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    given = {"servers": options["servers"], "driver": options["driver"]}
    stream = hr.stream("instances", "copy").from_kafka(
        options["source"],
        format="json",
        schema={"n": "int64"},
        **{"session_timeout": "6 s", "metadata_interval": "2 s", **given, **options.get("source_options", {})},
    )
    job = stream.to_kafka(
        options["target"],
        delivery="exactly_once",
        flush_interval="50 ms",
        delivery_timeout="5 s",
        batch_size=500,
        **given,
        **options.get("sink_options", {}),
    )
    if "mysql" in options:
        job = job.to_mysql(**options["mysql"], flush_interval="50 ms", batch_size=500)
    run_until_stopped(job, options.get("backend", "light"), {"max_batch_records": 200, **options.get("run", {})})


if __name__ == "__main__":
    main()
