"""How long the output of a job pauses while a server upgrades it: ``python -m benchmarks.upgrade_gap [KEYS] [UPGRADES] [BACKEND]``.

A job keeps a running count and sum of KEYS keys and writes every change to files, while a feeder appends 200 records each 10 ms.
A changed file is rolled out again and again. The gap is the longest time between two looks at which the output had grown, from the
begin of an upgrade to its end; looks are 2 ms apart, and the sink flushes every 50 ms. ``usual_pause`` is the median between two growths
before the last upgrade. The server's own figure (old version asked to stop, until the new one runs) stands beside it, with its parts, and
the processor seconds that the new process used in the gap. Wall time on whatever else the machine does: keep it quiet, and take the median.
BACKEND is ``light`` or ``spark`` (local).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from itertools import pairwise
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
       .from_file({events!r}, format="json", schema={{"key": "string", "v": "int64"}})
       .key_by("key").agg(n="count(*)", s="sum(v)")
       .to_file({out!r}, format="json", changes="column", flush_interval="50 ms"))
# version {number}
"""


def _size(place: Path) -> int:
    return sum(each.stat().st_size for each in place.glob("part-*.json") if each.is_file()) if place.exists() else 0


class CpuOfNew(threading.Thread):
    """Notes the processor seconds of processes of jobs, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.noted: dict[int, list[tuple[float, float]]] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.01):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    used = child.cpu_times()
                    self.noted.setdefault(child.pid, []).append((time.monotonic(), used.user + used.system))

    def between(self, begin: float, end: float) -> float:
        """Return what the newest process has used between two times."""
        newest = self.noted[max(self.noted, key=lambda pid: self.noted[pid][0][0])]
        inside = [used for at, used in newest if begin <= at <= end]
        return inside[-1] - inside[0] if inside else 0.0


def main(keys: int, upgrades: int, backend: str) -> None:
    """Run the job on a server of its own and print a line of JSON."""
    root = Path(tempfile.mkdtemp(prefix="headrace-gap-"))
    (root / "jobs").mkdir()
    events, out, clock = root / "events.ndjson", root / "out", SystemClock()
    with open(events, "w") as file:
        file.writelines(f'{{"key": "user-{number}", "v": 1}}\n' for number in range(keys))
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
    ended = threading.Event()
    grown: list[float] = []

    def feed() -> None:
        number = 0
        with open(events, "a", buffering=1 << 20) as file:
            while not ended.wait(0.01):
                for _ in range(200):
                    file.write(f'{{"key": "user-{(number := number + 7919) % keys}", "v": 1}}\n')
                file.flush()

    def look() -> None:
        last = -1
        while not ended.wait(0.002):
            size = _size(out)
            if size != last:
                last = size
                grown.append(time.monotonic())

    cpu = CpuOfNew()
    threads = [*(threading.Thread(target=each, daemon=True) for each in (feed, look)), cpu]
    for thread in threads:
        thread.start()
    time.sleep(5)
    gaps, own, parts, used = [], [], [], []
    for number in range(2, upgrades + 2):
        begun = time.monotonic()
        job.write_text(_JOB.format(events=str(events), out=str(out), number=number))
        while registry.job("gap").current_version != number:
            assert not registry.job("gap").problem, registry.job("gap").problem
            time.sleep(0.1)
        times = [at for at in grown if at >= begun]
        gap, at = max((after - before, before) for before, after in pairwise(times))
        gaps.append(gap)
        used.append(cpu.between(at, at + gap))
        while registry.operations()[0].state == "running":  # the version is noted first
            time.sleep(0.1)
        result = json.loads(registry.operations()[0].result or "{}")
        own.append(result["gap_seconds"])
        parts.append({name: round(seconds, 3) for name, seconds in result["gap_parts"].items()})
    before = [at for at in grown if at < begun]
    usual = sorted(b - a for a, b in pairwise(before))
    ended.set()
    cpu.ended.set()
    for thread in threads:
        thread.join()
    supervisor.stop()
    loop.join()
    print(json.dumps({
        "keys": keys, "gap_seconds": [round(each, 3) for each in gaps], "server_says": [round(each, 3) for each in own],
        "parts": parts, "cpu_seconds_of_new_process": [round(each, 2) for each in used], "backend": backend,
        "usual_pause": round(usual[len(usual) // 2], 3), "load": os.getloadavg()[0], "place": str(root),
    }))  # fmt: skip


if __name__ == "__main__":
    given = [*sys.argv[1:], *["1000000", "5", "light"][len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), given[2])
