"""Runs SQL queries in PyFlink, many in one process; see tests.differential.streams.flink. Runs in an environment of its own.

    python flink_job.py QUERIES.json

``QUERIES.json`` is a list of ``{"name", "statements", "query"}``, of which the query gives one column of text. For each query a JSON line
is printed: its ``name`` and the ``rows`` that are there in the end, or why it was refused (``error``). Names of tables and views are
unique over all of them: so many at a time are one job, as most of the time goes into starting jobs. A watermark is sent with every row.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc"
from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment


def environment() -> Any:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "1",
        "rest.port": "0",
        "pipeline.auto-watermark-interval": "0 ms",
        "taskmanager.memory.network.max": "64 mb",
        "table.exec.source.idle-timeout": "0 ms",
    }.items():
        made.get_config().set(name, value)
    return made


#: Queries in one job.
TOGETHER = 25


def run(made: Any, queries: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the rows of queries as they are in the end."""
    text = " UNION ALL ".join(f"SELECT '{query['name']}' AS name, texts FROM ({query['query']})" for query in queries)
    there: Counter[tuple[str, str]] = Counter()
    with made.execute_sql(text).collect() as rows:
        for row in rows:
            there[row[0], row[1]] += 1 if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    found: dict[str, list[str]] = {query["name"]: [] for query in queries}
    for (name, texts), count in there.items():
        found[name] += [texts] * count
    return found


def accepted(made: Any, query: dict[str, Any]) -> str:
    """Make the tables of a query known and let it be planned; return why that fails, or an empty text."""
    try:
        for statement in query["statements"]:
            made.execute_sql(statement)
        made.explain_sql(query["query"])
    except Exception as error:  # whatever Flink raises is told
        return "\n".join(line for line in str(error).splitlines() if "at " not in line[:8])[:1500]
    return ""


def main(path: str) -> None:
    queries = json.loads(Path(path).read_text(encoding="utf-8"))
    for begin in range(0, len(queries), TOGETHER):
        made = environment()
        begun = time.perf_counter()
        left = []
        for query in queries[begin : begin + TOGETHER]:
            if reason := accepted(made, query):
                print(json.dumps({"name": query["name"], "error": reason}), flush=True)
            else:
                left.append(query)
        planned = time.perf_counter() - begun
        try:
            for name, rows in (run(made, left) if left else {}).items():
                print(json.dumps({"name": name, "rows": rows}), flush=True)
        except Exception as error:  # a fault while they run: told of each, as it cannot be known whose it is
            for query in left:
                print(json.dumps({"name": query["name"], "failed": str(error)[:1500]}), flush=True)
        print(
            f"planned in {planned:.0f} s, ran in {time.perf_counter() - begun - planned:.0f} s",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1])
