"""The job that the RocketMQ tests kill: from a topic to a topic, and to files if wanted.

    python -m tests.chaos.rocketmq_job '<json of build()'s arguments, and "run": options of the run>'

It says ``started``, and stops gracefully when its standard input ends; with ``"until": "end"`` among the options it ends by
itself. Its log tells when queues were given up and taken.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import headrace as hr


def build(name_servers: str, source: str, target: str, group: str, instance: str, files: str | None = None) -> hr.Job:
    """Return the job. Rows of the target tell which queue they came from, and by which instance."""
    rows = (
        hr.stream("chaos", "rocketmq")
        .from_rocketmq(
            source,
            name_servers=name_servers,
            group=group,
            format="json",
            schema={"id": "int64"},
            metadata={"came_from": "queue"},
            request_timeout="3 s",
        )
        .where("id % 7 <> 3")
        .with_columns(instance=f"'{instance}'")
    )
    job: hr.Job = rows.to_rocketmq(
        target,
        name_servers=name_servers,
        delivery="idempotent",
        request_timeout="3 s",
        flush_interval="20 ms",
    )
    return job if files is None else job.also(rows.to_file(files, format="json", flush_interval="20 ms"))


def main(given: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    run = given.pop("run")
    if run.pop("until", None) == "end":
        build(**given).run(**run)
        return
    handle = build(**given).start(**run)
    print("started", flush=True)
    sys.stdin.read()  # until the test closes it
    handle.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
