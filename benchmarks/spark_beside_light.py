"""The same jobs on light with one core and on Spark with two, warm: how much faster Spark is, and what it takes of the processors.

    python -m benchmarks.spark_beside_light [--events 80000000]       # everything, as JSON lines and then a table
    python -m benchmarks.spark_beside_light make PLACE [--events N]   # only the input, for several measurements:
    python -m benchmarks.spark_beside_light --place PLACE --jobs where rules
    python -m benchmarks.spark_beside_light --place PLACE --output /dev/shm   # results into memory: without the waits for the disk
    python -m benchmarks.spark_beside_light views PLACE NEW COUNT     # as root, on Linux: COUNT times the input in the memory of one
    python -m benchmarks.spark_beside_light run BACKEND JOB PLACE OUTPUT      # one job, as JSON
    python -m benchmarks.spark_beside_light start PLACE               # a session: its first rows, its second query, micro-batches

``where`` filters and projects, ``rules`` has 41 rules, ``windows`` counts and adds up per key in windows of 10 s, ``join`` joins each
event of a quarter of them with its user. The events are in sixteen files, those of ``join`` in four; in ``one-file-where`` and
``one-file-windows`` they are in one. On both backends a job is run in a process that ran it before over a quarter of the files, from
building the job to the last row on disk. CPU seconds are those of all processes of the run; ``others_cpu_seconds`` are those of everything
else on the machine, the kernel's own work included: where they are not small, the ratios say little. Both backends must write the same
number of rows. Input must fit into the memory that the system has for caching files: 80,000,000 events are 4.7 GB, and the 10,000,000 of
the rules 6.1 GB. ``views`` makes a place for ``where`` and ``rules`` with more: it mounts the directories of events several times
(as overlays), so that each file is there under several device numbers and is read several times, but is in memory once. Not for
``windows``: the same events would come again. ``views PLACE NEW 0`` unmounts them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import cpu_seconds, machine_seconds, measure
from benchmarks.rule_sets import COLUMNS, rule_set

JOBS = ("where", "rules", "windows", "join", "one-file-where", "one-file-windows")
FILES, KEYS = 16, 100_000
START_MS, STEP_MS, DISORDER_MS = 1_700_000_000_000, 0.8, 4_000
EVENTS = {"key": "string", "ts": "timestamp", "v": "int64"}
USERS = {"key": "string", "name": "string"}
#: As many different events of the rules' kind are made; they are repeated.
_SECURITY_EVENTS = 200_000
#: The files that warm up a backend, where they are not four of sixteen.
_FIRST_FILES = {"join": "00", "one-file-where": "*", "one-file-windows": "*"}
_SMALL_QUERIES, _SMALL_RECORDS = 5, 120_000


def make(place: Path, events: int) -> None:
    """Write the input of all jobs; that of ``quarter`` is the first files of all events."""
    import numpy as np
    import polars as pl

    from demo.security_events import write

    weights = np.cumsum(1.0 / np.arange(1, KEYS + 1))
    for directory in ("events", "quarter", "users", "security", "small"):
        (place / directory).mkdir(parents=True)
    for number in range(FILES):
        random, count = np.random.default_rng(number), events // FILES
        keys = np.searchsorted(weights / weights[-1], random.random(count))
        times = START_MS + (np.arange(count) * STEP_MS - random.integers(0, DISORDER_MS, count)).astype(np.int64)
        frame = pl.DataFrame({"key": keys, "ts": times, "v": random.integers(0, 1_000, count)}).select(
            pl.format("user-{}", "key").alias("key"),
            pl.from_epoch("ts", "ms").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"),
            "v",
        )
        path = place / "events" / f"{number:02}.ndjson"
        frame.write_ndjson(path)
        if number < FILES // 4:
            os.link(path, place / "quarter" / path.name)
            frame.head(_SMALL_RECORDS // 4).write_ndjson(place / "small" / path.name)
    users = "".join(f'{{"key":"user-{key}","name":"name of {key}"}}\n' for key in range(KEYS))
    (place / "users" / "users.ndjson").write_text(users, encoding="ascii")
    write(place / "security", _SECURITY_EVENTS, FILES, 7, 0)
    for path in (place / "security").glob("events-*.ndjson"):
        data, number = path.read_bytes(), int(path.stem.rpartition("-")[2])
        # No hard links: sources of files read a file with several names once.
        with (place / "security" / f"{number:02}.ndjson").open("wb") as file:
            for _ in range(max(1, events // 8 // _SECURITY_EVENTS)):
                file.write(data)
        path.unlink()


def views(place: Path, new: Path, count: int) -> None:
    """Make ``new`` with ``count`` times the events of ``place`` for ``where`` and ``rules``: the same files on several mounts."""
    for kind in ("events", "security"):
        for mounted in new.glob(f"mounts/{kind}-*"):
            subprocess.run(["umount", str(mounted)], check=True)
            mounted.rmdir()
        shutil.rmtree(new / kind, ignore_errors=True)
        (new / kind).mkdir(parents=True)
        for number in range(count):
            at, empty = new / "mounts" / f"{kind}-{number}", new / "mounts" / "empty"
            at.mkdir(parents=True)
            empty.mkdir(exist_ok=True)
            options = f"ro,lowerdir={(place / kind).resolve()}:{empty.resolve()}"
            subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(at)], check=True)
            for place_of_file, path in enumerate(sorted(at.glob("*.ndjson"))):
                (new / kind / f"{number * FILES + place_of_file:02}.ndjson").symlink_to(path.resolve())


def _one_file(place: Path) -> None:
    """Write all events into one file, if that was not done."""
    if not (place / "one").exists():
        (place / "one").mkdir()
        with (place / "one" / "all.ndjson").open("wb") as file_of_all:
            for path in sorted((place / "events").glob("*.ndjson")):
                with path.open("rb") as written:
                    shutil.copyfileobj(written, file_of_all, 1 << 20)


def job_of(name: str, place: Path, out: Path, files: str = "*") -> Any:
    """Build a job over those files of its input whose names match ``files``."""
    import headrace as hr

    pipe = hr.stream("benchmark", name)
    if name == "rules":
        stream = pipe.from_file(f"{place}/security/{files}.ndjson", format="json", schema=COLUMNS, follow_symlinks=True)
        return stream.rules(rule_set("selective", 41)).to_file(out, format="json")
    directory = {"join": "quarter", "small": "small", "one": "one"}.get(name.partition("-")[0], "events")
    # Files of `views` are links.
    stream = pipe.from_file(f"{place}/{directory}/{files}.ndjson", format="json", schema=EVENTS, follow_symlinks=True)
    kind = name.rpartition("-")[2]
    if kind == "windows":
        stream = stream.key_by("key").window(hr.tumbling("10 s", on="ts"), late="5 s").agg(n="count(*)", s="sum(v)")
    elif kind == "join":
        users = pipe.from_file(f"{place}/users/*.ndjson", format="json", schema=USERS, name="users")
        stream = stream.join(users, "key")
    else:
        stream = stream.where("v % 2 = 0 AND v > 100").select("key", "v", w="v * 2")
    return stream.to_file(out, format="json")


def run(backend: str, name: str, place: Path, output: Path) -> dict[str, Any]:
    """Run a job over a quarter of its files and then over all, into directories in ``output``; return what the second run took."""
    options: dict[str, Any] = {"master": "local[2]"} if backend == "spark" else {}
    figures: dict[str, Any] = {}
    for turn, files in enumerate((_FIRST_FILES.get(name, "0[0-3]"), "*")):
        out = output / f"out-{os.getpid()}-{turn}"
        begun, begun_cpu, begun_machine = time.perf_counter(), cpu_seconds(), machine_seconds()
        report = job_of(name, place, out, files).run(backend, show_progress=False, **options)
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - begun_cpu
        rows, others = sum(report.rows_written.values()), machine_seconds() - begun_machine - cpu
        figures = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "others_cpu_seconds": others,
            "read": report.records_read,
            "rows": rows,
        }
        shutil.rmtree(out)
    return figures


def start(place: Path) -> dict[str, Any]:
    """Measure a session of Spark: the first row in a file, further queries, micro-batches that have little to do, and memory."""
    begun = psutil.Process().create_time()
    figures: dict[str, Any] = {}
    seconds = []
    for turn in range(1 + _SMALL_QUERIES):
        out, before = place / f"out-{os.getpid()}-{turn}", time.time()
        job_of("small", place, out).run("spark", show_progress=False)
        if turn == 0:
            figures["first_row_seconds"] = min(part.stat().st_mtime for part in out.glob("*.json")) - begun
        else:
            seconds.append(time.time() - before)
        shutil.rmtree(out)
    figures["further_query_seconds"] = [round(each, 2) for each in seconds]
    light = []
    for turn in range(_SMALL_QUERIES):
        out, before = place / f"out-light-{turn}", time.time()
        job_of("small", place, out).run("light", show_progress=False)
        light.append(time.time() - before)
        shutil.rmtree(out)
    figures["light_query_seconds"] = [round(each, 2) for each in light]
    for name in ("small", "small-windows"):
        figures[f"micro_batch_ms_{name}"] = _micro_batch_ms(name, place)
    return figures


def _micro_batch_ms(name: str, place: Path) -> float:
    """Return what one more micro-batch costs: the same records in a few and in many, warm; the median of three."""
    found = []
    for turn in range(3):
        seconds = []
        for records in (_SMALL_RECORDS // 5, _SMALL_RECORDS // 65):
            out = place / f"out-batches-{turn}-{records}"
            begun = time.perf_counter()
            job_of(name, place, out).run("spark", show_progress=False, max_micro_batch_records=records)
            seconds.append(time.perf_counter() - begun)
            shutil.rmtree(out)
        found.append((seconds[1] - seconds[0]) / 60 * 1_000)
    return round(statistics.median(found))


def session(place: Path) -> None:
    """Print the figures of a session."""
    taken = measure("benchmarks.spark_beside_light", "start", str(place))
    print(json.dumps({"session": taken.figures, "peak_mb": taken.peak_rss_mb, "load": os.getloadavg()[0]}), flush=True)


def beside(place: Path, names: Sequence[str], output: Path) -> None:
    """Run jobs on both backends; print their figures and a table of the ratios."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    if any(name.startswith("one-file") for name in names):
        _one_file(place)
    for name in names:
        for backend, cores in (("light", [0]), ("spark", [0, 1])):
            environment = {"POLARS_MAX_THREADS": "1"} if backend == "light" else None
            arguments = "run", backend, name, str(place), str(output)
            taken = measure("benchmarks.spark_beside_light", *arguments, cores=cores, environment=environment)
            figures = {"job": name, "backend": backend, **taken.figures, "peak_mb": taken.peak_rss_mb}
            found[name, backend] = figures
            print(json.dumps({**figures, "load": os.getloadavg()[0]}), flush=True)
        assert found[name, "light"]["rows"] == found[name, "spark"]["rows"], name
    print(
        "\n| job | events | light, 1 core, s | Spark, 2 cores, s | Spark is | CPU per record, light = 1 |\n|---|---|---|---|---|---|"
    )
    for name in names:
        light, spark = found[name, "light"], found[name, "spark"]
        ratio, cpu = light["seconds"] / spark["seconds"], spark["cpu_seconds"] / light["cpu_seconds"]
        print(
            f"| {name} | {light['read']:,} | {light['seconds']:.1f} | {spark['seconds']:.1f} | {ratio:.2f} × | {cpu:.2f} |"
        )


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(run(sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))))
    elif sys.argv[1:2] == ["views"]:
        views(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["start"]:
        print(json.dumps(start(Path(sys.argv[2]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("made", nargs="*", metavar="make PLACE", help="only write the input")
        parser.add_argument("--events", type=int, default=80_000_000)
        parser.add_argument("--place", type=Path, help="input that was made before; the jobs alone are run")
        parser.add_argument("--output", type=Path, help="where results go; default: beside the input")
        parser.add_argument("--jobs", nargs="*", choices=JOBS, default=JOBS)
        given = parser.parse_args()
        if given.made:
            make(Path(given.made[1]), given.events)
        elif given.place is not None:
            beside(given.place, given.jobs, given.output or given.place)
        else:
            with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as directory:
                make(Path(directory), given.events)
                session(Path(directory))
                beside(Path(directory), given.jobs, given.output or Path(directory))


if __name__ == "__main__":
    main()
