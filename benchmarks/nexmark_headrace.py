"""Our side of benchmarks.nexmark: runs the queries that a JSON object on the command line names, and prints a line for each run.

CPU time is that of this process with its threads, and for Spark of the JVM and the Python workers too.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl

from benchmarks.measure import cpu_seconds
from benchmarks.nexmark_queries import COUNT_CHAR, text_of


@hr.udf(returns="int64", name="count_char", vectorized=True)
def count_char(text: pl.Series, character: pl.Series) -> pl.Series:
    """Count a character in a text, as the suite's Java function does: none in NULL."""
    return text.str.count_matches(character[0][0], literal=True).fill_null(0).cast(pl.Int64)


def job_of(name: str, given: dict[str, Any], events: str) -> Any:
    """Return the job of a query over a file of events, as if nothing had been defined before."""
    from headrace_sql.api import forget

    forget()
    text = text_of(
        name, Path(given["texts"]), output=given["output"],
        events=f"'connector' = 'filesystem', 'path' = '{events}', 'format' = 'json'",
        side_input=f"'connector' = 'filesystem', 'path' = '{given['side_input']}', 'format' = 'csv'",
    )  # fmt: skip
    return hr.sql(text, functions={COUNT_CHAR: count_char}, pipeline=name)


def run(name: str, given: dict[str, Any], events: str) -> dict[str, Any]:
    """Run a query once, from its text to the end of its input."""
    shutil.rmtree(given["output"], ignore_errors=True)
    options = {"master": "local[2]"} if given["backend"] == "spark" else {}
    begun, begun_cpu = time.perf_counter(), cpu_seconds()
    job_of(name, given, events).run(given["backend"], show_progress=False, **options)
    return {"seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - begun_cpu}


def sums(frame: pl.DataFrame) -> list[str | None]:
    """Return the number of rows, and by column the sum of its numbers or of the lengths of its texts; not of times."""
    found: list[str | None] = [str(frame.height)]
    for column in frame.get_columns():
        if column.dtype == pl.String:
            column = column.str.len_chars()
        if column.dtype.is_numeric():
            values = column.drop_nulls()
            total = sum(values.to_list(), Decimal(0)) if isinstance(values.dtype, pl.Decimal) else values.sum()
            found.append(str(total) if len(values) else None)
    return found


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for name in given["queries"]:
        if given.get("check"):
            result = job_of(name, given, given["events"]).collect(backend=given["backend"])
            print(json.dumps({"query": name, "sums": sums(result)}), flush=True)
            continue
        run(name, given, given["warm_up"])
        print(json.dumps({"query": name, **run(name, given, given["events"])}), flush=True)
