"""The jobs of benchmarks.peers in Bytewax. Runs in an environment of its own, see requirements-bytewax.txt.

    python bytewax_job.py rules RULES.json EVENTS OUT
    python bytewax_job.py windows EVENTS OUT

Batches of lines go through ``flat_map_batch``, which spares a call of the engine per message. The windows' clock does not
advance with the system's time, with which events of the past would be late, and items need not be put in order.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc"
from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax.testing import run_main

COLUMNS = ("host", "user", "process", "cmdline", "exit_code")


def searcher(pattern: str) -> Any:
    return re.compile(pattern).search


def rules(rules_file: str, events: str, out: str) -> Dataflow:
    listed = json.loads(Path(rules_file).read_text())
    # Our own seeded text, made by benchmarks.python_rules.
    functions = [(rule["id"], eval(rule["python"], {"search": searcher})) for rule in listed]  # noqa: S307
    loads, dumps = orjson.loads, orjson.dumps

    def match(lines: Iterable[str]) -> list[tuple[str, str]]:
        found = []
        for line in lines:
            event = loads(line)
            ids = [rule_id for rule_id, function in functions if function(event)]
            if ids:
                row = {name: event[name] for name in COLUMNS}
                found.append(("", dumps({**row, "rule_ids": ids}).decode()))
        return found

    flow = Dataflow("rules")
    lines = op.input("in", flow, FileSource(events, batch_size=10_000))
    op.output("out", op.flat_map_batch("rules", lines, match), FileSink(Path(out)))
    return flow


def windows(events: str, out: str) -> Dataflow:
    loads, dumps, parse = orjson.loads, orjson.dumps, datetime.fromisoformat
    frozen = datetime(2100, 1, 1, tzinfo=UTC)

    def decode(lines: Iterable[str]) -> list[tuple[str, tuple[datetime, int]]]:
        found = []
        for line in lines:
            event = loads(line)
            found.append((event["key"], (parse(event["ts"]), event["v"])))
        return found

    def add(sums: list[int], item: tuple[datetime, int]) -> list[int]:
        sums[0] += 1
        sums[1] += item[1]
        return sums

    def merge(one: list[int], other: list[int]) -> list[int]:
        return [one[0] + other[0], one[1] + other[1]]

    begin = datetime(1970, 1, 1, tzinfo=UTC)
    length = timedelta(seconds=10)

    def encode(rows: Iterable[tuple[str, tuple[int, list[int]]]]) -> list[tuple[str, str]]:
        return [
            ("", dumps({"key": key, "window_start": begin + window * length, "n": sums[0], "s": sums[1]}).decode())
            for key, (window, sums) in rows
        ]

    flow = Dataflow("windows")
    lines = op.input("in", flow, FileSource(events, batch_size=10_000))
    keyed = op.flat_map_batch("decode", lines, decode)
    clock = EventClock(
        lambda item: item[0], timedelta(seconds=5), now_getter=lambda: frozen, to_system_utc=lambda _: None
    )
    windower = TumblingWindower(length=length, align_to=begin)
    made = fold_window("sums", keyed, clock, windower, lambda: [0, 0], add, merge, ordered=False)
    op.output("out", op.flat_map_batch("encode", made.down, encode), FileSink(Path(out)))
    return flow


if __name__ == "__main__":
    jobs: dict[str, Any] = {"rules": rules, "windows": windows}
    flow = jobs[sys.argv[1]](*sys.argv[2:])
    begun, begun_cpu = time.perf_counter(), time.process_time()
    run_main(flow)
    took = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - begun_cpu}
    with open(sys.argv[-1], "rb") as file:
        print(json.dumps({**took, "rows": sum(1 for _ in file)}))
