"""A server among others on one registry."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import psutil
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, OptionError
from headrace_lease import Lease, LeaseLostError, LeaseRecord, Leases, SignsOfLife, SqlLeaseStore
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from headrace_server.loop_watch import LoopRounds
from headrace_server.registry.records import Desired, JobRecord, JobStatusRecord, RunnerNote, ServerRecord, UnitRecord
from headrace_server.registry.shared import SharedTables
from headrace_server.sharing.leadership import Task
from headrace_server.sharing.load import CoresInUse
from headrace_server.sharing.machines import kill_runner, runs_here
from headrace_server.sharing.spread import WEIGHT, WEIGHT_AT_REST, Load, Place, spread

logger = logging.getLogger(__name__)
_PREFIX = "headrace/"
#: As a server has it that is alone on its registry, and as earlier versions have it.
SCHEDULES_LEASE = f"{_PREFIX}schedules"
_LOOK_SECONDS = 0.5
_PUBLISH_SECONDS = 2.0
#: How long a process of a unit may need from its beginning until it holds its lease.
_START_SECONDS = 60.0
_RENEWALS_PER_DURATION = 5
#: How long the jobs of a server that was stopped with ``leave`` wait for it.
_RESTART_SECONDS = 60.0
#: A unit that was moved for balance stays for so long where it is, if it can: servers that come and go again and again must not stop it
#: each time.
_STAYS_SECONDS = 60.0
#: A unit's load is reported in steps of so many cores, so that noise does not move it.
_CORES_STEP = 0.25


def lease_of(unit: str) -> str:
    """Return the name of a unit's lease: whoever has it runs the unit."""
    return f"{_PREFIX}unit/{unit}"


def _lease_of_server(name: str) -> str:
    return f"{_PREFIX}server/{name}"


@dataclass(frozen=True)
class Identity:
    """What a server tells the others of itself."""

    name: str
    url: str
    data: str
    machine: str
    cores: int
    version: str
    reads_jobs: bool
    #: The data directory.
    directory: Path


@dataclass(frozen=True)
class Taken:
    """A unit's lease that was got. ``fenced``: a process that had it before may wake up, and must not reach the job's files."""

    lease: Lease
    fenced: bool
    #: Another server had it before.
    moved: bool


class Member:
    """This server among the others. ``join`` first, then ``start``, or ``look`` again and again; the rest from any thread.

    What it knows of others is at most a second old. Nothing here proves that this server has a unit still: the unit's lease, which its
    process holds, is what keeps a job from running twice.
    """

    def __init__(
        self, engine: Engine, clock: Clock, identity: Identity, *, lease_duration: timedelta
    ) -> None:  # fmt: skip
        self.identity = identity
        self.tables = SharedTables(engine)
        self.lease_duration = lease_duration
        self._clock = clock
        self._store = SqlLeaseStore(engine)
        self._leases = Leases(self._store)
        self._signs = SignsOfLife(lease_duration, clock=clock)
        self._own: Lease | None = None
        self._renewed = self._published = float("-inf")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        #: Whether it is known which units this server has.
        self.has_looked = False
        self.looped = LoopRounds("other servers", clock)
        self._assigns = Task(self._leases, clock, f"{_PREFIX}assignment", identity.name, lease_duration)
        self._reads = Task(self._leases, clock, f"{_PREFIX}jobs-directory", identity.name, lease_duration)
        self._schedules = Task(self._leases, clock, SCHEDULES_LEASE, identity.name, lease_duration)
        self.reads_jobs_now = False
        self._lock = threading.Lock()
        self._servers: dict[str, ServerRecord] = {}
        self._live: frozenset[str] = frozenset()
        self._units: dict[str, UnitRecord] = {}
        self._records: dict[str, LeaseRecord] = {}
        self._gone_since: dict[str, float] = {}
        #: The token of the lease that was taken last for a process of a unit, and when.
        self._obtained: dict[str, tuple[int, float]] = {}
        #: When a unit was moved last though its server could have kept it.
        self._balanced: dict[str, float] = {}
        self._pinned: set[str] = set()
        self._told: dict[str, bytes] = {}
        self._load_of_units = CoresInUse(clock)
        self._spread_of: tuple[list[Place], list[Load]] | None = None

    # ------------------------------------------------------------------------------------------------ coming, going

    def join(self) -> None:
        """Become a server of the registry. Raises OptionError if another one of the same name lives."""
        self._store.create_table()
        name = _lease_of_server(self.identity.name)
        never = threading.Event()
        holder = f"{self.identity.name} {self.identity.data}"
        begun = self._clock.monotonic()
        first: str | None = None
        while self._own is None:
            asked = self._clock.monotonic()
            seen = self._store.read(name)
            if seen is None or seen.last_holder is None:
                self._own = self._leases.acquire(name, holder=holder, duration=self.lease_duration)
                continue
            self._signs.look([seen], asked=asked)
            # The data directory is ours, by a lock, so whoever had the lease with it before is dead.
            if seen.last_holder == holder or self._signs.gone(seen):
                self._own = self._leases.take_over(seen, holder=holder, duration=self.lease_duration)
            elif (first is not None and first != seen.mark) or asked - begun > 3 * self.lease_duration.total_seconds():
                raise OptionError(
                    f"a server with the name {self.identity.name!r} already uses this registry, with another data directory",
                    option="name",
                    hint="give each server its own name: headrace serve --name NAME",
                )
            first = first or seen.mark
            self._clock.wait(never, _LOOK_SECONDS)
        self._renewed = self._clock.monotonic()

    def others(self) -> list[str]:
        """Return the names of other servers that hold their lease, by the clock of the database. Called before ``join``."""
        self._store.create_table()
        prefix = _lease_of_server("")
        found = [each.name.removeprefix(prefix) for each in self._store.records(prefix) if each.holder is not None]
        return [name for name in found if name != self.identity.name]

    def describe(self) -> None:
        """Tell the others of this server. Called when its row is there."""
        own = self.identity
        self.tables.change_server(
            own.name, data=own.data, machine=own.machine, cores=own.cores, version=own.version, state="serves",
            reads_jobs=own.reads_jobs,
        )  # fmt: skip

    def drain(self) -> None:
        """Let others have the units of this server: whoever assigns them gives it none any more."""
        self.tables.change_server(self.identity.name, state="drains")

    def leave(self, *, restarts: bool) -> None:
        """Give the tasks of this server back. ``restarts``: it keeps its units for a minute, because their processes continue."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        for task in (self._assigns, self._reads, self._schedules):
            task.release()
        if restarts:
            self.tables.change_server(self.identity.name, state="restarts")
        elif self._own is not None:
            self._own.release()
        self._own = None

    # ------------------------------------------------------------------------------------------------------ looking

    def start(self, read_jobs: Callable[[], Iterable[JobRecord]]) -> None:
        """Repeat the check in a separate thread: a job process that does not answer must not make this server look dead."""
        self._thread = threading.Thread(target=self._keep_looking, args=(read_jobs,), name="other servers", daemon=True)
        self._thread.start()

    def _keep_looking(self, read_jobs: Callable[[], Iterable[JobRecord]]) -> None:
        said: str | None = None
        while not self._stopping.is_set():
            self.looped.begin()
            try:
                self.look(read_jobs())
            except (HeadraceError, SQLAlchemyError) as error:
                text = str(getattr(error, "orig", error))
                if text != said:
                    logger.error("the list of servers cannot be read: %s", text)
                said = text
            else:
                said = None
            self._clock.wait(self._stopping, _LOOK_SECONDS)
        self.looped.end()

    def look(self, jobs: Iterable[JobRecord]) -> None:
        """Renew the lease of this server, read how the others are, and assign units if that is the task of this server.

        Raises RetriableError, errors of SQLAlchemy: call again.
        """
        asked = self._clock.monotonic()
        self._renew(asked)
        records = {each.name: each for each in self._store.records(_PREFIX)}
        servers = {each.name: each for each in self.tables.servers()}
        units = self.tables.units()
        self._signs.look(records.values(), asked=asked)
        with self._lock:
            self._servers, self._units, self._records = servers, units, records
            self._live = frozenset(name for name in servers if self._lives(name))
        self.has_looked = True
        if self._assigns.hold(records, self._holder_is_gone):
            self._assign(list(jobs))
        self.reads_jobs_now = self.identity.reads_jobs and self._reads.hold(records, self._holder_is_gone)

    def _renew(self, now: float) -> None:
        if self._own is None or now - self._renewed < self.lease_duration.total_seconds() / _RENEWALS_PER_DURATION:
            return
        try:
            self._own.renew()
        except LeaseLostError:
            # The database's clock was set forward, or this server was paused and is another's by now.
            self._own = None
            self.join()
            self.describe()
        self._renewed = now

    def _lives(self, name: str) -> bool:
        record = self._records.get(_lease_of_server(name))
        return record is not None and record.last_holder is not None and not self._is_dead(name, record)

    def _is_dead(self, name: str, record: LeaseRecord) -> bool:
        if name == self.identity.name:
            return False
        server = self._servers.get(name)
        if server is not None and server.machine == self.identity.machine and not psutil.pid_exists(server.pid):
            return True
        return self._signs.gone(record)

    def _holder_is_gone(self, record: LeaseRecord) -> bool:
        """Return whether the server that had a task is dead, or shows no sign of life by that task's lease."""
        holder = record.last_holder or ""
        if holder == self.identity.name:
            return True  # an earlier life of this server
        return self._signs.gone(record) or holder not in self._live

    def hold_schedules(self) -> Lease | None:
        """Return the lease of the server that starts scheduled jobs, if this is the one. Called by the server's loop.

        Raises RetriableError, errors of SQLAlchemy: call again.
        """
        with self._lock:
            records = self._records
        return (
            self._schedules.lease if self.has_looked and self._schedules.hold(records, self._holder_is_gone) else None
        )

    # ---------------------------------------------------------------------------------------------------- assigning

    def _assign(self, jobs: list[JobRecord]) -> None:
        weights: dict[str, float] = {}
        for job in jobs:
            runs = job.desired is Desired.RUNNING and job.present and job.current_version is not None
            weights[job.unit] = max(weights.get(job.unit, 0.0), WEIGHT if runs else WEIGHT_AT_REST)
        new = sorted(weights.keys() - self._units.keys())
        old = sorted(name for name in self._units.keys() - weights.keys() if not self._is_held(name))
        if new or old:
            self.tables.add_units(new)
            self.tables.remove_units(old)
            return  # the next look sees them
        places = [
            Place(each.name, each.machine or "", each.data or "", each.cores or 1)
            for each in self._servers.values()
            if self._is_place(each)
        ]
        loads = [self._load(each, weights.get(each.unit, WEIGHT_AT_REST)) for each in self._units.values()]
        if self._spread_of == (places, loads):
            return
        wanted = spread(places, loads)
        changed = {name: server for name, server in wanted.items() if server != self._units[name].server}
        if changed:
            names = {each.name for each in places}
            now = self._clock.monotonic()
            self._balanced |= {name: now for name in changed if self._units[name].server in names}
            self._store_assignment(changed)
        else:
            self._spread_of = (places, loads)

    def _store_assignment(self, changed: Mapping[str, str | None]) -> None:
        lease = self._assigns.lease
        if lease is None:
            return
        try:
            with self.tables.engine.begin() as transaction:
                lease.guard(transaction)
                for name, server in sorted(changed.items()):
                    if self.tables.assign(transaction, self._units[name], server):
                        logger.info(
                            "unit %s: %s",
                            name,
                            f"server {server} has it now" if server else "no server can have it now",
                        )
        except LeaseLostError as error:
            logger.warning("%s", error)

    def _load(self, unit: UnitRecord, weight: float) -> Load:
        cores = _step(unit.cores)
        runner = unit.runner
        here = runner.machine if runner is not None and self._is_held(unit.unit) else None
        stays = self._clock.monotonic() - self._balanced.get(unit.unit, float("-inf")) < _STAYS_SECONDS
        return Load(
            unit.unit, weight + (cores if weight >= WEIGHT else 0.0), server=unit.server, machine=here, home=unit.home,
            fixed=unit.busy or stays,
        )  # fmt: skip

    def _is_held(self, unit: str) -> bool:
        record = self._records.get(lease_of(unit))
        return record is not None and record.last_holder is not None

    def _is_place(self, server: ServerRecord) -> bool:
        """Return whether a server can have units: it lives, or will be back in a moment."""
        if server.name in self._live:
            self._gone_since.pop(server.name, None)
            return server.state in ("serves", "restarts")
        record = self._records.get(_lease_of_server(server.name))
        if server.state != "restarts" or record is None or record.last_holder is None:
            return False
        now = self._clock.monotonic()
        return now - self._gone_since.setdefault(server.name, now) < _RESTART_SECONDS

    # -------------------------------------------------------------------------------------------------- what is known

    def owned(self) -> frozenset[str]:
        """Return the units of this server."""
        return frozenset(name for name, each in self._units.items() if each.server == self.identity.name)

    def server_of(self, unit: str) -> ServerRecord | None:
        """Return the server that has a unit; None: no server has it now."""
        with self._lock:
            found = self._units.get(unit)
            return None if found is None or found.server is None else self._servers.get(found.server)

    def unit(self, name: str) -> UnitRecord | None:
        """Return the stored state of a unit."""
        return self._units.get(name)

    def is_live(self, server: str) -> bool:
        """Return whether a server has shown a sign of life."""
        return server in self._live

    def servers(self) -> list[ServerRecord]:
        """Return all servers that were not ended in order."""
        return [
            each for name, each in sorted(self._servers.items()) if each.ended_seconds is None or name in self._live
        ]

    def units(self) -> list[UnitRecord]:
        """Return all units."""
        return list(self._units.values())

    def seen_seconds_ago(self, server: str) -> float:
        """Return how long ago a server has shown a sign of life, as far as this one has watched."""
        return 0.0 if server == self.identity.name else self._signs.silent_seconds(_lease_of_server(server))

    def reader(self) -> ServerRecord | None:
        """Return the server that reads the jobs directory now."""
        record = self._records.get(f"{_PREFIX}jobs-directory")
        return self._servers.get(record.last_holder) if record is not None and record.last_holder else None

    def why_without_server(self, unit: str) -> str:
        """Return why no server has a unit, for people."""
        found = self._units.get(unit)
        if found is None or found.home is None:
            return "it waits for a server" if self._live else "no server runs"
        where = next((each for each in self._servers.values() if each.data == found.home), None)
        name = "a server that is not known any more" if where is None else f"the server {where.name!r}"
        return (
            f"its state lies on the local disk of {name}, which does not run: start that server, or keep the state where all servers "
            "reach it (docs: several servers)"
        )

    # --------------------------------------------------------------------------------------------------- unit leases

    def is_leased(self, unit: str) -> bool:
        """Return whether a unit can be run by several servers, so that its process needs a lease."""
        found = self._units.get(unit)
        return unit not in self._pinned and (found is None or found.home is None)

    def pin(self, unit: str) -> None:
        """Note that only this server can run a unit, as its state lies on a local disk."""
        if self.is_leased(unit):
            self.tables.change_unit(unit, self.identity.name, home=self.identity.data)
            self._pinned.add(unit)
            logger.warning(
                "unit %s: its state is on the local disk of this server, so no other server can run it; start the servers with --shared, "
                "or write movable: true into job.yaml if the job needs nothing from the disk", unit
            )  # fmt: skip

    def runner_here(self, unit: str) -> RunnerNote | None:
        """Return the living process of a unit, if it is on this machine and shows signs of life."""
        record, found = self._records.get(lease_of(unit)), self._units.get(unit)
        if record is None or record.last_holder is None or found is None or found.runner is None:
            return None
        note = found.runner
        fits = note.token == record.token and note.machine == self.identity.machine
        return note if fits and runs_here(note) and not self._signs.gone(record) else None

    def has_neighbour_with(self, unit: str) -> bool:
        """Return whether another living server of this machine has a unit."""
        server = self.server_of(unit)
        if server is None or server.name == self.identity.name or not self.is_live(server.name):
            return False
        return server.machine == self.identity.machine and server.state == "serves"

    def is_silent(self, unit: str, token: int | None, pid: int) -> bool:
        """Return whether a process of this server, which was given a token, has not renewed its lease for the whole duration.

        A process that starts gets more time: on a busy machine an interpreter may need longer than a lease lasts before it holds it.
        """
        record = self._records.get(lease_of(unit))
        if record is None or record.last_holder is None or not self._signs.gone(record):
            return False
        found = self._units.get(unit)
        note = None if found is None else found.runner
        if note is not None and note.token == record.token:
            # Its token differs from the given one if the database's clock was set forward: it has acquired its lease again.
            return (note.machine, note.pid) == (self.identity.machine, pid)
        if record.token != token:
            return False
        obtained, since = self._obtained.get(unit, (None, 0.0))
        return obtained != token or self._clock.monotonic() - since > _START_SECONDS

    def is_free(self, unit: str) -> bool:
        """Return whether no process can be running a unit: its lease was released, or its holder is gone."""
        record = self._records.get(lease_of(unit))
        return record is None or record.last_holder is None or self._note_of_dead(record) or self._signs.gone(record)

    def _note_of_dead(self, record: LeaseRecord) -> bool:
        """Return whether the process with a lease was on this machine and is not there any more."""
        found = self._units.get(record.name.removeprefix(lease_of("")))
        note = None if found is None else found.runner
        if note is None or note.token != record.token or note.machine != self.identity.machine:
            return False
        return not runs_here(note)

    def obtain(self, unit: str, *, dead_token: int | None = None) -> Taken | None:
        """Take the lease of a unit for a process that is to run it. None: somebody may be running it.

        ``dead_token``: that of a process of this server which has ended. A process on this machine that shows no sign of life, such as
        one that was paused, is killed first.
        """
        name, holder = lease_of(unit), self.identity.name
        if not self.tables.has(unit, holder):
            return None
        seen = self._store.read(name)
        moved = self._was_elsewhere(unit)
        if seen is None or seen.last_holder is None:
            return self._taken(
                unit, self._leases.acquire(name, holder=holder, duration=self.lease_duration), moved=moved
            )
        known_dead = seen.token == dead_token or self._note_of_dead(seen)
        if not known_dead:
            if not self._signs.gone(seen):
                return None
            known_dead = self._killed(unit, seen)
        lease = self._leases.take_over(seen, holder=holder, duration=self.lease_duration)
        return self._taken(unit, lease, moved=moved, fenced=not known_dead)

    def _taken(self, unit: str, lease: Lease | None, *, moved: bool, fenced: bool = False) -> Taken | None:
        if lease is None:
            return None
        self._obtained[unit] = lease.token, self._clock.monotonic()
        return Taken(lease, fenced=fenced, moved=moved)

    def _was_elsewhere(self, unit: str) -> bool:
        """Return whether the last process of a unit belonged to a server with another data directory."""
        found = self._units.get(unit)
        note = None if found is None else found.runner
        return note is not None and not Path(note.specification).is_relative_to(self.identity.directory)

    def _killed(self, unit: str, seen: LeaseRecord) -> bool:
        found = self._units.get(unit)
        note = None if found is None else found.runner
        if note is None or note.token != seen.token or note.machine != self.identity.machine:
            return False
        if runs_here(note):
            logger.warning("unit %s: its process %d does not respond and is killed", unit, note.pid)
        return kill_runner(note, self._clock)

    # ------------------------------------------------------------------------------------------------------- telling

    def tell_load(self, processes: Mapping[str, int]) -> None:
        """Measure the resources of the units' processes from time to time, and report them to the server that assigns units."""
        for unit, cores in self._load_of_units.measured(processes).items():
            known = self._units.get(unit)
            if known is not None and _step(known.cores) != _step(cores):
                self.tables.change_unit(unit, self.identity.name, cores=cores)

    def publish(self, statuses: Mapping[str, JobStatusRecord], refused_files: Mapping[str, str]) -> None:
        """Report the state of this server's jobs to the other servers every two seconds; only changes are reported."""
        now = self._clock.monotonic()
        if now - self._published < _PUBLISH_SECONDS:
            return
        self._published = now
        found = {job: msgspec.json.encode(status, enc_hook=str) for job, status in statuses.items()}
        changed = {job: text for job, text in found.items() if self._told.get(job) != text}
        if changed:
            self.tables.put_statuses(self.identity.name, changed)
        self._told = found
        if self.reads_jobs_now:
            text = msgspec.json.encode(refused_files).decode()
            own = self._servers.get(self.identity.name)
            if own is not None and own.refused_files != text:
                self.tables.change_server(self.identity.name, refused_files=text)


def _step(cores: float | None) -> float:
    """Return a number of cores in coarse steps."""
    return round((cores or 0.0) / _CORES_STEP) * _CORES_STEP
