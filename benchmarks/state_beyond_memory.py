"""Counts and sums by key of more keys than fit in the memory of a job: updates per second, memory, pauses of checkpoints, restarts.

    python -m benchmarks.state_beyond_memory KEYS MEMORY [PLACE]     # "10_000_000" "100 MB": all phases, as JSON lines
    python -m benchmarks.state_beyond_memory phase PLACE KEYS MEMORY NAME UNTIL
    python -m benchmarks.state_beyond_memory join LEFT RIGHT MEMORY [PLACE]   # rows of both sides: a join by key without bound, 32 shards

Every phase is a process of its own on light that goes on with the checkpoint of the one before, in PLACE: ``fill`` gives each key
once, in no order; ``zipf`` and ``uniform`` update them; ``killed`` is ended by SIGKILL in the midst of updates, and ``restart``
goes on after that. Rows come as columns and go nowhere, so that the figures are those of the state. MEMORY is ``state_memory``;
"none": no limit. The join has a checkpoint if it is given a PLACE for it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

BATCH = 20_000
#: Updates of a phase that is measured, and checkpoints that are made in it.
UPDATES = int(os.environ.get("HEADRACE_BENCHMARK_UPDATES", "4000000"))
INTERVAL = os.environ.get("HEADRACE_BENCHMARK_INTERVAL", "10 s")


def _source(keys: int, plan: list[tuple[str, int]]) -> Any:
    """Return a source whose row number decides its key: by the phase in which the number is."""
    import headrace as hr
    import numpy as np
    import polars as pl
    from headrace.flow.messages import Queue, ReadPosition
    from headrace.flow.schema import Schema
    from headrace.interfaces.source import Source
    from headrace_sql.operators.range_reader import RangeReader

    ends = [end for _, end in plan]

    class Rows(Source):
        bounded = True

        def __init__(self) -> None:
            self.settings = hr.Settings()
            self.first_row_seconds = self.first_row_cpu = self.last_seconds = 0.0
            #: Seconds by the clock between two batches that the job asked for.
            self.gaps: list[float] = []

        def schema(self) -> Schema | None:
            return Schema.of({"k": "int64", "v": "int64"})

        def queues(self) -> Collection[Queue]:
            return [Queue("rows")]

        def rows(self, begin: int, end: int) -> pl.DataFrame:
            if not self.first_row_seconds:
                self.first_row_seconds, self.first_row_cpu = time.monotonic(), time.process_time()
            else:
                self.gaps.append(time.monotonic() - self.last_seconds)
            self.last_seconds = time.monotonic()
            numbers = np.arange(begin, end, dtype=np.int64)
            at = int(np.searchsorted(ends, begin, side="right"))
            random = np.random.default_rng(begin)
            if plan[at][0] == "fill":
                found = numbers * 2_654_435_761 % keys  # a prime: each key once
            elif plan[at][0] == "zipf":  # by the inverse of its distribution, exponent 1
                found = np.exp(random.random(end - begin) * np.log(keys)).astype(np.int64) * 40_503 % keys
            else:
                found = random.integers(0, keys, end - begin)
            return pl.DataFrame({"k": found, "v": numbers % 1000})

        def open(self, queue: Queue, start: Any) -> Any:
            return RangeReader(self.rows, start.offset if isinstance(start, ReadPosition) else 0, ends[-1])

    return Rows()


def phase(place: str, keys: int, memory: str, name: str, until: int) -> dict[str, Any]:
    """Run the job until so many rows have been read; return what that took."""
    begun = time.monotonic()
    import headrace as hr
    from headrace.interfaces.registry import default_registry

    pauses: list[float] = []

    class Watch:
        @hr.hookimpl
        def headrace_checkpoint_completed(self, job: str, checkpoint_id: int, seconds: float) -> None:
            pauses.append(seconds)

    from headrace_light.engine import Engine

    cpu_pauses: list[float] = []
    make = Engine._make_checkpoint

    def timed(self: Any, *given: Any, **options: Any) -> None:
        begun = time.thread_time()  # the clock also counts what others do on this machine
        make(self, *given, **options)
        cpu_pauses.append(time.thread_time() - begun)

    Engine._make_checkpoint = timed  # type: ignore[method-assign]
    if os.environ.get("HEADRACE_BENCHMARK_AT_ONCE"):  # as if no thread stored them
        from headrace_light import storing_behind

        storing_behind.BEHIND_ROWS_MIN = 2**62

    default_registry().register(Watch(), "watch")
    state = Path(place) / "plan.json"
    plan = json.loads(state.read_text()) if state.exists() else []
    before = plan[-1][1] if plan else 0
    plan = [*plan, (name, until)] if until > before else plan
    state.write_text(json.dumps(plan))
    source = _source(keys, plan)
    stream = hr.stream("benchmark", "state").from_(source).key_by("k").agg(n="count(*)", s="sum(v)")
    options = {} if memory == "none" else {"state_memory": memory}
    handle = stream.to_blackhole().start(
        "light", checkpoint=f"{place}/state", checkpoint_interval=INTERVAL, max_batch_records=BATCH, until="end",
        show_progress=False, **options,
    )  # fmt: skip
    report = handle.wait()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    clock, cpu = time.monotonic() - source.first_row_seconds, time.process_time() - source.first_row_cpu
    rows = report.records_read
    return {
        "phase": name, "rows": rows, "rss_mb": usage.ru_maxrss // 1024,
        "per_second": round(rows / clock), "per_cpu_second": round(rows / cpu),
        "until_first_row_s": round(source.first_row_seconds - begun, 2), "until_first_row_cpu_s": round(source.first_row_cpu, 2),
        "checkpoints": len(pauses), "longest_pause_ms": round(max(pauses, default=0) * 1000),
        "longest_pause_cpu_ms": round(max(cpu_pauses, default=0) * 1000),
        "longest_gaps_ms": [round(each * 1000) for each in sorted(source.gaps)[-5:]],
        "disk_mb": sum(each.stat().st_size for each in Path(place).rglob("*") if each.is_file()) // 10**6,
    }  # fmt: skip


def _run(place: str, keys: int, memory: str, name: str, until: int, kill_after: float | None = None) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.state_beyond_memory",
        "phase",
        place,
        str(keys),
        memory,
        name,
        str(until),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        out, _ = process.communicate(timeout=kill_after)
        assert process.returncode == 0, name
        print(out.decode().strip(), flush=True)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def join(left: int, right: int, memory: str, place: str | None) -> dict[str, Any]:
    """Join so many rows with so many, which all have different keys, of equal columns; return what that took."""
    import headrace as hr
    import numpy as np
    import polars as pl
    from headrace.flow.messages import Queue, ReadPosition
    from headrace.flow.schema import Schema
    from headrace.interfaces.source import Source
    from headrace_sql.operators.range_reader import RangeReader

    asked: list[float] = []

    class Rows(Source):
        bounded = True

        def __init__(self, name: str, count: int) -> None:
            self.settings, self._name, self._count = hr.Settings(), name, count

        def schema(self) -> Schema | None:
            return Schema.of({"k": "int64", self._name: "int64"})

        def queues(self) -> Collection[Queue]:
            return [Queue(self._name)]

        def rows(self, begin: int, end: int) -> pl.DataFrame:
            asked.append(time.monotonic())
            numbers = np.arange(begin, end, dtype=np.int64)
            return pl.DataFrame({"k": numbers * 2_654_435_761 % (4 * right), self._name: numbers})

        def open(self, queue: Queue, start: Any) -> Any:
            return RangeReader(self.rows, start.offset if isinstance(start, ReadPosition) else 0, self._count)

    stream = hr.stream("benchmark", "join")
    joined = stream.from_(Rows("v", left)).join(stream.from_(Rows("w", right)), "k")
    options: dict[str, Any] = {} if memory == "none" else {"state_memory": memory}
    before, begun = time.process_time(), time.monotonic()
    report = joined.to_blackhole().run(
        "light",
        checkpoint=place,
        shards=32,
        max_batch_records=BATCH,
        checkpoint_interval=INTERVAL,
        show_progress=False,
        **options,
    )
    cpu = time.process_time() - before
    usage = resource.getrusage(resource.RUSAGE_SELF)
    gaps = sorted(after - at for at, after in pairwise(asked))
    return {
        "until_first_row_s": round(asked[0] - begun, 2) if asked else None,
        "longest_gaps_ms": [round(each * 1000) for each in gaps[-5:]],
        "join": [left, right], "pairs": sum(report.rows_written.values()), "rss_mb": usage.ru_maxrss // 1024,
        "per_cpu_second": round((left + right) / cpu), "cpu_s": round(cpu), "clock_s": round(time.monotonic() - begun),
    }  # fmt: skip


def main() -> None:
    if sys.argv[1] == "join":
        place = sys.argv[5] if len(sys.argv) > 5 else None
        print(json.dumps(join(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], place)))
        return
    if sys.argv[1] == "phase":
        print(json.dumps(phase(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))))
        return
    keys, memory = int(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as temporary:
        place = sys.argv[3] if len(sys.argv) > 3 else temporary
        Path(place).mkdir(exist_ok=True)
        at = 0
        for name, count in (("fill", keys), ("zipf", UPDATES), ("uniform", UPDATES // 4)):
            at += count
            _run(place, keys, memory, name, at)
        _run(place, keys, memory, "killed", at + UPDATES, kill_after=15.0)
        _run(place, keys, memory, "restart", at + UPDATES)


if __name__ == "__main__":
    main()
