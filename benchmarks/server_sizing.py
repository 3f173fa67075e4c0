"""What light jobs cost that have nothing to do: ``python -m benchmarks.server_sizing [JOBS] [GROUPS] [SECONDS] [MEMORY]``.

A server is started for JOBS jobs in GROUPS processes (0: each job has a process of its own). Each job counts the records of a file
of its own by key, so that it has state, a checkpoint and a sink. When all run and have read their records, nothing comes any more.
Then CPU time of the server and of the runners is measured for SECONDS, and the memory at the end: PSS, which divides what processes
share among them, so that their sum is what the machine gives. MEMORY is ``memory_max_bytes`` of each job in MB (0: no limit). Prints a
line of JSON, with the load average of the machine before the start and at the end, and the CPU time that other processes took
while it was measured. CPU time is little disturbed by other work on the machine; the time to start is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from headrace_server.commands.client import Client

_JOB = """
import headrace as hr
job = (hr.stream("sizing", "job{number}")
       .from_file({events!r}, format="json", schema={{"key": "string", "v": "int64"}})
       .where("v >= 0").key_by("key").agg(n="count(*)", s="sum(v)")
       .to_file({out!r}, format="json", changes="column"))
"""
_RECORDS = 100
_START_TIMEOUT_SECONDS = 600.0


def _write_jobs(root: Path, jobs: int, groups: int, memory_mb: int) -> None:
    (root / "jobs").mkdir()
    settings = []
    for number in range(jobs):
        events = root / "events" / f"{number}.ndjson"
        events.parent.mkdir(exist_ok=True)
        events.write_text("".join(f'{{"key": "user-{each % 10}", "v": {each}}}\n' for each in range(_RECORDS)))
        text = _JOB.format(number=number, events=str(events), out=str(root / "out" / str(number)))
        (root / "jobs" / f"job{number}.py").write_text(text)
        if groups:
            settings.append(f"  job{number}: {{group: group{number % groups}}}\n")
    limit = f"memory_max_bytes: {memory_mb * 2**20}\n" if memory_mb else ""
    (root / "jobs" / "job.yaml").write_text(limit + ("jobs:\n" + "".join(settings) if settings else ""))


def _all_have_read(client: Client, jobs: int) -> bool:
    found = client.ask("GET", "/v1/jobs")
    running = [each for each in found if each["state"] == "running" and each["records_read"] == _RECORDS]
    for each in found:
        if each["problem"]:
            raise RuntimeError(f"{each['name']}: {each['problem']}")
    return len(running) == jobs


def _cpu_seconds(processes: list[psutil.Process]) -> list[float]:
    return [sum(each.cpu_times()[:2]) for each in processes]


def _busy_seconds() -> float:
    """Return the CPU time that all processes of the machine have used."""
    found = psutil.cpu_times()
    return float(found.user + found.nice + found.system)


def _pss(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)


def _measure(client: Client, server: psutil.Process, seconds: float) -> dict[str, Any]:
    pids = sorted({each["pid"] for each in client.ask("GET", "/v1/jobs")})
    processes = [server, *map(psutil.Process, pids)]
    time.sleep(10)  # checkpoints of the start are made
    before, of_machine, begun = _cpu_seconds(processes), _busy_seconds(), time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - begun
    of_machine = _busy_seconds() - of_machine
    used = [after - earlier for after, earlier in zip(_cpu_seconds(processes), before, strict=True)]
    jobs = len(client.ask("GET", "/v1/jobs"))
    memory = [_pss(each) for each in processes]
    return {
        "jobs": jobs,
        "processes_of_jobs": len(pids),
        "measured_seconds": round(lasted, 1),
        "idle_cpu_percent": {
            "server": round(100 * used[0] / lasted, 2),
            "jobs": round(100 * sum(used[1:]) / lasted, 2),
            "all_of_one_core": round(100 * sum(used) / lasted, 2),
            "all_of_two_cores": round(50 * sum(used) / lasted, 2),
            "other_processes_of_the_machine": round(100 * max(0.0, of_machine - sum(used)) / lasted, 1),
        },
        "pss_mb": {
            "server": round(memory[0] / 2**20, 1),
            "jobs": round(sum(memory[1:]) / 2**20, 1),
            "per_job": round(sum(memory[1:]) / 2**20 / jobs, 2),
            "all": round(sum(memory) / 2**20, 1),
        },
        "rss_mb_of_a_process_of_jobs": round(max(each.memory_info().rss for each in processes[1:]) / 2**20, 1),
        "threads_of_jobs": sum(each.num_threads() for each in processes[1:]),
    }


def main(jobs: int, groups: int, seconds: float, memory_mb: int) -> None:
    """Run the jobs on a server of their own and print a line of JSON."""
    load = {"before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="headrace-sizing-") as place:
        root = Path(place)
        _write_jobs(root, jobs, groups, memory_mb)
        command = [sys.executable, "-m", "headrace_console.command", "serve", "--jobs", str(root / "jobs")]
        begun = time.monotonic()
        with open(root / "server.log", "ab") as log:
            child = subprocess.Popen([*command, "--data", str(root / "data"), "--port", "0"], stdout=log, stderr=log)
        try:
            while not (root / "data" / "server.json").exists():
                if child.poll() is not None:
                    raise RuntimeError((root / "server.log").read_text())
                time.sleep(0.1)
            url = json.loads((root / "data" / "server.json").read_text())["url"]
            with contextlib.closing(Client(url, (root / "data" / "token").read_text().strip())) as client:
                while not _all_have_read(client, jobs):
                    if time.monotonic() - begun > _START_TIMEOUT_SECONDS:
                        raise RuntimeError("the jobs do not run: " + (root / "server.log").read_text()[-2000:])
                    time.sleep(0.5)
                started_seconds = time.monotonic() - begun
                found = _measure(client, psutil.Process(child.pid), seconds)
        finally:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGTERM)
            child.wait()
        load["after"] = os.getloadavg()[0]
        of_run = {"start_seconds": round(started_seconds, 1), "load_average": load, "memory_max_mb_of_a_job": memory_mb}
        print(json.dumps({**found, **of_run}))


if __name__ == "__main__":
    given = sys.argv[1:]
    defaults = ("100", "4", "30", "0")
    main(*(kind(text) for kind, text in zip((int, int, float, int), [*given, *defaults[len(given) :]], strict=True)))
