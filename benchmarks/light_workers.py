"""What worker processes bring a job on light, by the clock: whole jobs from files to files.

    python -m benchmarks.light_workers [--messages 2000000] [--rounds 3]   # everything, as JSON lines; keep the machine quiet
    python -m benchmarks.light_workers job KIND WORKERS DIRECTORY          # one job, in this process

Security events of about 650 bytes (``demo/security_events.py``), in two files or in one. ``one core`` is ``workers=1`` on one pinned
core. The clock runs from building the job to its end, so starting the workers counts; imports of the first job do not, since a small
job runs before. CPU seconds are of all processes, and include them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import measure
from benchmarks.rule_sets import COLUMNS, rule_set
from benchmarks.stateless import COLUMNS as WHERE_COLUMNS
from benchmarks.stateless import PREDICATE

KINDS = ("where", "rules-41", "rules-1000", "windows", "where-one-file", "windows-one-file")
#: Name, cores, and the option.
WAYS: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("one core", (0,), 1),
    ("two cores", (0, 1), 1),
    ("workers=2", (0, 1), 2),
)
_UNIQUE_MESSAGES = 200_000


def run(kind: str, workers: int, source: str, out: Path) -> int:
    """Run a job and return how many records it has read."""
    import headrace as hr

    name, _, count = kind.removesuffix("-one-file").partition("-")
    columns: dict[str, Any] = WHERE_COLUMNS if name == "where" else COLUMNS
    if name == "windows":
        columns = {"host": "string", "exit_code": "int64", "ts": "timestamp"}
    stream = hr.stream("benchmark", name).from_file(source, format="json", schema=columns)
    if name == "where":
        chosen = stream.where(PREDICATE).select("host", "ts", cmd="lower(cmdline)")
    elif name == "rules":
        chosen = stream.rules(rule_set("selective", int(count)))
    else:
        windows = stream.key_by("host").window(hr.tumbling("10 s", on="ts"))
        chosen = windows.agg(n="count(*)", worst="max(exit_code)")
    report = chosen.to_file(out, format="json").run("light", show_progress=False, workers=workers)
    return int(report.records_read)


def job(kind: str, workers: int, directory: Path) -> dict[str, Any]:
    """Run a small job and then the large one; return the seconds of the latter."""
    out = directory / f"out-{os.getpid()}"
    pattern = "one.ndjson" if kind.endswith("-one-file") else "part-*.ndjson"
    run(kind, 1, str(directory / "small.ndjson"), out / "small")
    begun = time.perf_counter()
    records = run(kind, workers, str(directory / pattern), out / "large")
    seconds = time.perf_counter() - begun
    shutil.rmtree(out)
    return {"seconds": seconds, "records": records}


def write_input(directory: Path, messages: int) -> None:
    """Write the events in two files, all of them in one, and a few in another."""
    from demo.security_events import write

    write(directory, min(messages, _UNIQUE_MESSAGES), 2, 7, 0)
    parts = [path.read_bytes() for path in sorted(directory.glob("events-*.ndjson"))]
    (directory / "small.ndjson").write_bytes(b"\n".join(parts[0].splitlines()[:1000]) + b"\n")
    times = max(1, messages // _UNIQUE_MESSAGES)
    for number, part in enumerate(parts):
        with (directory / f"part-{number}.ndjson").open("wb") as own, (directory / "one.ndjson").open("ab") as one:
            for _ in range(times):
                own.write(part)
                one.write(part)


def everything(messages: int, rounds: int, kinds: list[str]) -> None:
    """Measure all kinds and ways, in turns, and print a line of each."""
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        write_input(Path(place), messages)
        for kind in kinds:
            seconds: dict[str, list[float]] = {name: [] for name, _, _ in WAYS}
            cpu: dict[str, list[float]] = {name: [] for name, _, _ in WAYS}
            for _ in range(rounds):
                for name, cores, workers in WAYS:
                    taken = measure("benchmarks.light_workers", "job", kind, str(workers), place, cores=cores)
                    seconds[name].append(float(taken.figures["seconds"]))
                    cpu[name].append(taken.cpu_seconds)
            middle = {name: statistics.median(each) for name, each in seconds.items()}
            print(json.dumps({
                "kind": kind, "messages": messages, "load": round(os.getloadavg()[0], 1),
                "seconds": {name: round(each, 2) for name, each in middle.items()},
                "cpu_seconds": {name: round(statistics.median(each), 2) for name, each in cpu.items()},
                "ratio": round(middle["one core"] / middle["workers=2"], 2),
            }), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    everything(given.messages, given.rounds, given.kinds.split(","))


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        print(json.dumps(job(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main()
