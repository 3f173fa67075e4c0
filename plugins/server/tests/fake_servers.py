"""Several servers on one registry, in one process: their clock is moved by hand, their processes of jobs are objects with real leases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import sqlalchemy as sa
from headrace.foundation.clock import ManualClock
from headrace_lease import SqlLeaseStore
from headrace_lease.sql_store import TABLE
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.registry.records import RunnerNote
from headrace_server.registry.shared import note_outcomes, note_runner
from headrace_server.runner.protocol import RunnerAwayError
from headrace_server.runner.specification import RunnerSpecification
from headrace_server.runner.unit_lease import Access
from headrace_server.schedules import metadata as schedule_tables
from headrace_server.sharing.member import Identity, Member, lease_of
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import Supervisor
from server_world import JOB, FakeLauncher, FakeRunner

DURATION = timedelta(seconds=8)


class LeasedRunner(FakeRunner):
    """A runner that holds the lease of its unit, as a real one does. ``renew`` is called by the world as long as its machine runs."""

    def __init__(
        self, specification: RunnerSpecification, launcher: LeasedLauncher, pid: int, token: int | None
    ) -> None:
        self.of = launcher
        self.token: int | None = None
        super().__init__(specification, launcher, pid)
        if token is not None:
            self._hold(token)

    def _hold(self, token: int) -> None:
        self.token = token
        assert self.of.store.extend(lease_of(self.specification.unit), token, DURATION), "the lease is another's"
        note = RunnerNote(
            server=self.of.server, machine=self.of.machine, pid=self.pid, generation=self.specification.generation,
            specification=str(self.of.directory / "run" / str(self.pid)), socket=self.specification.socket, token=token,
        )  # fmt: skip
        with self.of.store.engine.begin() as transaction:
            note_runner(transaction, self.specification.unit, note)

    def ask(self, do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
        if do == "go" and arguments.get("token") is not None and self.alive:
            self._hold(arguments["token"])
        found = super().ask(do, timeout_seconds=timeout_seconds, **arguments)
        if do in ("release", "exit") or not self.alive:
            self._give_back()
        return found

    def _give_back(self) -> None:
        if self.token is not None:
            self.of.store.give_back(lease_of(self.specification.unit), self.token)
            self.token = None

    def renew(self) -> None:
        if not self.alive or self.token is None:
            return
        name = lease_of(self.specification.unit)
        if self.of.store.extend(name, self.token, DURATION):
            return
        token = self.of.store.take(name, self.of.server, DURATION)
        if token == self.token + 1:  # the clock of the database was set forward, and nobody had it in between
            self._hold(token)
            return
        if token is not None:
            self.of.store.give_back(name, token)
        self.alive = False

    def finish(self) -> None:
        """Let the jobs come to the end of their input."""
        self.phases = dict.fromkeys(self.phases, "finished")
        self.alive = False
        with self.of.store.engine.begin() as transaction:
            note_outcomes(transaction, self.specification.unit, dict.fromkeys(self.phases, ("finished", None)))
        self._give_back()


class LeasedLauncher(FakeLauncher):
    """Makes such runners."""

    def __init__(self, store: SqlLeaseStore, server: str, machine: str, directory: Path) -> None:
        super().__init__()
        self.store, self.server, self.machine, self.directory = store, server, machine, directory

    def launch(
        self, specification: RunnerSpecification, file: Path, environment: Mapping[str, str], *, given: bytes = b""
    ) -> RunnerProcess:
        token = msgspec.json.decode(given, type=Access).token if given else None
        made = LeasedRunner(specification, self, next(self._pids), token)
        self.runners.append(made)
        return made

    def find(self, file: Path, *, pid: int, started_seconds: float) -> RunnerProcess:
        raise RunnerAwayError("processes of these tests are found by nobody")


class FakeServer:
    """One of the servers: member, supervisor, runners."""

    def __init__(self, world: FakeServers, name: str) -> None:
        self.world, self.name = world, name
        data = DataDirectory(world.root / name, shared=world.shared)
        identity = Identity(
            name=name, url=f"http://{name}", data=data.identity(), machine=f"machine of {name}", cores=2, version="1",
            reads_jobs=True, directory=data.path,
        )  # fmt: skip
        self.registry = Registry(world.engine, world.clock, further=[schedule_tables], server=name)
        self.member = Member(world.engine, world.clock, identity, lease_duration=DURATION)
        self.member._store._now = world.now_of_database  # nothing expires because the machine is slow
        self.member.join()
        self.registry.note_server(name, pid=1, url=identity.url)
        self.member.describe()
        self.launcher = LeasedLauncher(world.store, name, identity.machine, data.path)
        versions = VersionFiles(data.versions, elsewhere=self.member.tables)
        self.services = Services(
            self.registry, data, versions, self.launcher, world.clock, name, member=self.member
        )  # fmt: skip
        self.supervisor = Supervisor(self.services, world.jobs)

    def step(self) -> None:
        self.member.look(self.registry.jobs())
        for runner in self.launcher.runners:
            assert isinstance(runner, LeasedRunner)
            runner.renew()
        self.supervisor.step()
        self.supervisor.wait_for_roll_outs()

    @property
    def runners(self) -> list[LeasedRunner]:
        """Return the processes of jobs that live."""
        return [each for each in self.launcher.alive if isinstance(each, LeasedRunner)]


class FakeServers:
    """The servers by name. One that is taken out of ``by_name`` is silent, with its processes: paused, or dead."""

    def __init__(self, root: Path, url: str | None = None) -> None:
        self.root, self.jobs, self.shared = root, root / "jobs", root / "shared"
        self.jobs.mkdir()
        self.clock = ManualClock(1_800_000_000.0)
        self.engine = open_engine(url or sqlite_url(root / "registry.sqlite"))
        now = sa.bindparam("now_ms", callable_=lambda: int(self.clock.now() * 1000), type_=sa.BigInteger)
        self.now_of_database = cast("sa.ColumnElement[int]", now)
        self.store = SqlLeaseStore(self.engine, clock=self.now_of_database)
        self.by_name: dict[str, FakeServer] = {}
        self._all: list[FakeServer] = []

    def add(self, name: str) -> FakeServer:
        made = self.by_name[name] = FakeServer(self, name)
        self._all.append(made)
        return made

    def write(self, name: str, text: str = "one", settings: str = "") -> None:
        (self.jobs / "job.yaml").write_text(settings)
        (self.jobs / f"{name}.py").write_text(JOB.format(text), encoding="utf-8")

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        for _ in range(round(seconds / step)):
            for server in list(self.by_name.values()):
                server.step()
            self.clock.advance(step)

    def set_clock_of_database(self, seconds: float) -> None:
        """Set the clock of the database forward or back: all that it has stored is so much older or newer then."""
        moved = TABLE.c.expires_at_ms - int(seconds * 1000)
        with self.engine.begin() as transaction:
            transaction.execute(sa.update(TABLE).where(TABLE.c.expires_at_ms > 0).values(expires_at_ms=moved))

    def runners(self) -> list[tuple[str, LeasedRunner]]:
        """Return the living processes of servers that are not silent, each with its server."""
        return [(name, runner) for name, server in self.by_name.items() for runner in server.runners]

    def owner_of_lease(self, name: str) -> str | None:
        found = self.store.read(name)
        return None if found is None else found.last_holder

    def close(self) -> None:
        self.engine.dispose()
        for each in self._all:
            each.services.data.unlock()
