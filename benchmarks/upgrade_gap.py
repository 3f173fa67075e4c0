"""How long the output of a job pauses while a server upgrades it: ``python -m benchmarks.upgrade_gap [KEYS] [UPGRADES]``.

A light job keeps a running count and sum of KEYS keys and writes every change to files, while a feeder appends 200 records each 10 ms.
A changed file is rolled out again and again. The gap is the longest time between two looks at which the output had grown, from the
begin of an upgrade to its end; looks are 2 ms apart, and the sink flushes every 50 ms. ``usual_pause`` is the median between two growths
before the last upgrade. The server's own figure (old version asked to stop, until the new one runs) stands
beside it. Wall time on whatever else the machine does: keep it quiet, and take the median.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

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


def main(keys: int, upgrades: int) -> None:
    """Run the job on a server of its own and print a line of JSON."""
    root = Path(tempfile.mkdtemp(prefix="headrace-gap-"))
    (root / "jobs").mkdir()
    events, out, clock = root / "events.ndjson", root / "out", SystemClock()
    with open(events, "w") as file:
        file.writelines(f'{{"key": "user-{number}", "v": 1}}\n' for number in range(keys))
    job = root / "jobs" / "gap.py"
    job.write_text(_JOB.format(events=str(events), out=str(out), number=1))
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

    threads = [threading.Thread(target=each, daemon=True) for each in (feed, look)]
    for thread in threads:
        thread.start()
    time.sleep(5)
    gaps, own = [], []
    for number in range(2, upgrades + 2):
        begun = time.monotonic()
        job.write_text(_JOB.format(events=str(events), out=str(out), number=number))
        while registry.job("gap").current_version != number:
            assert not registry.job("gap").problem, registry.job("gap").problem
            time.sleep(0.1)
        times = [at for at in grown if at >= begun]
        gaps.append(max(after - before for before, after in pairwise(times)))
        while registry.operations()[0].state == "running":  # the version is noted first
            time.sleep(0.1)
        own.append(json.loads(registry.operations()[0].result or "{}")["gap_seconds"])
    before = [at for at in grown if at < begun]
    usual = sorted(b - a for a, b in pairwise(before))
    ended.set()
    for thread in threads:
        thread.join()
    supervisor.stop()
    loop.join()
    print(json.dumps({
        "keys": keys, "gap_seconds": [round(each, 3) for each in gaps], "server_says": [round(each, 3) for each in own],
        "usual_pause": round(usual[len(usual) // 2], 3), "load": os.getloadavg()[0], "place": str(root),
    }))  # fmt: skip


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] + ["1000000", "5"][len(sys.argv) - 1 :])))
