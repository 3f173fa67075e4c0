"""A storm of faults over several servers whose jobs are under load: how fast jobs move, whether rows are lost or doubled, who owns them.

``python -m benchmarks.server_storm`` runs it; ``test_server_storm.py`` is its short form. A seed chooses the faults. Each job notes each
batch that it takes, with its process and the monotonic time of the machine, so that two processes that work on one job at a time are seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
import sqlalchemy as sa
from headrace_lease.sql_store import TABLE
from shared_servers import SharedServer, SharedServers

from tests.eventually import eventually

JOB = """
import os, time
import headrace as hr

def noted(frame):
    with open({ledger!r}, "a") as file:  # one write of a line, to the end of the file
        file.write(f"{{time.monotonic()}} {{os.getpid()}}\\n")
    return frame

job = (hr.stream("storm", {name!r})
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .map_batches(noted, schema={{"n": "int64"}})
       .to_file({out!r}, format="json", flush_interval="50 ms"))
"""
_FEED_SECONDS = 0.05
_ROWS_A_FEED = 5
_LOOK_SECONDS = 0.05


@dataclass
class Moved:
    """One fault: of what kind, and by job the longest pause of its output, from the fault until it runs where it stays."""

    kind: str
    seconds: dict[str, float] = field(default_factory=dict)


class Output:
    """Follows the rows of a job as they are written."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read: dict[Path, int] = {}
        self.last = -1
        #: When the output was seen to have grown.
        self.grown: list[float] = [time.monotonic()]

    def longest_pause(self, begin: float) -> float:
        """Return the longest time without a new row since ``begin``, and in the pause in which that lies."""
        times = [at for at in self.grown if at >= begin]
        before = max((at for at in self.grown if at < begin), default=begin)
        return max(after - earlier for earlier, after in pairwise([before, *times, time.monotonic()]))

    def look(self) -> None:
        """Read what was added since the last look."""
        last = self.last
        for part in self._place.glob("*.json"):
            begin = self._read.get(part, 0)
            with contextlib.suppress(FileNotFoundError), open(part, "rb") as file:
                if os.fstat(file.fileno()).st_size < begin:
                    begin = 0  # a torn end was cut off
                file.seek(begin)
                text = file.read()
                whole = text.rfind(b"\n") + 1
                self._read[part] = begin + whole
                if whole:
                    self.last = max(self.last, json.loads(text[:whole].splitlines()[-1])["n"])
        if self.last > last:
            self.grown = [*self.grown[-10_000:], time.monotonic()]


class Storm:
    """Some servers, some jobs, events that never stop, and faults. ``run`` once, then ``check``."""

    def __init__(
        self, servers: SharedServers, *, seed: int, jobs: int = 6, names: tuple[str, ...] = ("a", "b", "c"),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.servers, self.names, self.say = servers, names, say
        self.choose = random.Random(seed)
        self.jobs = [f"job{number}" for number in range(jobs)]
        self.moved: list[Moved] = []
        #: Processes that were paused: they may take a batch when they wake up, which their sinks refuse.
        self.paused: set[int] = set()
        self._outputs = {job: Output(servers.root / f"out-{job}") for job in self.jobs}
        self._stopping = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._engine = sa.create_engine(servers.url)
        self.kinds: dict[str, Callable[[], tuple[list[str], Callable[[], None]]]] = {
            "machine killed": self._kill_machine,
            "server killed": self._kill_server,
            "server stopped": self._stop_server,
            "machine paused": self._pause_machine,
            "server paused": self._pause_server,
            "process killed": self._kill_process,
            "process paused": self._pause_process,
            "clock set": self._set_clock,
        }
        if servers.url.startswith("sqlite"):
            # All are on one machine, and a pause may keep SQLite's lock: docs/several-servers.md
            del self.kinds["machine paused"], self.kinds["server paused"]

    # -------------------------------------------------------------------------------------------------------- load

    def begin(self) -> None:
        """Start the servers and the load."""
        for job in self.jobs:
            self.servers.write_job(job)
            text = JOB.format(
                ledger=str(self.ledger(job)), name=job, events=str(self.servers.root / f"{job}.ndjson"),
                out=str(self.servers.root / f"out-{job}"),
            )  # fmt: skip
            (self.servers.jobs / f"{job}.py").write_text(text)
        for name in self.names:
            self.servers.add(name)
        share = len(self.jobs) // len(self.names)
        self.servers.wait_for_owners(
            lambda by: len(by) == len(self.jobs) and min(Counter(by.values()).values()) >= share, "all jobs run, spread"
        )
        self._feeder.start()
        self._watcher.start()
        self._wait_for_new_rows(self.jobs)

    def ledger(self, job: str) -> Path:
        """Return where a job notes its batches."""
        return self.servers.root / f"ledger-{job}"

    def _feed(self) -> None:
        while not self._stopping.wait(_FEED_SECONDS):
            for job in self.jobs:
                self.servers.add_events(job, _ROWS_A_FEED)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            for output in self._outputs.values():
                output.look()

    def _wait_for_new_rows(self, jobs: list[str]) -> None:
        """Wait until each job has written a row that came after this moment."""
        wanted = {job: self.servers.counts[job] for job in jobs}
        eventually(
            lambda: all(self._outputs[job].last >= first for job, first in wanted.items()), "new rows", seconds=300,
            pause_seconds=_LOOK_SECONDS, shown=lambda: (jobs, self.servers.ask(), self.servers.logs()),
        )  # fmt: skip

    def _wait_for_other_owners(self, jobs: list[str]) -> None:
        """Wait until servers that answer have the jobs and run them."""

        def look() -> bool:
            owners = self.servers.owners()
            return all(owners.get(job) in self.servers.by_name for job in jobs)

        eventually(look, "they run elsewhere", seconds=300, shown=lambda: (self.servers.ask(), self.servers.logs()))

    # ------------------------------------------------------------------------------------------------------ faults

    def run(self, faults: int) -> None:
        """Let faults happen: each kind at least once if there are enough. Load goes on all the time."""
        kinds = list(self.kinds)
        drawn = [kinds[number % len(kinds)] for number in range(faults)]
        self.choose.shuffle(drawn)
        never = threading.Event()
        for number, kind in enumerate(drawn, 1):
            never.wait(self.choose.uniform(0.0, 3.0))
            begun = time.monotonic()
            jobs, mend = self.kinds[kind]()
            self._wait_for_other_owners(jobs)
            self._wait_for_new_rows(jobs)
            moved = Moved(kind, {job: self._outputs[job].longest_pause(begun) for job in jobs})
            mend()
            self.moved.append(moved)
            times = " ".join(f"{job} {seconds:.1f}" for job, seconds in sorted(moved.seconds.items()))
            self.say(f"{number}/{faults} {kind}: {times or 'nothing ran there'}")

    def _victim(self) -> tuple[SharedServer, list[str]]:
        """Choose a server, and return the jobs that it has."""
        owners = eventually(self.servers.owners, "a server answers", shown=self.servers.logs)
        name = self.choose.choice(sorted(self.servers.by_name))
        return self.servers.by_name[name], [job for job, server in owners.items() if server == name]

    def _kill_machine(self) -> tuple[list[str], Callable[[], None]]:
        server, jobs = self._victim()
        server.kill_machine()
        return self._without(server, jobs)

    def _kill_server(self) -> tuple[list[str], Callable[[], None]]:
        server, jobs = self._victim()
        server.kill()
        return self._without(server, jobs)

    def _stop_server(self) -> tuple[list[str], Callable[[], None]]:
        server, jobs = self._victim()
        server.signal(signal.SIGTERM)
        moved = self._without(server, jobs)

        def mend() -> None:
            assert server.wait() == 0, server.log()[-3000:]
            moved[1]()

        return jobs, mend

    def _without(self, server: SharedServer, jobs: list[str]) -> tuple[list[str], Callable[[], None]]:
        """Take a server out of those that answer, until it is begun again."""
        del self.servers.by_name[server.name]

        def mend() -> None:
            server.begin()
            self.servers.by_name[server.name] = server

        return jobs, mend

    def _pause_machine(self) -> tuple[list[str], Callable[[], None]]:
        server, jobs = self._victim()
        self.paused |= set(server.runner_pids())
        server.pause_machine()
        del self.servers.by_name[server.name]

        def mend() -> None:
            server.continue_machine()
            self.servers.by_name[server.name] = server

        return jobs, mend

    def _pause_server(self) -> tuple[list[str], Callable[[], None]]:
        """Pause a server alone: the processes of its jobs go on until they see that another server has them."""
        server, jobs = self._victim()
        server.signal(signal.SIGSTOP)
        del self.servers.by_name[server.name]

        def mend() -> None:
            server.signal(signal.SIGCONT)
            self.servers.by_name[server.name] = server

        return jobs, mend

    def _process(self) -> tuple[str, int] | None:
        """Choose a job that runs, and return its process."""
        found = [
            (job["name"], job["pid"]) for job in self.servers.ask() or () if job["state"] == "running" and job["pid"]
        ]
        return self.choose.choice(found) if found else None

    def _signal_process(self, number: signal.Signals) -> tuple[list[str], Callable[[], None]]:
        chosen = self._process()
        if chosen is None:
            return [], lambda: None
        job, pid = chosen
        if number is signal.SIGSTOP:
            self.paused.add(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

        def mend() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        return [job], mend

    def _kill_process(self) -> tuple[list[str], Callable[[], None]]:
        return self._signal_process(signal.SIGKILL)

    def _pause_process(self) -> tuple[list[str], Callable[[], None]]:
        return self._signal_process(signal.SIGSTOP)

    def _set_clock(self) -> tuple[list[str], Callable[[], None]]:
        """Set the database's clock forward or back: all that it has stored is so much older or newer then."""
        hours = self.choose.choice([-1, 1])
        moved = TABLE.c.expires_at_ms - hours * 3_600_000
        with self._engine.begin() as transaction:
            transaction.execute(sa.update(TABLE).where(TABLE.c.expires_at_ms > 0).values(expires_at_ms=moved))
        return self.jobs, lambda: None

    # ----------------------------------------------------------------------------------------------------- the end

    def check(self) -> int:
        """End the load; check that each row is there once and that no job had two owners. Return the number of rows."""
        self._stopping.set()
        self._feeder.join()
        self._watcher.join()
        self.servers.wait_for_rows()
        for job in self.jobs:
            assert (found := self.overlaps(job)) == [], found
        return sum(self.servers.counts.values())

    def overlaps(self, job: str) -> list[str]:
        """Return batches that a process has taken after another one had the job. Those of processes that were paused do not count."""
        lines = [line.split() for line in self.ledger(job).read_text().splitlines()]
        noted = sorted((float(at), int(pid)) for at, pid in lines)
        ended: set[int] = set()
        found, present = [], None
        for at, pid in noted:
            if pid in ended:
                found.append((at, pid))
                continue
            if present is not None and pid != present:
                ended.add(present)
            present = pid
        return [f"{job}: process {pid} at {at:.3f}" for at, pid in found if pid not in self.paused]

    def late_batches(self) -> int:
        """Return how many batches processes have taken that were paused and had lost their job."""
        paused, self.paused = self.paused, set()
        try:
            return sum(len(self.overlaps(job)) for job in self.jobs)
        finally:
            self.paused = paused

    def close(self) -> None:
        """End everything."""
        self._stopping.set()
        self._engine.dispose()
        self.servers.clean_up()
        for process in psutil.process_iter(["cmdline"]):
            if (
                any(str(self.servers.root) in word for word in process.info["cmdline"] or ())
                and process.pid != os.getpid()
            ):
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def table(self) -> str:
        """Return the times of moving, as a table."""
        by_kind: dict[str, list[float]] = defaultdict(list)
        for moved in self.moved:
            by_kind[moved.kind] += moved.seconds.values()
        lines = [
            "| fault | faults | jobs moved or not disturbed | p50 s | p99 s | max s |",
            "|---|---|---|---|---|---|",
        ]
        for kind, times in sorted(by_kind.items()):
            faults = sum(moved.kind == kind for moved in self.moved)
            if times:
                p99 = statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0]
                lines.append(
                    f"| {kind} | {faults} | {len(times)} | {statistics.median(times):.1f} | {p99:.1f} | {max(times):.1f} |"
                )
            else:
                lines.append(f"| {kind} | {faults} | 0 | | | |")
        return "\n".join(lines)


def main() -> None:
    """The command."""
    from tests.servers.mysql import MySQLServer
    from tests.servers.postgresql import PostgreSQLServer
    from tests.servers.sharing import own_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--registry", choices=["sqlite", "mysql", "postgresql"], default="postgresql")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-storm-")))
        if given.registry == "sqlite":
            url = f"sqlite:///{root}/registry.sqlite"
        elif given.registry == "mysql":
            mysql = stack.enter_context(own_server(MySQLServer))
            place = f"{mysql.user}:{mysql.password}@{mysql.host}:{mysql.port}"
            with sa.create_engine(f"mysql+pymysql://{place}/").begin() as connection:
                connection.exec_driver_sql("CREATE DATABASE storm CHARACTER SET utf8mb4")
            url = f"mysql+pymysql://{place}/storm"
        else:
            postgresql = stack.enter_context(own_server(PostgreSQLServer))
            place = f"{postgresql.user}:{postgresql.password}@{postgresql.host}:{postgresql.port}"
            engine = sa.create_engine(f"postgresql+psycopg://{place}/postgres", isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.exec_driver_sql("CREATE DATABASE storm")
            engine.dispose()
            url = f"postgresql+psycopg://{place}/storm"
        (root / "servers").mkdir()
        storm = Storm(
            SharedServers(root / "servers", url),
            seed=given.seed,
            jobs=given.jobs,
            say=lambda text: print(text, flush=True),
        )
        begun = time.monotonic()
        try:
            storm.begin()
            storm.run(given.faults)
            rows = storm.check()
        finally:
            storm.close()
        load = os.getloadavg()
        print(storm.table())
        print(
            f"{given.registry}, seed {given.seed}: {given.faults} faults in {time.monotonic() - begun:.0f} s, {rows} rows, each "
            f"once; no job had two owners; batches of processes that woke up without their job: {storm.late_batches()}; "
            f"load average {load[0]:.1f}, {load[1]:.1f}"
        )


if __name__ == "__main__":
    main()
