"""A supervisor whose clock is moved by hand and whose runners are objects instead of processes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from access_world import HASHER
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError
from headrace_server.access import AuditLog, Authority
from headrace_server.access import metadata as access_tables
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.loop_watch import stacks_of_threads
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.runner.specification import JobOutcome, RunnerSpecification
from headrace_server.schedules import metadata as schedule_tables
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.processes import Launcher, RunnerProcess
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import Supervisor
from headrace_server.web.application import guarded_app
from starlette.types import ASGIApp

from tests.eventually import PATIENCE_SECONDS

JOB = "import headrace as hr\njob = None  # {0}\n"
_PATIENCE = timedelta(seconds=PATIENCE_SECONDS)


class FakeRunner(RunnerProcess):
    """A runner that does at once what it is asked. ``refuses`` and ``fails`` are versions, by the text of their job's file."""

    def __init__(self, specification: RunnerSpecification, launcher: FakeLauncher, pid: int) -> None:
        self.specification = specification
        self.pid = pid
        self.started_seconds = float(pid)
        self.launcher = launcher
        self.alive = True
        self.answers = True
        self.asked: list[str] = []
        self.phases = {job.name: "loading" for job in specification.jobs}
        self.errors: dict[str, str | None] = {job.name: None for job in specification.jobs}
        self.figures: dict[str, Any] = {
            "records_read": 10, "dead_letters": 0, "rows_written": {"out": 10}, "rows_skipped": 0, "checkpoint_id": 7,
            "seconds": 1.0, "queues": [{"queue": "s/q", "offset": 10, "lag": 0}],
        }  # fmt: skip
        for job in specification.jobs:
            text = Path(job.file).read_text(encoding="utf-8")
            if "refused" in text:
                self.phases[job.name], self.errors[job.name] = "refused", "unknown column"
            elif specification.wait:
                self.phases[job.name] = "prepared"
        if not specification.wait:
            self._go()

    def _go(self) -> None:
        for job in self.specification.jobs:
            if self.phases[job.name] in ("loading", "prepared"):
                text = Path(job.file).read_text(encoding="utf-8")
                self.phases[job.name] = "failed" if "fails" in text else "running"
                self.errors[job.name] = "no such table" if "fails" in text else None
                if "all bad" in text:
                    self.figures |= {"dead_letters": 10, "rows_written": {"out": 0}}
        self._end_if_done()

    def _end_if_done(self) -> None:
        """End the process of a single job with its job."""
        if not self.specification.group and set(self.phases.values()) <= {"stopped", "finished", "failed", "refused"}:
            self.alive = False

    def ask(self, do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
        if not (self.alive and self.answers):
            raise RunnerAwayError("nobody listens")
        self.asked.append(do)
        if do == "go":
            self._go()
        elif do == "plan":
            job = next(each for each in self.specification.jobs if each.name == arguments["job"])
            pipeline = "t.same" if "same pipeline" in Path(job.file).read_text(encoding="utf-8") else f"t.{job.name}"
            text = Path(job.file).read_text(encoding="utf-8")
            outside = "in topics" if "in topics" in text else None
            return {"text": "the plan", "job": pipeline, "definitions": {"sum": {}}, "state_outside": outside,
                    "notices": ["a hint has no effect"] if "hint" in text else []}  # fmt: skip
        elif do == "compare":
            job = next(each for each in self.specification.jobs if each.name == arguments["job"])
            if "other state" in Path(job.file).read_text(encoding="utf-8"):
                raise RefusedError("the state does not fit")
            return []
        elif do == "stop":
            self.phases[arguments["job"]] = "stopped"
            self._end_if_done()
            return self._status(arguments["job"])
        elif do == "start":
            self.phases[arguments["job"]] = "running"
        elif do == "exit":
            self.phases = dict.fromkeys(self.phases, "stopped")
            self.alive = False
        return {"jobs": {name: self._status(name) for name in self.phases}}

    def _status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"phase": self.phases[name], "error": self.errors[name], "version": 1}
        return found if self.phases[name] in ("loading", "prepared", "refused") else {**found, "figures": self.figures}

    def is_alive(self) -> bool:
        return self.alive

    def kill(self) -> None:
        self.alive = False

    def release(self) -> None:
        return

    def outcomes(self) -> Mapping[str, JobOutcome]:
        ended = {"stopped", "finished", "failed", "refused"}
        return {
            name: JobOutcome(outcome=phase, reason=self.errors[name]) if phase in ended
            else JobOutcome(outcome="killed", reason="the process was ended by SIGKILL")
            for name, phase in self.phases.items()
        }  # fmt: skip


class FakeLauncher(Launcher):
    """Makes such runners and keeps them. ``environments`` are those that they were given."""

    def __init__(self) -> None:
        self.runners: list[FakeRunner] = []
        #: Several roll-outs launch at the same time, each in a thread of its own.
        self._pids = itertools.count(1)
        self.environments: list[Mapping[str, str]] = []

    @property
    def alive(self) -> list[FakeRunner]:
        return [runner for runner in self.runners if runner.alive]

    def launch(
        self, specification: RunnerSpecification, file: Path, environment: Mapping[str, str], *, given: bytes = b""
    ) -> RunnerProcess:
        self.environments.append(environment)
        self.runners.append(FakeRunner(specification, self, next(self._pids)))
        return self.runners[-1]

    def find(self, file: Path, *, pid: int, started_seconds: float) -> RunnerProcess:
        for runner in self.runners:
            if runner.pid == pid:
                return runner
        raise JobError("lost")


class World:
    """A supervisor, and the directory of jobs that it watches. ``pass_time`` moves the clock and lets the loop look."""

    def __init__(self, root: Path, launcher: FakeLauncher | None = None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.launcher = launcher or FakeLauncher()
        self.jobs = root / "jobs"
        self.jobs.mkdir(exist_ok=True)
        data = DataDirectory(root / "data")
        engine = open_engine(sqlite_url(data.path / "registry.sqlite"))
        self.registry = Registry(engine, self.clock, further=[access_tables, schedule_tables])
        self.authority = Authority(engine, self.clock, hasher=HASHER)
        self.audit = AuditLog(engine, self.clock)
        services = Services(self.registry, data, VersionFiles(data.versions), self.launcher, self.clock, "main")
        self.supervisor = Supervisor(services, self.jobs)
        self.services = services

    def app(self) -> ASGIApp:
        """Return the application as a server has it."""
        return guarded_app(self.supervisor, self.authority, self.audit)

    def write(self, name: str, text: str = "one") -> None:
        """Write the file of a job."""
        file = self.jobs / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(JOB.format(text), encoding="utf-8")

    def pass_time(self, seconds: float = 6.0, step: float = 1.0) -> None:
        """Let the loop look again and again; roll-outs that begin are carried out before the next look."""
        passed = 0.0
        while passed < seconds:
            self.supervisor.step()
            self.supervisor.wait_for_roll_outs()
            self.clock.advance(step)
            passed += step
        self.supervisor.step()

    @property
    def runner(self) -> FakeRunner:
        """The only runner that is alive."""
        [found] = self.launcher.alive
        return found

    def close(self) -> None:
        """Close the database, and leave nothing outside of the test's directory."""
        # One that is under way may hold a connection, which nobody would close.
        assert self.supervisor.wait_for_operations(_PATIENCE), stacks_of_threads()
        self.registry.engine.dispose()
        self.services.data.unlock()
