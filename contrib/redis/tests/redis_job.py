"""The job that tests kill: from streams into a stream.

python redis_job.py DIRECTORY SOURCE SINK end|start (options of the server as JSON on standard input)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr


def main(directory: str, source: str, sink: str, until: str) -> None:
    place: dict[str, Any] = json.load(sys.stdin)
    job = (
        hr.stream("test", "kills")
        .from_redis(source, **place, discovery_interval=0, trim=True, format="json", schema={"n": "int64"})
        .where("n % 10 <> 3")
        .to_redis(sink, **place, batch_size=40, flush_interval="10 ms")
    )
    options: dict[str, Any] = {
        "checkpoint": f"{directory}/checkpoint",
        "checkpoint_interval": "30 ms",
        "max_batch_records": 50,
    }
    if until == "end":
        print(job.run("light", show_progress=False, **options).state.value)
    else:
        job.start("light", show_progress=False, **options).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
