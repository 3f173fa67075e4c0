"""The server's own work: looks at the jobs directory and at its units again and again, and does what clients ask for."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from headrace_server.jobs_directory.scanning import Scanner
from headrace_server.loop_watch import LoopRounds, LoopWatch
from headrace_server.registry.database import Registry
from headrace_server.registry.records import Desired, JobRecord, VersionState
from headrace_server.supervision.fencing import remove_set_aside
from headrace_server.supervision.going_back import KeptCheckpoint, RollOutNote, read_note
from headrace_server.supervision.job_files import JobFiles
from headrace_server.supervision.job_schedules import JobSchedules
from headrace_server.supervision.job_statuses import WANTED, JobStatuses, is_up
from headrace_server.supervision.reasons import reason_of
from headrace_server.supervision.roll_out import RollOut, RollOutInterruptedError, RollOutReport
from headrace_server.supervision.shared_units import SharedUnits
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import RUNS, Unit

logger = logging.getLogger(__name__)
_TICK_SECONDS = 0.2
DEFAULT_SCAN_INTERVAL = timedelta(seconds=2)
#: How many units load new versions at the same time. One whose import never ends keeps its place until prepare_timeout.
_ROLL_OUTS_MAX = 8
#: The same trouble is logged again after this time.
_SAY_AGAIN_SECONDS = 60.0
_TIDY_SECONDS = 3600.0
#: How long a server that ends waits until others have its units.
_HAND_OVER_SECONDS = 180.0


class Supervisor:
    """Keeps the jobs of a directory as they are wanted. ``run`` is the loop; the other methods may be called from any thread."""

    def __init__(
        self, services: Services, directory: Path, *, scan_interval: timedelta = DEFAULT_SCAN_INTERVAL,
        ext: Path | None = None,
    ) -> None:  # fmt: skip
        self.services = services
        self.directory = directory
        self.units: dict[str, Unit] = {}
        self.statuses = JobStatuses(services, self.units, lambda unit: unit in self._busy)
        self.schedules = JobSchedules(services, self.units, self.statuses.is_resting)
        self._draining = False
        #: None: the server is alone on its registry.
        self.shared_units = None if services.member is None else SharedUnits(self, services, services.member)
        self._scan_seconds = scan_interval.total_seconds()
        self._scanned = self._tidied = float("-inf")
        self._stopping = threading.Event()
        self._on_stop: Literal["stop", "leave"] = "stop"
        self._looped = LoopRounds("supervision", services.clock)
        self.files = JobFiles(services, Scanner(directory, services.clock, ext=ext))
        self._said: tuple[str, float] = ("", 0.0)
        self._roll_outs = ThreadPoolExecutor(max_workers=_ROLL_OUTS_MAX, thread_name_prefix="roll-out")
        self._begun: list[Future[None]] = []
        #: Those that carry out operations other than roll-outs.
        self._threads: list[threading.Thread] = []
        self._busy: set[str] = set()
        self._busy_lock = threading.Lock()
        self.ready = threading.Event()
        self.watch = LoopWatch(services.clock, self._looped, services.loop_of_member)
        #: Why the registry cannot be used; None: it can.
        self.degraded: str | None = None

    # ------------------------------------------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Find the runners of an earlier server, then supervise until ``stop``; drain at the end."""
        self._looped.begin()
        self.find_runners()
        while not self._stopping.is_set():
            self._looped.begin()
            self.step()
            if self.services.member is None or self.services.member.has_looked:
                self.ready.set()
            self.services.clock.wait(self._stopping, _TICK_SECONDS)
        self._looped.end()
        self.schedules.stop()
        self._draining = True
        self._roll_outs.shutdown(wait=True, cancel_futures=True)
        if self._on_stop == "stop":
            if self.services.member is not None:
                self._hand_over()
            self._drain()

    def step(self) -> None:
        """Do one round: the jobs directory if it is time for that, then every unit. After an error the next round tries again."""
        try:
            now = self.services.clock.monotonic()
            if now - self._scanned >= self._scan_seconds:
                self._scanned = now
                self._scan()
            self._tick()
        except (OperationalError, InterfaceError, RetriableError) as error:
            self._be_degraded(str(getattr(error, "orig", error)))
        except (HeadraceError, OSError, SQLAlchemyError) as error:
            self._say_once(str(error))
        else:
            self._be_whole()

    def _be_degraded(self, reason: str) -> None:
        """Record that the registry's database is not available. Job processes continue; nothing is started, stopped or shown."""
        if self.degraded is None:
            logger.error("the registry is not available: jobs continue to run, all other work waits for it: %s", reason)
        self.degraded = reason

    def _be_whole(self) -> None:
        if self.degraded is not None:
            logger.info("the registry is back")
        self.degraded = None

    def _say_once(self, text: str) -> None:
        """Log an error, but not with each round while it lasts: a full disk must not be filled by its own message."""
        now = self.services.clock.monotonic()
        said, when = self._said
        if said != text or now - when >= _SAY_AGAIN_SECONDS:
            logger.error("%s", text)
            self._said = (text, now)

    def stop(self, on_stop: Literal["stop", "leave"] = "stop") -> None:
        """End the loop. ``leave``: the runners continue, and the next server finds them."""
        self._on_stop = on_stop
        self._stopping.set()

    @property
    def ends(self) -> bool:
        """Return whether ``stop`` was called: no new work is taken."""
        return self._stopping.is_set()

    def _tick(self) -> None:
        # Before the jobs are read: a roll-out that ends afterwards makes them old, and nothing may be stopped or started by them.
        known = {name: unit.changes for name, unit in list(self.units.items())}
        # A unit that comes to this server while the jobs are read is entered next round: another server had it when they were read.
        had = frozenset() if self.services.member is None else self.services.member.owned()
        all_jobs = self._all_jobs()
        self._tidy(all_jobs)
        jobs = _by_unit(all_jobs)
        owned = set(jobs) if self.shared_units is None else self.shared_units.entered(jobs, had)
        for name in owned | set(self.units):
            unit = self.unit(name, jobs.get(name, {}))
            changes = known.get(name, 0)
            own = jobs.get(name, {}) if name in owned else {}
            if self.shared_units is not None and (
                self.shared_units.is_given_away(unit) or self._has_just_come(unit, owned)
            ):
                continue
            unit.tick(own, changes=changes)
            missing = unit.missing(own)
            if missing and unit.changes == changes and name not in self._busy and not self._draining:
                self.roll_out_later("add to the running group", missing)
        if self.shared_units is not None and not self._draining:
            self.shared_units.roll_out_offers(jobs, owned)
        if self.services.member is not None:
            processes = {name: unit.runner.pid for name, unit in self.units.items() if unit.runner is not None}
            self.services.member.tell_load(processes)
            self.services.member.publish(self.statuses.of_here(all_jobs), self.refused_files)
        if not self._draining:
            self.schedules.tick(all_jobs)

    def _tidy(self, jobs: Iterable[JobRecord]) -> None:
        """Remove, once an hour, what nobody needs any more."""
        now = self.services.clock.monotonic()
        if now - self._tidied >= _TIDY_SECONDS:
            self._tidied = now
            data, member = self.services.data, self.services.member
            owned = None if member is None else member.owned()
            for job in jobs:
                remove_set_aside(data, job.name, now_seconds=self.services.clock.now())
                own = (owned is None or job.unit in owned) and not self.is_busy(job.unit)
                if own and not data.roll_out_note(job.unit, group=job.unit != job.name).exists():
                    KeptCheckpoint(data, job.name).unguard()  # of a roll-out whose server died

    def _has_just_come(self, unit: Unit, entered: Set[str]) -> bool:
        """Return whether a unit with a process is this server's, but was not yet when its jobs were read: they must not be acted on."""
        member = self.services.member
        return member is not None and unit.runner is not None and unit.name in member.owned() - entered

    def _hand_over(self) -> None:
        """Let other servers have the units of this one, each at a checkpoint; returns when no process of them is left here.

        Units that no other server can have are stopped by the drain that follows.
        """
        member = self.services.member
        assert member is not None
        never, deadline = threading.Event(), self.services.clock.monotonic() + _HAND_OVER_SECONDS
        try:
            member.drain()
            while self.services.clock.monotonic() < deadline:
                self._tick()
                if not member.owned() and all(unit.is_idle for unit in self.units.values()):
                    return
                self.services.clock.wait(never, _TICK_SECONDS)
        except (HeadraceError, SQLAlchemyError) as error:
            logger.warning("units were not handed over; others take them when this server has stopped: %s", error)

    def _drain(self) -> None:
        """Stop all jobs at a checkpoint and wait until their processes have ended."""
        for unit in self.units.values():
            unit.settled.set()  # a watch that had no thread yet: its note is for the next server
            with unit.lock:
                unit.look()
                unit.ask_to_exit()
        nothing: Mapping[str, JobRecord] = {}
        never = threading.Event()
        while any(unit.runner is not None for unit in self.units.values()):
            for unit in self.units.values():
                unit.tick(nothing)
            self.services.clock.wait(never, _TICK_SECONDS)

    def find_runners(self) -> None:
        """Take over the processes of an earlier server that run still, and note the end of the others."""
        registry = self.services.registry
        if self.services.member is not None:  # its units are entered one by one, when it is known which it has
            ended = "the server stopped before it had answered"
            self.services.member.tables.abandon_operations(self.services.server, ended, self.services.clock.now())
            self.services.member.start(registry.jobs)
            return
        registry.abandon_operations("the server stopped before it had answered")
        by_process: dict[str, list[Any]] = defaultdict(list)
        for run in registry.open_runs(self.services.server):
            by_process[run.socket].append(run)
        groups = {job.name: job.unit != job.name for job in registry.jobs()}
        watched = self._notes()
        for address, runs in by_process.items():
            first = runs[0]
            unit = self.unit(first.unit, {}, group=groups.get(first.job, False))
            file = self.services.data.specification(first.unit, Path(address).stem, group=unit.group)
            try:
                runner = self.services.launcher.find(file, pid=first.pid, started_seconds=first.process_started_seconds)
            except JobError as error:
                for run in runs:
                    registry.end_run(run.id, "killed", str(error))
                continue
            logger.info("unit %s: its runner %d is taken over", unit.name, runner.pid)
            unit.adopt(runner, {run.job: run for run in runs})
            if unit.name not in watched:
                self.settle_versions(unit)
        if self.services.cgroups is not None:
            runners = [unit.runner for unit in self.units.values() if unit.runner is not None]
            self.services.cgroups.remove_left({each.specification.control_group or "" for each in runners})
        for name, note in watched.items():
            self.watch_later(self.unit(name, {}, group=note.group), note)

    def _notes(self) -> dict[str, RollOutNote]:
        """Return the roll-outs, by unit, whose new versions an earlier server has not watched to the end."""
        found = {}
        for unit, group in {(job.unit, job.unit != job.name) for job in self.services.registry.jobs()}:
            try:
                note = read_note(self.services.data, unit, group=group)
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("unit %s: the record of its last roll-out cannot be read: %s", unit, error)
                continue
            if note is not None:
                found[unit] = note
        return found

    def settle_versions(self, unit: Unit) -> None:
        """Take the running versions for the wanted ones: no server watches a first version, and the server died as one started."""
        for job, version in unit.running_versions().items():
            record = self.services.registry.job(job)
            if record.current_version != version:
                self.services.registry.judge_version(job, version, VersionState.ACCEPTED)
                self.services.registry.change_job(job, current_version=version)

    # -------------------------------------------------------------------------------------------- the jobs directory

    def _scan(self) -> None:
        member = self.services.member
        if member is not None and not member.reads_jobs_now:
            self.files.forget()
            return
        changes = self.files.scan(self._is_watched, self._refuse_to_move)
        if member is not None:  # the server of each unit rolls out
            for name, number in changes.items():
                member.tables.offer(name, number)
            return
        for of_unit in self._per_unit(changes).values():  # each by itself: one that hangs must not hold up the others
            self.roll_out_later("changed files", of_unit)

    def _is_watched(self, job: JobRecord | None) -> bool:
        """Return whether versions of the job's unit are watched that an earlier server has rolled out."""
        unit = None if job is None else self.units.get(job.unit)
        return unit is not None and not unit.settled.is_set()

    def _refuse_to_move(self, job: JobRecord) -> None:
        """Raise JobError if a job is to change its unit while it runs."""
        unit = self.units.get(job.unit)
        here = unit is not None and job.name in unit.running_versions()
        if here or (self.services.member is not None and self._runs_somewhere(job.name)):
            raise JobError(
                "the group of a job can be changed only while the job is stopped",
                job=job.name, hint=f"headrace stop {job.name}",
            )  # fmt: skip

    def _runs_somewhere(self, name: str) -> bool:
        return any(run.job == name for run in self.services.registry.open_runs())

    @property
    def refused_files(self) -> Mapping[str, str]:
        """Files of the jobs directory that cannot become a version, with the reason."""
        return self.files.refused

    # ------------------------------------------------------------------------------------------------------ roll-outs

    def roll_out(self, changes: Mapping[str, int], operation: str) -> RollOutReport:
        """Roll versions out, unit by unit; returns when that is done. Steps and the result go to the operation."""
        registry = self.services.registry
        report = RollOutReport()
        try:
            for name, of_unit in self._per_unit(changes).items():
                with self._busy_with(name):
                    part = self._roll_out_unit(name, of_unit, operation)
                for each in ("accepted", "refused", "fell_back", "places"):
                    getattr(report, each).update(getattr(part, each))
                if part.gap_seconds is not None:
                    report.gap_seconds = part.gap_seconds
                    report.gap_parts = part.gap_parts
        except RollOutInterruptedError as error:
            registry.end_operation(operation, error=str(error))
            report.interrupted = True
            return report
        except Exception as error:
            registry.end_operation(operation, error=reason_of(error))
            for job, version in changes.items():
                registry.change_job(job, problem=f"version {version} was not rolled out: {reason_of(error)}")
            raise
        _end_operation(registry, operation, report)
        return report

    def _per_unit(self, changes: Mapping[str, int]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for job, version in changes.items():
            found[self.services.registry.job(job).unit][job] = version
        return found

    def _roll_out_unit(self, name: str, changes: Mapping[str, int], operation: str) -> RollOutReport:
        jobs = _by_unit(self._all_jobs()).get(name, {})
        unit = self.unit(name, jobs)
        unit.settled.wait()  # what watches it was submitted before, so it has a thread
        running: dict[str, int | None] = {
            job: record.current_version for job, record in jobs.items() if record.desired is Desired.RUNNING
        }
        roll_out = RollOut(
            unit, self.services, changes=changes, running=running, stopping=self._stopping,
            say=lambda step: self.services.registry.note_step(operation, step),
        )  # fmt: skip
        return roll_out.run()

    def roll_out_later(
        self, kind: str, changes: Mapping[str, int], *, ended: Callable[[bool], None] = lambda done: None
    ) -> str:
        """Roll versions out in a thread; return the id of the operation. ``ended`` is called with whether it was carried out."""
        operation = self.services.registry.begin_operation(kind, changes)
        units = {self.services.registry.job(job).unit for job in changes}

        def work() -> None:
            done = False
            try:
                self._note_busy(units, busy=True)
                done = not self.roll_out(changes, operation).interrupted
            except SQLAlchemyError:
                raise  # it is tried again
            except Exception:
                done = True
                raise
            finally:
                ended(done)
                self._note_busy(units, busy=False)

        self._submit(units, work)
        return operation

    def _note_busy(self, units: Iterable[str], *, busy: bool) -> None:
        """Keep others from moving units for balance while versions of them change."""
        member = self.services.member
        for unit in units if member is not None else ():
            assert member is not None
            member.tables.change_unit(unit, self.services.server, busy=busy)

    def _submit(self, units: Iterable[str], work: Callable[[], Any]) -> None:
        with self._busy_lock:
            self._busy |= set(units)
        begun = self._roll_outs.submit(self._logged, work)
        begun.add_done_callback(lambda ended: self._not_busy(units) if ended.cancelled() else None)
        with self._busy_lock:
            self._begun = [each for each in self._begun if not each.done()] + [begun]

    def watch_later(self, unit: Unit, note: RollOutNote) -> None:
        """Go on watching what an earlier server has rolled out, in a thread. Until it is settled nothing else is done to the unit."""
        registry = self.services.registry
        operation = registry.begin_operation("watch new versions", note.changes)
        unit.settled.clear()

        def carry_out() -> None:
            roll_out = RollOut(
                unit, self.services, changes=note.changes, running=note.before,
                say=lambda step: registry.note_step(operation, step),
            )  # fmt: skip
            try:
                with self._busy_with(unit.name):
                    report = roll_out.watch_on(note)
            except Exception as error:
                # A note that cannot be followed must not be found again later, when its checkpoint is an old one.
                note.remove(self.services.data)
                registry.end_operation(operation, error=reason_of(error))
                raise
            else:
                _end_operation(registry, operation, report)
            finally:
                unit.settled.set()

        self._submit([unit.name], carry_out)

    def wait_for_roll_outs(self) -> None:
        """Wait until no roll-out is under way. Called by tests, and before a drain."""
        with self._busy_lock:
            begun = list(self._begun)
        wait(begun)

    def wait_for_operations(self, timeout: timedelta) -> bool:
        """Wait until no operation is under way, roll-outs among them; return whether that is so before ``timeout``. Called by tests."""
        deadline = time.monotonic() + timeout.total_seconds()
        with self._busy_lock:
            begun, threads = list(self._begun), list(self._threads)
        unfinished = wait(begun, timeout.total_seconds()).not_done
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not unfinished and not any(thread.is_alive() for thread in threads)

    def is_busy(self, unit: str) -> bool:
        """Return whether a roll-out of a unit is under way."""
        return unit in self._busy

    @contextlib.contextmanager
    def _busy_with(self, unit: str) -> Iterator[None]:
        with self._busy_lock:
            self._busy.add(unit)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy.discard(unit)

    def _not_busy(self, units: Iterable[str]) -> None:
        with self._busy_lock:
            self._busy -= set(units)

    @staticmethod
    def _logged(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception:  # the operation says it to the client; here it says it to the log
            logger.exception("an operation has failed")

    # ----------------------------------------------------------------------------------------------- what clients ask

    def begin(self, kind: str, jobs: Iterable[str], work: Callable[[str], Any]) -> str:
        """Do ``work(operation)`` in a thread; return the id of the operation. It ends with what ``work`` returns or raises."""
        registry = self.services.registry
        operation = registry.begin_operation(kind, jobs)

        def carry_out() -> None:
            try:
                result = work(operation)
            except Exception as error:
                registry.end_operation(operation, error=reason_of(error))
                if not isinstance(error, (HeadraceError, TimeoutError)):
                    raise
            else:
                registry.end_operation(operation, result=msgspec.json.encode(result).decode())

        thread = threading.Thread(target=self._logged, args=(carry_out,), name=f"{kind} {operation[:8]}", daemon=True)
        with self._busy_lock:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()
        return operation

    def desire(self, jobs: Iterable[JobRecord], desired: Desired) -> None:
        """Record the wanted state of jobs; the loop acts on it. A start resets the count of failures."""
        chosen = list(jobs)
        for job in chosen:
            if desired in WANTED and not job.present:
                raise JobError("its file is not in the jobs directory", job=job.name, hint="restore the file first")
            if desired in WANTED and job.current_version is None:
                waits = job.problem is None and self.statuses.waits_for_a_person(job)
                hint = f"headrace upgrade {job.name} rolls out its first version" if waits else job.problem
                raise JobError("no version of the job was accepted", job=job.name, hint=hint)
        for job in chosen:
            self.services.registry.change_job(job.name, desired=desired.value, problem=None)
            if desired in WANTED:
                self.services.registry.count_start(job.name)
            unit = self.units.get(job.unit)
            if unit is not None and desired in WANTED:
                unit.begin_anew(job.name)

    def wait_until(self, jobs: Iterable[str], *, runs: bool, timeout: timedelta) -> dict[str, str]:
        """Wait until jobs run, or have ended; return their phases. Raises TimeoutError."""
        names = list(jobs)
        clock, never = self.services.clock, threading.Event()
        deadline = clock.monotonic() + timeout.total_seconds()
        while True:
            # In this order: a run that ends between the two is not reported as running.
            server = self.services.server if self.services.member is None else None
            open_runs = {run.job for run in self.services.registry.open_runs(server)}
            records = [job for job in self.services.registry.jobs() if job.name in names]
            phases = {name: status.state for name, status in self.statuses.of(records).items()}
            if runs and all(is_up(phase, name in open_runs) for name, phase in phases.items()):
                return phases
            # The end of a run is in the registry a moment before its unit forgets it.
            if not runs and not open_runs & set(names) and not RUNS & set(phases.values()):
                return phases
            troubled = [job for job in records if runs and job.problem]
            if troubled:
                raise JobError(str(troubled[0].problem), job=troubled[0].name)
            if clock.monotonic() >= deadline:
                raise TimeoutError(f"after {timeout.total_seconds():g} s: {phases}")
            clock.wait(never, 0.05)

    def phase(self, name: str) -> str:
        """Return the present activity of a job, in one word for people."""
        return self.statuses.of([self.services.registry.job(name)])[name].state

    def ask_runner(self, job: JobRecord, do: str, *, timeout_seconds: float, **arguments: Any) -> Any:
        """Send a request about a job to its runner. Raises JobError if none runs here, and the errors of the runner."""
        unit = self.units.get(job.unit)
        if unit is None or unit.runner is None or job.name not in unit.running_versions():
            raise JobError("the job does not run", job=job.name, hint=f"headrace start {job.name}")
        return unit.runner.ask(do, job=job.name, timeout_seconds=timeout_seconds, **arguments)

    def stop_with_savepoint(self, job: JobRecord, path: Path, *, timeout_seconds: float) -> None:
        """Stop a job at a savepoint; it stays stopped. Raises JobError if it does not run, and the errors of the savepoint."""
        # The lock keeps the loop from starting the job again before it is known that this is not wanted.
        with self.unit(job.unit, {}).held():
            try:
                self.ask_runner(job, "stop", savepoint=str(path), timeout_seconds=timeout_seconds)
            finally:
                self.desire([job], Desired.STOPPED)

    def reset_checkpoint(self, name: str) -> Path:
        """Set the checkpoint of a stopped job aside: its next start is from the beginning. Returns the old one's new place."""
        self.refuse_if_running(name)
        checkpoint = self.services.data.checkpoint(name)
        if not checkpoint.exists():
            raise JobError("the job has no checkpoint", job=name)
        when = int(self.services.clock.now() * 1000)
        aside = checkpoint.with_name(f"checkpoint.{when}")
        os.rename(checkpoint, aside)
        while (older := self.services.data.checkpoint(name)).exists():  # of a process that lost the job
            os.rename(older, older.with_name(f"{older.name}.{when}.old"))
        return aside

    def refuse_if_running(self, name: str) -> None:
        """Raise JobError unless the job is stopped and no process has it."""
        job = self.services.registry.job(name)
        if job.desired in (Desired.RUNNING,) or self._runs_somewhere(name):
            raise JobError("this is possible only while the job is stopped", job=name, hint=f"headrace stop {name}")

    # ---------------------------------------------------------------------------------------------------------- inside

    def _all_jobs(self) -> list[JobRecord]:
        return self.services.registry.jobs()

    def unit(self, name: str, jobs: Mapping[str, JobRecord], *, group: bool | None = None) -> Unit:
        found = self.units.get(name)
        if found is None:
            is_group = group if group is not None else any(job.name != name for job in jobs.values())
            # The loop and a roll-out may make the same one at a time: two of them would start two processes.
            found = self.units.setdefault(name, Unit(name, self.services, group=is_group))
        return found


def _by_unit(jobs: Iterable[JobRecord]) -> dict[str, dict[str, JobRecord]]:
    found: dict[str, dict[str, JobRecord]] = defaultdict(dict)
    for job in jobs:
        found[job.unit][job.name] = job
    return found


def _end_operation(registry: Registry, operation: str, report: RollOutReport) -> None:
    """Record the end of a roll-out: its report, and versions that were refused or rolled back."""
    problems = {**report.refused, **report.fell_back}
    text = "; ".join(f"{job}: {reason}" for job, reason in problems.items())
    registry.end_operation(operation, result=msgspec.json.encode(asdict(report)).decode(), error=text or None)
