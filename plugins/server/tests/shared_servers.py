"""Several servers on one registry, as processes, and jobs whose rows tests count."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from headrace.foundation.errors import JobError, RetriableError
from server_processes import COPY, ServerProcess

from tests.eventually import eventually


class SharedServer(ServerProcess):
    """One of several servers: its jobs directory, its registry and the directory of checkpoints are those of all."""

    def __init__(self, world: SharedServers, name: str, machine: str) -> None:
        (world.root / name).mkdir()
        super().__init__(world.root / name)
        self.world = world
        self.name = name
        self.machine = machine
        self.jobs = world.jobs

    def begin(self, *options: str) -> None:
        """Start the server, and wait until it answers."""
        world = self.world
        own = ("--registry", world.url, "--name", self.name, "--shared", str(world.shared), *world.options)
        before = os.environ.get("HEADRACE_MACHINE")
        os.environ["HEADRACE_MACHINE"] = self.machine
        try:
            self.start(*own, *options)
        finally:
            os.environ.pop("HEADRACE_MACHINE") if before is None else os.environ.update(HEADRACE_MACHINE=before)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def runner_pids(self) -> list[int]:
        """Return the processes of jobs that this server has started and that live."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or []
            ours = "headrace_server.runner" in words and words[-1].startswith(str(self.data))
            if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        return found

    def kill_machine(self) -> set[int]:
        """End the server and all that it has started, as a machine that loses its power; return the processes of jobs."""
        pids = set(self.runner_pids())
        self.kill()
        pids |= set(self.runner_pids())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return pids

    def pause_machine(self, *, with_children: bool = True) -> None:
        """Pause the server and all that it has started, as a virtual machine.

        Not in the moment in which a sink has its file of positions locked: a machine of its own would lose that lock after a while
        (docs/several-servers.md), a process of this machine keeps it. ``with_children``: also what processes of jobs have started,
        such as Java.
        """
        while True:
            paused = self._signal_machine(signal.SIGSTOP, with_children=with_children)
            eventually(lambda: all(_is_paused(each) for each in paused), "all are paused", shown=lambda: paused)  # noqa: B023
            if not self._locked_positions() & {each.pid for each in paused}:
                return
            self.continue_machine()

    def continue_machine(self) -> None:
        """Let a paused machine go on."""
        self._signal_machine(signal.SIGCONT, with_children=True)

    def _signal_machine(self, number: signal.Signals, *, with_children: bool) -> list[psutil.Process]:
        found = []
        for pid in [self.pid, *self.runner_pids()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                found += [process, *(process.children(recursive=True) if with_children else ())]
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)
        return found

    def _locked_positions(self) -> set[int]:
        """Return the processes that have a file of positions of a sink locked."""
        files = {each.stat().st_ino for each in self.world.root.glob("out-*/_headrace/state/*")}
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
        return {int(words[4]) for words in locks if int(words[5].rpartition(":")[2]) in files}

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
        for pid in self.runner_pids():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if hasattr(self, "client"):
            self.client.close()


def _is_paused(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class SharedServers:
    """Servers by name. Each has a machine of its own unless a test says otherwise, or the registry is a file."""

    def __init__(self, root: Path, url: str, *options: str) -> None:
        self.root, self.url, self.options = root, url, options
        self.jobs, self.shared = root / "jobs", root / "shared"
        self.jobs.mkdir()
        #: Servers that answer, as far as the test knows. One that was taken out is cleaned up too, with the processes that it has left.
        self.by_name: dict[str, SharedServer] = {}
        self._made: list[SharedServer] = []
        self.counts: dict[str, int] = {}

    @property
    def is_one_machine(self) -> bool:
        """Whether all servers are on one machine, as far as they know."""
        return self.url.startswith("sqlite")

    def lease_for_long(self) -> None:
        """Give leases of minutes where nobody waits for the end of one: on one machine it is known which processes have died.

        With leases of seconds, a job stops if its process cannot renew its lease for some seconds, as on a busy machine. Called before
        servers are added, by tests that know which jobs are stopped.
        """
        if self.is_one_machine:
            self.options = (*self.options, "--lease-duration", "300 s")

    def add(self, name: str, *options: str, machine: str | None = None) -> SharedServer:
        """Start a server."""
        made = self.make(name, machine=machine)
        made.begin(*options)
        return made

    def make(self, name: str, *, machine: str | None = None) -> SharedServer:
        """Return a server that was not started yet."""
        own = "all" if self.is_one_machine else name
        made = self.by_name[name] = SharedServer(self, name, machine or own)
        self._made.append(made)
        return made

    def write_job(self, name: str, settings: str = "") -> None:
        """Write a job that copies its own events, each once."""
        (self.root / f"{name}.ndjson").touch()
        text = COPY.format(events=str(self.root / f"{name}.ndjson"), out=str(self.root / f"out-{name}"), where="n >= 0")
        (self.jobs / f"{name}.py").write_text(text.replace('"copy")', f'"{name}")'))
        # Rows of files are seen when a checkpoint is made.
        often = "" if "options:" in settings else "options: {checkpoint_interval: 500 ms}\n"
        (self.jobs / "job.yaml").write_text("health_window: 300 ms\n" + often + settings)
        self.counts.setdefault(name, 0)

    def add_events(self, name: str, count: int = 100) -> None:
        first = self.counts[name]
        with open(self.root / f"{name}.ndjson", "a") as file:
            file.writelines(f'{{"n": {number}}}\n' for number in range(first, first + count))
        self.counts[name] = first + count

    def rows(self, name: str) -> Counter[int]:
        found: Counter[int] = Counter()
        for part in (self.root / f"out-{name}").glob("*.json"):
            found.update(json.loads(line)["n"] for line in part.read_text().splitlines())
        return found

    def wait_for_rows(self, *names: str) -> None:
        """Wait until all events are in the output, and check that each is there once."""
        for name in names or self.counts:
            count = self.counts[name]
            eventually(lambda: sum(self.rows(name).values()) >= count, f"{count} rows of {name}", shown=self.logs)  # noqa: B023
            assert self.rows(name) == Counter(range(count))

    def ask(self, path: str = "/v1/jobs", *, of: str | None = None) -> Any:
        """Return what a server answers: any that answers, unless one is named."""
        for name, server in self.by_name.items():
            if of in (None, name) and hasattr(server, "client"):
                with contextlib.suppress(RetriableError, JobError, RuntimeError):
                    return server.client.ask("GET", path)
        return None

    def owners(self) -> dict[str, str | None]:
        """Return the server of each running job."""
        return {each["name"]: each["server"] for each in self.ask() or () if each["state"] == "running"}

    def wait_for_owners(self, probe: Any, what: str) -> dict[str, str | None]:
        """Wait until the owners of running jobs are as ``probe`` wants."""
        return eventually(
            lambda: probe(found := self.owners()) and found, what, shown=lambda: (self.ask(), self.logs())
        )

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{server.log()[-6000:]}" for name, server in self.by_name.items())

    def clean_up(self) -> None:
        for server in self._made:
            server.clean_up()


def database_url(request: pytest.FixtureRequest, kind: str, root: Path | None = None) -> str:
    """Return the URL of an empty database of a kind: sqlite, mysql or postgresql."""
    if kind == "sqlite":
        return f"sqlite:///{root}/registry.sqlite"
    server = request.getfixturevalue(f"{kind}_server")
    database = request.getfixturevalue(f"{kind}_database")
    driver = {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg"}[kind]
    return f"{driver}://{server.user}:{server.password}@{server.host}:{server.port}/{database}"
