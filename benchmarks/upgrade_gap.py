"""How long a consumer of a job waits while a server upgrades the job.

    python -m benchmarks.upgrade_gap [KEYS] [UPGRADES] [BACKEND] [RATE]

A job keeps a running count and sum of KEYS keys, and the newest time at which a record of the key was sent, and writes every change to
files. A process appends RATE / 100 records each 10 ms, each with its time; another one reads the output as any consumer would and notes,
for each look that brings something newer, the time and how new it is. A changed file is rolled out again and again.

``pause_seconds`` is the longest time, in an upgrade, in which the consumer sees nothing newer: the gap of the output. ``age_seconds`` is
how old the newest row that it had seen was by then at most, since it was sent: the pause, the usual delay of a row, and what a machine
that is too busy has left to do. ``usual_…`` are the medians of both before the first upgrade: if the age is much more than the pause, the
job does not keep up, and RATE (records a second) is too high for this machine. The server's own figure (old version asked to stop, until
the new one runs) stands beside it, with its parts, and the processor seconds that the new process and its children used in the gap. Wall
time on whatever else the machine does: keep it quiet, and take the median. BACKEND is ``light`` or ``spark`` (local).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from itertools import pairwise
from multiprocessing import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil
from headrace.foundation.clock import SystemClock
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.processes import ChildLauncher
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import Supervisor

_JOB = """
import headrace as hr
job = (hr.stream("benchmark", "gap")
       .from_file({events!r}, format="json", schema={{"key": "string", "v": "int64", "sent": "int64"}})
       .key_by("key").agg(n="count(*)", s="sum(v)", sent="max(sent)")
       .to_file({out!r}, format="json", changes="column", flush_interval="50 ms"))
# version {number}
"""


_SENT = re.compile(rb'"sent": ?(\d+)')


def feed(events: Path, keys: int, rate: int, ended: Event) -> None:
    """Append records with the time at which they are sent. Runs in a process of its own."""
    number = 0
    with open(events, "a", buffering=1 << 20) as file:
        while not ended.wait(0.01):
            sent = int(time.monotonic() * 1_000_000)
            for _ in range(max(1, rate // 100)):
                number = (number + 7919) % keys
                file.write(f'{{"key": "user-{number}", "v": 1, "sent": {sent}}}\n')
            file.flush()


def consume(out: Path, sees: Event, ended: Event, found: Queue[list[tuple[float, float]]]) -> None:
    """Read the output as it grows; put when something newer was seen and when that was sent. Runs in a process of its own."""
    read: dict[Path, int] = {}
    seen: list[tuple[float, float]] = []
    newest = 0
    while not ended.wait(0.005):
        for file in out.glob("[!._]*.json"):
            with contextlib.suppress(FileNotFoundError), open(file, "rb") as stream:
                stream.seek(read.get(file, 0))
                text = stream.read()
                whole = text.rfind(b"\n") + 1
                read[file] = read.get(file, 0) + whole
                newest = max(newest, max(map(int, _SENT.findall(text[:whole])), default=0))
        if newest and (not seen or newest / 1_000_000 > seen[-1][1]):
            seen.append((time.monotonic(), newest / 1_000_000))
            sees.set()
    found.put(seen)


def sights(seen: list[tuple[float, float]], begin: float, end: float) -> list[tuple[float, float, float]]:
    """Return, for each sight of something newer between two times: how long nothing had come, how old the row before was, since when."""
    return [(at - before, at - sent, before) for (before, sent), (at, _) in pairwise(seen) if begin <= at <= end]


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


class CpuOfNew(threading.Thread):
    """Notes the processor seconds of processes of jobs, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.noted: dict[int, list[tuple[float, float]]] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    if "headrace_server.runner" in child.cmdline():
                        used = child.cpu_times()
                        total = used.user + used.system + used.children_user + used.children_system
                        self.noted.setdefault(child.pid, []).append((time.monotonic(), total))

    def between(self, begin: float, end: float) -> float:
        """Return what the newest process of then has used between two times."""
        then = [notes for notes in self.noted.values() if notes[0][0] <= end]
        newest = max(then, key=lambda notes: notes[0][0])
        inside = [used for at, used in newest if begin <= at <= end]
        return inside[-1] - inside[0] if inside else 0.0


def main(keys: int, upgrades: int, backend: str, rate: int) -> None:
    """Run the job on a server of its own and print a line of JSON."""
    root = Path(tempfile.mkdtemp(prefix="headrace-gap-"))
    (root / "jobs").mkdir()
    events, out, clock = root / "events.ndjson", root / "out", SystemClock()
    with open(events, "w") as file:
        file.writelines(f'{{"key": "user-{number}", "v": 1, "sent": 0}}\n' for number in range(keys))
    job = root / "jobs" / "gap.py"
    job.write_text(_JOB.format(events=str(events), out=str(out), number=1))
    (root / "jobs" / "job.yaml").write_text(f"backend: {backend}\nhealth_timeout: 170 s\nprepare_timeout: 170 s\n")
    data = DataDirectory(root / "data")
    registry = Registry(open_engine(sqlite_url(data.path / "registry.sqlite")), clock)
    services = Services(registry, data, VersionFiles(data.versions), ChildLauncher(), clock, "benchmark")
    supervisor = Supervisor(services, root / "jobs")
    loop = threading.Thread(target=supervisor.run)
    loop.start()
    while not (
        supervisor.ready.is_set()
        and (supervisor.statuses.figures(registry.job("gap")) or {"records_read": 0})["records_read"] >= keys
    ):
        time.sleep(0.2)
    time.sleep(15)  # a checkpoint has the state of all keys
    context = multiprocessing.get_context("spawn")
    sees, ended, found = context.Event(), context.Event(), context.Queue()
    processes = [
        context.Process(target=feed, args=(events, keys, rate, ended)),
        context.Process(target=consume, args=(out, sees, ended, found)),
    ]
    for process in processes:
        process.start()
    cpu = CpuOfNew()
    cpu.start()
    sees.wait()
    time.sleep(10)
    spans, own, parts = [], [], []
    for number in range(2, upgrades + 2):
        begun = time.monotonic()
        job.write_text(_JOB.format(events=str(events), out=str(out), number=number))
        while registry.job("gap").current_version != number:
            assert not registry.job("gap").problem, registry.job("gap").problem
            time.sleep(0.1)
        while registry.operations()[0].state == "running":  # the version is noted first
            time.sleep(0.1)
        time.sleep(3)
        spans.append((begun, time.monotonic()))
        result = json.loads(registry.operations()[0].result or "{}")
        own.append(result["gap_seconds"])
        parts.append({name: round(seconds, 3) for name, seconds in result["gap_parts"].items()})
    ended.set()
    cpu.ended.set()
    seen = found.get()
    for process in processes:
        process.join()
    supervisor.stop()
    loop.join()
    of_upgrades = [sights(seen, begin, end) for begin, end in spans]
    longest = [max(each) for each in of_upgrades]
    usual = sights(seen, spans[0][0] - 7, spans[0][0])
    print(json.dumps({
        "keys": keys, "backend": backend, "rate": rate,
        "pause_seconds": [round(pause, 3) for pause, _, _ in longest], "usual_pause_seconds": median(each[0] for each in usual),
        "age_seconds": [round(max(age for _, age, _ in each), 3) for each in of_upgrades],
        "usual_age_seconds": median(each[1] for each in usual),
        "server_says": [round(each, 3) for each in own], "parts": parts,
        "cpu_seconds_of_new_process": [round(cpu.between(since, since + pause), 2) for pause, _, since in longest],
        "load": os.getloadavg()[0], "place": str(root),
    }))  # fmt: skip


if __name__ == "__main__":
    given = [*sys.argv[1:], *["1000000", "5", "light", "20000"][len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), given[2], int(given[3]))
