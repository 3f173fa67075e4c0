"""What light jobs cost that have nothing to do.

    python -m benchmarks.server_sizing [JOBS] [GROUPS] [SECONDS] [MEMORY] [REGISTRY] [SERVERS]

A server is started for JOBS jobs in GROUPS processes (0: each job has a process of its own). Each job counts the records of a file
of its own by key, so that it has state, a checkpoint and a sink. When all run and have read their records, nothing comes any more.
Then CPU time of the server and of the runners is measured for SECONDS, and the memory at the end: PSS, which divides what processes
share among them, so that their sum is what the machine gives. MEMORY is ``memory_max_bytes`` of each job in MB (0: no limit). REGISTRY is
``none`` (the server is alone), ``sqlite``, ``mysql`` or ``postgresql``: then SERVERS servers share it, each process of jobs renews a lease,
and the processes of the database are measured too.

Prints a line of JSON, with the load average of the machine before the start and at the end, and the CPU time that other processes took
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
from headrace_server.commands.client import Client

from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.sharing import own_server

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
        if each["problem"] and each["state"] != "unassigned":
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


def _measure(
    client: Client, servers: list[psutil.Process], database: list[psutil.Process], seconds: float
) -> dict[str, Any]:
    pids = sorted({each["pid"] for each in client.ask("GET", "/v1/jobs")})
    own, processes = len(servers), [*servers, *map(psutil.Process, pids)]
    time.sleep(10)  # checkpoints of the start are made
    before, of_machine, begun = _cpu_seconds(processes), _busy_seconds(), time.monotonic()
    of_database = sum(_cpu_seconds(database))
    time.sleep(seconds)
    lasted = time.monotonic() - begun
    of_database = sum(_cpu_seconds(database)) - of_database
    of_machine = _busy_seconds() - of_machine
    used = [after - earlier for after, earlier in zip(_cpu_seconds(processes), before, strict=True)]
    jobs = len(client.ask("GET", "/v1/jobs"))
    memory = [_pss(each) for each in processes]
    return {
        "jobs": jobs,
        "processes_of_jobs": len(pids),
        "measured_seconds": round(lasted, 1),
        "idle_cpu_percent": {
            "servers": round(100 * sum(used[:own]) / lasted, 2),
            "jobs": round(100 * sum(used[own:]) / lasted, 2),
            "database": round(100 * of_database / lasted, 2),
            "all_of_one_core": round(100 * (sum(used) + of_database) / lasted, 2),
            "all_of_two_cores": round(50 * (sum(used) + of_database) / lasted, 2),
            "other_processes_of_the_machine": round(100 * max(0.0, of_machine - sum(used) - of_database) / lasted, 1),
        },
        "pss_mb": {
            "servers": round(sum(memory[:own]) / 2**20, 1),
            "jobs": round(sum(memory[own:]) / 2**20, 1),
            "per_job": round(sum(memory[own:]) / 2**20 / jobs, 2),
            "all": round(sum(memory) / 2**20, 1),
        },
        "rss_mb_of_a_process_of_jobs": round(max(each.memory_info().rss for each in processes[own:]) / 2**20, 1),
        "threads_of_jobs": sum(each.num_threads() for each in processes[own:]),
    }


@contextlib.contextmanager
def _registry(kind: str, root: Path) -> Iterator[tuple[str | None, list[psutil.Process]]]:
    """Give the URL of a registry, and the processes of its database."""
    if kind in ("none", "sqlite"):
        yield None if kind == "none" else f"sqlite:///{root}/registry.sqlite", []
        return
    made: type[MySQLServer] | type[PostgreSQLServer] = MySQLServer if kind == "mysql" else PostgreSQLServer
    with own_server(made) as server:
        driver, first = ("mysql+pymysql", "") if kind == "mysql" else ("postgresql+psycopg", "postgres")
        place = f"{driver}://{server.user}:{server.password}@{server.host}:{server.port}/"
        engine = sa.create_engine(place + first, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE sizing")
        engine.dispose()
        processes = [psutil.Process(record.pid) for record in server._processes().records()]
        yield place + "sizing", processes


def _with_children(database: list[psutil.Process]) -> list[psutil.Process]:
    """PostgreSQL has a process for each connection."""
    return [*database, *(child for each in database for child in each.children(recursive=True))]


def _start(root: Path, number: int, registry: str | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headrace_console.command", "serve", "--jobs", str(root / "jobs"), "--port", "0"]
    if registry is not None:
        command += ["--registry", registry, "--shared", str(root / "shared"), "--name", f"s{number}"]
    environment = {**os.environ, "HEADRACE_MACHINE": "all" if "sqlite" in str(registry) else f"m{number}"}
    with open(root / f"server{number}.log", "ab") as log:
        return subprocess.Popen(
            [*command, "--data", str(root / f"data{number}")], stdout=log, stderr=log, env=environment
        )


def main(jobs: int, groups: int, seconds: float, memory_mb: int, kind: str, count: int) -> None:
    """Run the jobs on servers of their own and print a line of JSON."""
    load = {"before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="headrace-sizing-") as place, contextlib.ExitStack() as stack:
        root = Path(place)
        _write_jobs(root, jobs, groups, memory_mb)
        url, database = stack.enter_context(_registry(kind, root))
        begun = time.monotonic()
        children = [_start(root, number, url) for number in range(1 if url is None else count)]
        try:
            while not all((root / f"data{number}" / "server.json").exists() for number in range(len(children))):
                if any(child.poll() is not None for child in children):
                    raise RuntimeError((root / "server0.log").read_text())
                time.sleep(0.1)
            address = json.loads((root / "data0" / "server.json").read_text())["url"]
            with contextlib.closing(Client(address, (root / "data0" / "token").read_text().strip())) as client:
                while not _all_have_read(client, jobs):
                    if time.monotonic() - begun > _START_TIMEOUT_SECONDS:
                        raise RuntimeError("the jobs do not run: " + (root / "server0.log").read_text()[-2000:])
                    time.sleep(0.5)
                started_seconds = time.monotonic() - begun
                servers = [psutil.Process(child.pid) for child in children]
                found = _measure(client, servers, _with_children(database), seconds)
        finally:
            for child in children:
                if child.poll() is None:
                    os.kill(child.pid, signal.SIGTERM)
            for child in children:
                child.wait()
        load["after"] = os.getloadavg()[0]
        of_run = {
            "registry": kind, "servers": len(children), "start_seconds": round(started_seconds, 1), "load_average": load,
            "memory_max_mb_of_a_job": memory_mb,
        }  # fmt: skip
        print(json.dumps({**found, **of_run}))


if __name__ == "__main__":
    given = sys.argv[1:]
    defaults = ("100", "4", "30", "0", "none", "1")
    kinds = (int, int, float, int, str, int)
    main(*(kind(text) for kind, text in zip(kinds, [*given, *defaults[len(given) :]], strict=True)))
