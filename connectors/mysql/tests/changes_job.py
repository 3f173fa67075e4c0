"""The job that tests kill: the changes of a table into another one.

python changes_job.py DIRECTORY BACKEND UNTIL (options of source and sink as JSON on standard input)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr


def main(directory: str, backend: str, until: Any) -> None:
    options = json.load(sys.stdin)
    stream = hr.stream("test", "changes").from_mysql_changes(**options["source"])
    if options.get("grouped"):
        stream = stream.key_by("g").agg(n="count(*)", total="sum(v)")
    report = stream.to_mysql(**options["sink"], mode="upsert", batch_size=40, flush_interval="10 ms").run(
        backend,
        until=until,
        show_progress=False,
        checkpoint=f"{directory}/checkpoint",
        **({"checkpoint_interval": "30 ms", "max_batch_records": 70} if backend == "light" else {}),
    )
    print(report.state.value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], None if sys.argv[3] == "never" else sys.argv[3])
