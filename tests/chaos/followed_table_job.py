"""The job that tests kill: the changes of a table into another one, by verbs or by SQL.

python followed_table_job.py DIRECTORY BACKEND UNTIL (options as JSON on standard input)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headrace as hr

_ON_SPARK = {"shards": 2, "master": "local[2]"}
#: Small steps, so that kills meet many of them; the last run, which is not killed, needs none.
STEPS: dict[str, dict[str, Any]] = {
    "light": {"checkpoint_interval": "30 ms", "max_batch_records": 70},
    "spark": {"max_micro_batch_records": 400, **_ON_SPARK},
}
WHOLE: dict[str, dict[str, Any]] = {"light": {}, "spark": _ON_SPARK}
#: The same of sinks, as options and as a text has them.
SMALL_BATCHES = {"batch_size": 40, "flush_interval": "10 ms"}
SMALL_BATCHES_IN_SQL = "'batch_size' = '40', 'flush_interval' = '10 ms'"


def main(directory: str, backend: str, until: Any) -> None:
    options = json.load(sys.stdin)
    run: dict[str, Any] = {"checkpoint": f"{directory}/checkpoint", "until": until, "show_progress": False}
    run |= (STEPS if until is None else WHOLE)[backend]
    if "sql" in options:
        text = (
            options["sql"] if until is None else options["sql"].replace(SMALL_BATCHES_IN_SQL, "'batch_size' = '5000'")
        )
        report = hr.sql(text).run(backend, **run)
    else:
        source, sink = options["source"], options["sink"]
        stream = getattr(hr.stream("test", "changes"), f"from_{source.pop('plugin')}")(**source)
        if options.get("grouped"):
            stream = stream.key_by("g").agg(n="count(*)", total="sum(v)")
        sink |= {"mode": "upsert", **(SMALL_BATCHES if until is None else {})}
        report = getattr(stream, f"to_{sink.pop('plugin')}")(**sink).run(backend, **run)
    print(report.state.value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], None if sys.argv[3] == "never" else sys.argv[3])
