"""What many rules cost: message bodies in, rows with the ids of the rules that match out, on one core.

    python -m benchmarks.rules [--messages 100000] [--rounds 3]   # everything: tables of docs/benchmarks-rules.md, and its plot
    python -m benchmarks.rules measure ENGINE KIND COUNT MESSAGES   # one measurement, as JSON

Every measurement runs in a process of its own on one pinned core, and takes the time of ``orjson.loads`` of the same bodies
in the same process: ratios are of CPU time, of the best round of each. All engines must find the same number of matches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.measure import ROOT, measure
from benchmarks.python_rules import python_rules
from benchmarks.rule_sets import COLUMNS, rule_set
from demo.security_events import events

BATCH = 10_000
PAGE = ROOT / "docs" / "benchmarks-rules.md"
PLOT = ROOT / "docs" / "benchmarks-rules.svg"
COUNTS = (41, 1_000, 10_000)
KINDS = ("selective", "numbers", "fragments")
#: What the peers are given, so that each takes seconds: they are slower by orders of magnitude.
PEER_MESSAGES = {
    "python": {41: 20_000, 1_000: 2_000},
    "polars": {41: 20_000, 1_000: 10_000},
    "spark": {41: 40_000, 1_000: 5_000},
}

Run = Callable[[], int]


def headrace(bodies: Sequence[bytes], kind: str, count: int, *, raw: bool) -> tuple[Run, Callable[[], dict[str, Any]]]:
    """Return what takes all bodies through a lane (decode, rules), and what tells about its work."""
    import headrace as hr
    from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
    from headrace.runtime.lane import Lane
    from headrace.testing import MemorySink, MemorySource

    stream = hr.stream("benchmark", "rules").from_(MemorySource({"q": []}), format="json", schema=COLUMNS)
    plan = stream.rules(rule_set(kind, count), raw_scan=raw).to(MemorySink()).plan()
    source = next(iter(plan.sources.values()))
    lane = Lane(plan, source, Queue("q", source="memory"))
    starts = range(0, len(bodies), BATCH)
    batches = []
    for start in starts:
        part = bodies[start : start + BATCH]
        offsets = np.arange(start, start + len(part))
        batches.append(RawBatch(offsets, ReadPosition(start + len(part)), bodies=Bodies.of(part)))
    lane.process(batches[0])  # triggers are chosen once, before what is measured

    def run() -> int:
        return sum(
            int(delivery.batch.frame["rule_ids"].list.len().sum())
            for batch in batches
            for delivery in lane.process(batch)
            if delivery.target != "dead-letters"
        )

    def figures() -> dict[str, Any]:
        spec: Any = plan.nodes["rules"]
        engine = spec.spec.group.run_for(stream.schema).engine()
        met = float(engine.figures.candidates.sum() / max(1, engine.figures.rows))
        scan: Any = source.body_filter
        scanned, kept = scan.figures() if scan is not None else (0, 0)
        return {"triggers_per_row": met, "kept": kept / scanned if scanned else 1.0, "scanned": scanned}

    return run, figures


def python(bodies: Sequence[bytes], kind: str, count: int) -> Run:
    """The loop that one would write: parse, then each rule as a compiled lambda."""
    functions = python_rules(rule_set(kind, count))

    def run() -> int:
        found = 0
        for body in bodies:
            event = orjson.loads(body)
            matched = [rule_id for rule_id, function in functions if function(event)]
            found += len(matched)
        return found

    return run


def polars(bodies: Sequence[bytes], kind: str, count: int) -> Run:
    """The same conditions as one select of polars expressions per batch."""
    import polars as pl
    from headrace.flow.schema import Schema
    from headrace_columnar.expressions import compile_predicate

    schema = Schema.of(COLUMNS)
    rules = rule_set(kind, count)
    columns = [compile_predicate(rule["expression"], schema).expression.alias(rule["id"]) for rule in rules]

    def run() -> int:
        found = 0
        for start in range(0, len(bodies), BATCH):
            frame = pl.read_ndjson(b"\n".join(bodies[start : start + BATCH]), schema=dict(schema))
            found += int(frame.select(columns).sum().sum_horizontal()[0])
        return found

    return run


def spark(bodies: Sequence[bytes], kind: str, count: int) -> Run:
    """``from_json`` and Spark's own expressions, generated code and all, on one core."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    lines = session.createDataFrame([(body.decode(),) for body in bodies], "value string").repartition(1).cache()
    lines.count()
    types = ", ".join(f"{name} {'long' if kind == 'int64' else kind}" for name, kind in COLUMNS.items())
    parsed = lines.select(f.from_json("value", types).alias("e")).select("e.*")
    matched = f.array(*(f.expr(f"IF({rule['expression']}, '{rule['id']}', NULL)") for rule in rule_set(kind, count)))
    tagged = parsed.select(f.array_compact(matched).alias("ids")).where(f.size("ids") > 0)

    def run() -> int:
        return int(tagged.select(f.sum(f.size("ids"))).collect()[0][0])

    run()  # code is generated and compiled once
    return run


def measure_one(engine: str, kind: str, count: int, messages: int, rounds: int = 3) -> dict[str, Any]:
    """Measure one engine beside ``orjson.loads``; what Spark takes is wall time, since its CPU time is not this process's."""
    bodies = [json.dumps(event).encode() for event in events(messages, suspicious_share=0.01)]
    details: Callable[[], dict[str, Any]] = dict
    if engine in ("columns", "raw"):
        run, details = headrace(bodies, kind, count, raw=engine == "raw")
    else:
        run = {"python": python, "polars": polars, "spark": spark}[engine](bodies, kind, count)
    clock = time.perf_counter if engine == "spark" else time.process_time
    base, own = [], []
    for _ in range(rounds):
        base.append(_seconds(time.process_time, lambda: _parse(bodies)))
        own.append(_seconds(clock, lambda: _keep(run())))
    # The best round of each: what else runs on the machine can only make them slower.
    return {
        "ratio": min(base) / min(own), "messages_per_second": messages / min(own), "matches": _kept[-1],
        "messages": messages, "load": os.getloadavg()[0], **details(),
    }  # fmt: skip


def _parse(bodies: Sequence[bytes]) -> None:
    loads = orjson.loads
    for body in bodies:
        loads(body)


_kept: list[int] = []


def _keep(value: int) -> None:
    _kept.append(value)


def _seconds(clock: Callable[[], float], work: Callable[[], Any]) -> float:
    begun = clock()
    work()
    return clock() - begun


def everything(messages: int, rounds: int, kept: Path | None) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Run all measurements, each in its own process on one core. Measurements in the file ``kept`` are not repeated."""
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    found: dict[tuple[str, str, int], dict[str, Any]] = {tuple(key): value for key, value in map(json.loads, lines)}
    wanted = [(engine, kind, count, messages) for kind in KINDS for count in COUNTS for engine in ("columns", "raw")]
    wanted += [
        (engine, "selective", count, some) for engine, counts in PEER_MESSAGES.items() for count, some in counts.items()
    ]
    for engine, kind, count, some in wanted:
        if (engine, kind, count) in found:
            continue
        arguments = ("measure", engine, kind, str(count), str(some), str(rounds))
        cores = None if engine == "spark" else [0]
        figures = dict(
            measure("benchmarks.rules", *arguments, cores=cores, environment={"POLARS_MAX_THREADS": "1"}).figures
        )
        found[engine, kind, count] = figures
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps([[engine, kind, count], figures]) + "\n")
        print(
            f"{engine} {kind} {count}: {figures['ratio']:.4f} of orjson.loads, {figures['messages_per_second']:,.0f}/s",
            flush=True,
        )
    return found


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        engine, kind, count, messages, *rest = sys.argv[2:]
        print(json.dumps(measure_one(engine, kind, int(count), int(messages), int(rest[0]) if rest else 3)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--job-messages", type=int, default=200_000)
    parser.add_argument("--kept", type=Path, help="a file in which figures are kept, to go on from")
    given = parser.parse_args()
    from benchmarks.rule_jobs import everything as everything_of_jobs
    from benchmarks.rule_replace import everything as replaced
    from benchmarks.rules_page import draw, with_tables

    found = everything(given.messages, given.rounds, given.kept)
    swap = replaced(batches=1_000, every=200)
    jobs = everything_of_jobs(given.job_messages, [41, 1_000])
    PAGE.write_text(with_tables(PAGE.read_text(), found, swap, jobs))
    draw(found, PLOT)
    print(f"wrote {PAGE} and {PLOT}")


if __name__ == "__main__":
    main()
