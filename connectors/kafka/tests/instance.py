"""One instance of a job, as a process of its own: ``python instance.py OPTIONS``, until SIGTERM.

OPTIONS is a JSON object: backend, servers, driver, source (topic), target (topic), and more options of source, sink and
run; with ``mysql``, options of ``to_mysql``, into a table as well. Copies numbers exactly once. Prints a line when it
has started, and its report when it has stopped.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from typing import Any

import headrace as hr


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
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
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    backend = options.get("backend", "light")
    run = {"checkpoint_interval": "300 ms"} if backend == "light" else {}
    handle = job.start(backend, **{"max_batch_records": 200, **run, **options.get("run", {})})
    print("started", flush=True)
    while not stop.wait(0.05) and handle.status().error is None:
        pass
    handle.stop()
    print(handle.wait(), flush=True)


if __name__ == "__main__":
    main()
