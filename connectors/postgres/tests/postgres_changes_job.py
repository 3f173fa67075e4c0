"""The job that tests kill: the changes of a table into another one, by verbs or by SQL.

python postgres_changes_job.py DIRECTORY BACKEND UNTIL (options of source and sink as JSON on standard input)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr


def main(directory: str, backend: str, until: Any) -> None:
    options = json.load(sys.stdin)
    more: dict[str, Any] = {"checkpoint": f"{directory}/checkpoint", "until": until, "show_progress": False}
    if backend == "light":
        more |= {"checkpoint_interval": "30 ms", "max_batch_records": 70}
    if "sql" in options:
        report = hr.sql(options["sql"]).run(backend, **more)
        print(report)
        return
    stream = hr.stream("test", "changes").from_postgres_changes(**options["source"])
    if options.get("grouped"):
        stream = stream.key_by("g").agg(n="count(*)", total="sum(v)")
    report = stream.to_postgres(**options["sink"], mode="upsert", batch_size=40, flush_interval="10 ms").run(
        backend, **more
    )
    print(report.state.value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], None if sys.argv[3] == "never" else sys.argv[3])
