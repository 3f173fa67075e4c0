"""What many keys cost: time per event from 10,000 to 1,000,000 keys, and checkpoints of a million keys.

    python -m benchmarks.keyed_state                        # everything, as JSON lines
    python -m benchmarks.keyed_state checkpoint KEYS        # one measurement

``growth`` is the job of benchmarks.keyed on light (10^6 events, keys by Zipf's law), run for different numbers of keys.
``checkpoint`` is a running count and sum of a million keys in one shard: the size of the whole state and of what one per cent
of changed keys adds, the time in which the shard gives them (no event is processed meanwhile), and the time to write
and flush them to a file. Each is a process of its own on one core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import measure

EVENTS = "1000000"
KEYS = (10_000, 100_000, 1_000_000)


def checkpoint(keys: int) -> dict[str, Any]:
    """Fill a running aggregate with keys, change one in a hundred, and tell what storing it takes."""
    import headrace as hr
    import numpy as np
    import polars as pl
    from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
    from headrace.flow.schema import Schema
    from headrace.testing import MemorySource

    schema = {"key": "string", "v": "int64"}
    stream = hr.stream("benchmark", "state").from_(MemorySource({"q": []}), format="json", schema=schema)
    plan = stream.key_by("key").agg(n="count(*)", s="sum(v)").to_file("unused", format="json", changes="column").plan()
    spec: Any = plan.nodes["aggregate"]
    operator = spec.spec.open(Schema.of(schema))
    offset = 0

    def give(numbers: Any) -> None:
        nonlocal offset
        for start in range(0, len(numbers), 10_000):
            part = pl.Series("n", numbers[start : start + 10_000])
            frame = pl.DataFrame({
                OFFSET: pl.Series(range(offset, offset + len(part)), dtype=pl.Int64),
                INDEX: pl.zeros(len(part), dtype=pl.Int32, eager=True),
                "key": pl.select(pl.lit("user-") + part.cast(pl.String)).to_series(), "v": part.cast(pl.Int64),
            })  # fmt: skip
            offset += len(part)
            for _ in operator.process(Batch(Queue("0", "key_by"), frame)):
                pass

    def timed(take: Callable[[], bytes]) -> dict[str, float]:
        begun = time.process_time()
        state = take()
        taken = time.process_time() - begun
        with tempfile.TemporaryDirectory() as place:
            begun = time.perf_counter()
            with open(f"{place}/state", "wb") as file:
                file.write(state)
                file.flush()
                os.fsync(file.fileno())
            return {"bytes": len(state), "pause_cpu_ms": taken * 1000, "write_ms": (time.perf_counter() - begun) * 1000}

    random = np.random.default_rng(3)
    give(random.permutation(keys))
    whole = timed(operator.snapshot)
    changes = []
    for _ in range(5):
        give(random.choice(keys, keys // 100, replace=False))
        changes.append(timed(operator.delta))
    best = min(changes, key=lambda one: one["pause_cpu_ms"])
    return {"keys": keys, "snapshot": whole, "one_per_cent": best}


def growth(place: Path) -> None:
    """Print CPU time per event for each number of keys."""
    for keys in KEYS:
        directory = place / str(keys)
        environment = {
            "HEADRACE_BENCHMARK_EVENTS": EVENTS, "HEADRACE_BENCHMARK_KEYS": str(keys), "POLARS_MAX_THREADS": "1",
        }  # fmt: skip
        measure("benchmarks.keyed", "make", str(directory), environment=environment)
        best = min(
            (measure("benchmarks.keyed", "light", str(directory), cores=[0], environment=environment).figures
             for _ in range(3)),
            key=lambda figures: float(figures["cpu_seconds"]),
        )  # fmt: skip
        print(
            json.dumps({"keys": keys, "cpu_us_per_event": best["cpu_seconds"] / int(EVENTS) * 1e6, **best}), flush=True
        )


def main() -> None:
    if sys.argv[1:2] == ["checkpoint"]:
        print(json.dumps(checkpoint(int(sys.argv[2]))))
        return
    taken = measure(
        "benchmarks.keyed_state", "checkpoint", str(KEYS[-1]), cores=[0], environment={"POLARS_MAX_THREADS": "1"}
    )
    print(json.dumps(dict(taken.figures)), flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        growth(Path(place))


if __name__ == "__main__":
    main()
