"""The server's own work: looks at the jobs directory and at its units again and again, and does what clients ask for."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
from headrace.foundation.errors import HeadraceError, JobError
from sqlalchemy.exc import SQLAlchemyError

from headrace_server.jobs_directory.scanning import FoundJob, Scanner, Unusable
from headrace_server.registry.database import Registry
from headrace_server.registry.records import Desired, JobRecord, VersionRecord, VersionState
from headrace_server.supervision.going_back import RollOutNote, read_note
from headrace_server.supervision.job_schedules import JobSchedules
from headrace_server.supervision.roll_out import RollOut, RollOutInterruptedError, RollOutReport
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import RUNS, Unit

logger = logging.getLogger(__name__)
_TICK_SECONDS = 0.2
DEFAULT_SCAN_INTERVAL = timedelta(seconds=2)
#: A file that changes is taken when it has stayed the same for this many looks: an editor may not have written all of it.
_QUIET_LOOKS = 2
_REMOVED = "its file was removed"
#: How many units load new versions at the same time. One whose import never ends keeps its place until prepare_timeout.
_ROLL_OUTS_MAX = 8
#: The same trouble is logged again after this time.
_SAY_AGAIN_SECONDS = 60.0

_WANTED = frozenset({Desired.RUNNING, Desired.SCHEDULED})


class Supervisor:
    """Keeps the jobs of a directory as they are wanted. ``run`` is the loop; the other methods may be called from any thread."""

    def __init__(
        self, services: Services, directory: Path, *, scan_interval: timedelta = DEFAULT_SCAN_INTERVAL,
        ext: Path | None = None,
    ) -> None:  # fmt: skip
        self.services = services
        self.directory = directory
        self.units: dict[str, Unit] = {}
        self.schedules = JobSchedules(services, self.units)
        self._scan_seconds = scan_interval.total_seconds()
        self._scanned = float("-inf")
        self._stopping = threading.Event()
        self._on_stop: Literal["stop", "leave"] = "stop"
        self._scanner = Scanner(directory, services.clock, ext=ext)
        self._seen: dict[str, tuple[str, int]] = {}
        #: By job, the content that is its newest version: the registry need not be asked again.
        self._stored: dict[str, str] = {}
        #: New versions that this server has begun to roll out. Others are left from a server that was killed.
        self._offered: set[tuple[str, int]] = set()
        self._missed: dict[str, int] = {}
        self._said: tuple[str, float] = ("", 0.0)
        self._refused_files: dict[str, str] = {}
        self._roll_outs = ThreadPoolExecutor(max_workers=_ROLL_OUTS_MAX, thread_name_prefix="roll-out")
        self._begun: list[Future[None]] = []
        self._busy: set[str] = set()
        self._busy_lock = threading.Lock()
        self.ready = threading.Event()
        #: Called before a version is stored, with the record and the files. What it raises keeps the version from being stored.
        self.new_version: Callable[[VersionRecord, Mapping[str, bytes]], None] = lambda record, files: None
        #: By job, what was submitted last and by whom, until it has become a version.
        self._submitted: dict[str, tuple[bytes, str]] = {}

    # ------------------------------------------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Find the runners of an earlier server, then supervise until ``stop``; drain at the end."""
        self.find_runners()
        while not self._stopping.is_set():
            self.step()
            self.ready.set()
            self.services.clock.wait(self._stopping, _TICK_SECONDS)
        self.schedules.stop()
        self._roll_outs.shutdown(wait=True, cancel_futures=True)
        if self._on_stop == "stop":
            self._drain()

    def step(self) -> None:
        """Do one round: the jobs directory if it is time for that, then every unit. After an error the next round tries again."""
        try:
            now = self.services.clock.monotonic()
            if now - self._scanned >= self._scan_seconds:
                self._scanned = now
                self._scan()
            self.schedules.tick()
            self._tick()
        except (HeadraceError, OSError, SQLAlchemyError) as error:
            self._say_once(str(error))

    def _say_once(self, text: str) -> None:
        """Log an error, but not with each round while it lasts: a full disk must not be filled by its own message."""
        now = self.services.clock.monotonic()
        said, when = self._said
        if said != text or now - when >= _SAY_AGAIN_SECONDS:
            logger.error("%s", text)
            self._said = (text, now)

    def stop(self, on_stop: Literal["stop", "leave"] = "stop") -> None:
        """End the loop. ``leave``: the runners go on, for the next server to find."""
        self._on_stop = on_stop
        self._stopping.set()

    @property
    def ends(self) -> bool:
        """Return whether ``stop`` was called: no new work is taken."""
        return self._stopping.is_set()

    def _tick(self) -> None:
        # Before the jobs are read: a roll-out that ends afterwards makes them old, and nothing may be stopped or started by them.
        known = {name: unit.changes for name, unit in list(self.units.items())}
        jobs = self._jobs_by_unit()
        for name in set(jobs) | set(self.units):
            unit = self._unit(name, jobs.get(name, {}))
            changes = known.get(name, 0)
            unit.tick(jobs.get(name, {}), changes=changes)
            missing = unit.missing(jobs.get(name, {}))
            if missing and unit.changes == changes and name not in self._busy:
                self.roll_out_later("add to the running group", missing)

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
        registry.abandon_operations("the server has ended meanwhile")
        by_process: dict[str, list[Any]] = defaultdict(list)
        for run in registry.open_runs(self.services.server):
            by_process[run.socket].append(run)
        groups = {job.name: job.unit != job.name for job in registry.jobs()}
        watched = self._notes()
        for address, runs in by_process.items():
            first = runs[0]
            unit = self._unit(first.unit, {}, group=groups.get(first.job, False))
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
                self._settle_versions(unit)
        if self.services.cgroups is not None:
            runners = [unit.runner for unit in self.units.values() if unit.runner is not None]
            self.services.cgroups.remove_left({each.specification.control_group or "" for each in runners})
        for name, note in watched.items():
            self._watch_later(self._unit(name, {}, group=note.group), note)

    def _notes(self) -> dict[str, RollOutNote]:
        """Return the roll-outs, by unit, whose new versions an earlier server has not watched to the end."""
        found = {}
        for unit, group in {(job.unit, job.unit != job.name) for job in self.services.registry.jobs()}:
            try:
                note = read_note(self.services.data, unit, group=group)
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("unit %s: the note of its last roll-out cannot be read: %s", unit, error)
                continue
            if note is not None:
                found[unit] = note
        return found

    def _settle_versions(self, unit: Unit) -> None:
        """Take what runs for what is wanted: a first version, which no server watches, was under way when the server died."""
        for job, version in unit.running_versions().items():
            record = self.services.registry.job(job)
            if record.current_version != version:
                self.services.registry.judge_version(job, version, VersionState.ACCEPTED)
                self.services.registry.change_job(job, current_version=version)

    # -------------------------------------------------------------------------------------------- the jobs directory

    def _scan(self) -> None:
        found, unusable = self._scanner.scan()
        known = {job.name: job for job in self.services.registry.jobs()}
        changes: dict[str, int] = {}
        for each in found:
            if self._is_watched(known.get(each.name)):
                continue  # what is new still may be judged in a moment, and must not be rolled out once more
            number = self._taken(each, known.get(each.name))
            if number is None:
                continue
            chosen = number if each.settings.roll_out == "automatic" else self._accepted_before(each.name)
            if chosen is not None:
                changes[each.name] = chosen
        for broken in unusable:
            self._note_unusable(broken, known)
        lies_there = {each.name for each in found}
        for job in known.values():
            if job.name in lies_there or any(each.covers(job.name) for each in unusable):
                self._missed.pop(job.name, None)
            elif job.present:
                self._note_missing(job)
        by_unit: dict[str, dict[str, int]] = defaultdict(dict)
        for name, number in changes.items():
            self._offered.add((name, number))
            by_unit[self.services.registry.job(name).unit][name] = number
        for of_unit in by_unit.values():  # each by itself: one that hangs must not hold up the others
            self.roll_out_later("changed files", of_unit)

    def _is_watched(self, job: JobRecord | None) -> bool:
        """Return whether versions of the job's unit are watched that an earlier server has rolled out."""
        unit = None if job is None else self.units.get(job.unit)
        return unit is not None and not unit.settled.is_set()

    def _note_missing(self, job: JobRecord) -> None:
        """Stop a job whose file is gone for two looks: programs replace a file by removing it first."""
        self._missed[job.name] = self._missed.get(job.name, 0) + 1
        if self._missed[job.name] < _QUIET_LOOKS:
            return
        ran = job.desired is Desired.RUNNING
        desired = Desired.STOPPED if ran else job.desired
        self._stored.pop(job.name, None)
        self.services.registry.change_job(
            job.name, present=False, desired=desired.value, problem=_REMOVED if ran else job.problem
        )

    def _taken(self, found: FoundJob, known: JobRecord | None) -> int | None:
        """Make a version of a file that is new or has changed, and return its number. None: nothing is new, or it still changes."""
        hash_before, looks = self._seen.get(found.name, ("", 0))
        looks = looks + 1 if hash_before == found.content_hash else 1
        self._seen[found.name] = (found.content_hash, looks)
        self._refused_files.pop(found.name, None)
        if known is not None and not known.present:
            back = {"desired": Desired.RUNNING.value} if known.problem == _REMOVED else {}
            # Another job may have its pipeline by now, so its version is rolled out again instead of being started.
            self.services.registry.change_job(found.name, present=True, problem=None, current_version=None, **back)
            known = self.services.registry.job(found.name)
            self._offered = {each for each in self._offered if each[0] != found.name}
        if self._stored.get(found.name) == found.content_hash:
            return None
        versions = self.services.registry.versions(found.name) if known is not None else []
        if versions and versions[0].content_hash == found.content_hash:
            self._stored[found.name] = found.content_hash
            return self._left_over(known, versions)
        if looks < _QUIET_LOOKS and versions:
            return None
        unit = found.settings.group or found.name
        if known is None:
            begun = Desired.RUNNING if found.settings.schedule is None else Desired.SCHEDULED
            desired = begun if found.settings.start else Desired.STOPPED
            self.services.registry.add_job(found.name, desired=desired, labels=found.settings.labels, unit=unit)
        elif known.unit != unit:
            raise_if_running(self.units.get(known.unit), found.name)
        self.services.registry.change_job(found.name, labels=found.settings.labels, unit=unit)
        return self._store_version(found)

    def _left_over(self, job: JobRecord | None, versions: Sequence[VersionRecord]) -> int | None:
        """Return the version of an unchanged file that is to be rolled out, if any: a new one that a server that was killed has left,
        or the last accepted one of a job whose file has come back."""
        left: VersionRecord | None = versions[0] if versions[0].state is VersionState.NEW else None
        if left is None and job is not None and job.current_version is None:
            left = _last_accepted(versions)
        return left.number if left is not None and (left.job, left.number) not in self._offered else None

    def _accepted_before(self, job: str) -> int | None:
        """Return the version to run of a job whose versions wait for ``headrace upgrade``: the last accepted one, if none is present.

        It is so when the file of a job has come back. What no person has rolled out so far waits.
        """
        if self.services.registry.job(job).current_version is not None:
            return None
        found = _last_accepted(self.services.registry.versions(job))
        return None if found is None else found.number

    def _store_version(self, found: FoundJob) -> int:
        number = self.services.registry.next_version(found.name)
        hashes = self.services.versions.store(found.name, number, found.files)
        record = VersionRecord(
            job=found.name, number=number, content_hash=found.content_hash, state=VersionState.NEW, reason=None,
            settings=msgspec.json.encode(found.settings).decode(), files=hashes, plan=None,
            author=self._author_of(found), note=None, created_seconds=self.services.clock.now(),
        )  # fmt: skip
        self.new_version(record, found.files)
        self.services.registry.add_version(record)
        self._submitted.pop(found.name, None)
        logger.info("job %s: version %d", found.name, number)
        return number

    def note_author(self, job: str, content: bytes, author: str) -> None:
        """Note who has submitted a job's file, for the version that is made of it. Called before the file is written."""
        self._submitted[job] = (content, author)

    def _author_of(self, found: FoundJob) -> str | None:
        content, author = self._submitted.get(found.name, (b"", ""))
        return author if author and found.files.get(found.file.name) == content else None

    def _note_unusable(self, broken: Unusable, known: Mapping[str, JobRecord]) -> None:
        if self._refused_files.get(broken.name) == broken.reason:
            return
        self._refused_files[broken.name] = broken.reason
        logger.error("%s: %s", broken.name, broken.reason)
        if broken.name in known:
            self.services.registry.change_job(broken.name, problem=broken.reason)

    @property
    def refused_files(self) -> Mapping[str, str]:
        """Files of the jobs directory that cannot become a version, with the reason."""
        return dict(self._refused_files)

    # ------------------------------------------------------------------------------------------------------ roll-outs

    def roll_out(self, changes: Mapping[str, int], operation: str) -> RollOutReport:
        """Roll versions out, unit by unit; returns when that is done. Steps and the result go to the operation."""
        registry = self.services.registry
        report = RollOutReport()
        try:
            by_unit: dict[str, dict[str, int]] = defaultdict(dict)
            for job, version in changes.items():
                by_unit[registry.job(job).unit][job] = version
            for name, of_unit in by_unit.items():
                with self._busy_with(name):
                    part = self._roll_out_unit(name, of_unit, operation)
                for each in ("accepted", "refused", "fell_back", "places"):
                    getattr(report, each).update(getattr(part, each))
                if part.gap_seconds is not None:
                    report.gap_seconds = part.gap_seconds
        except RollOutInterruptedError as error:
            registry.end_operation(operation, error=str(error))
            return report
        except Exception as error:
            registry.end_operation(operation, error=str(error) or repr(error))
            for job, version in changes.items():
                registry.change_job(job, problem=f"version {version} was not rolled out: {error!r}")
            raise
        _end_operation(registry, operation, report)
        return report

    def _roll_out_unit(self, name: str, changes: Mapping[str, int], operation: str) -> RollOutReport:
        jobs = self._jobs_by_unit().get(name, {})
        unit = self._unit(name, jobs)
        unit.settled.wait()  # what watches it was submitted before, so it has a thread
        running: dict[str, int | None] = {
            job: record.current_version for job, record in jobs.items() if record.desired is Desired.RUNNING
        }
        roll_out = RollOut(
            unit, self.services, changes=changes, running=running, stopping=self._stopping,
            say=lambda step: self.services.registry.note_step(operation, step),
        )  # fmt: skip
        return roll_out.run()

    def roll_out_later(self, kind: str, changes: Mapping[str, int]) -> str:
        """Roll versions out in a thread; return the id of the operation."""
        operation = self.services.registry.begin_operation(kind, changes)
        units = {self.services.registry.job(job).unit for job in changes}
        self._submit(units, lambda: self.roll_out(changes, operation))
        return operation

    def _submit(self, units: Iterable[str], work: Callable[[], Any]) -> None:
        with self._busy_lock:
            self._busy |= set(units)
        begun = self._roll_outs.submit(self._logged, work)
        with self._busy_lock:
            self._begun = [each for each in self._begun if not each.done()] + [begun]

    def _watch_later(self, unit: Unit, note: RollOutNote) -> None:
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
                registry.end_operation(operation, error=str(error) or repr(error))
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

    @contextlib.contextmanager
    def _busy_with(self, unit: str) -> Iterator[None]:
        with self._busy_lock:
            self._busy.add(unit)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy.discard(unit)

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
                registry.end_operation(operation, error=str(error) or repr(error))
                if not isinstance(error, (HeadraceError, TimeoutError)):
                    raise
            else:
                registry.end_operation(operation, result=msgspec.json.encode(result).decode())

        threading.Thread(target=self._logged, args=(carry_out,), name=f"{kind} {operation[:8]}", daemon=True).start()
        return operation

    def desire(self, jobs: Iterable[JobRecord], desired: Desired) -> None:
        """Note what is wanted of jobs; the loop sees to it. A start begins to count failures anew."""
        chosen = list(jobs)
        for job in chosen:
            if desired in _WANTED and not job.present:
                raise JobError("its file does not lie in the jobs directory", job=job.name, hint="put it back first")
            if desired in _WANTED and job.current_version is None:
                waits = job.problem is None and self._waits_for_a_person(job)
                hint = f"headrace upgrade {job.name} rolls out its first version" if waits else job.problem
                raise JobError("no version of it was accepted", job=job.name, hint=hint)
        for job in chosen:
            self.services.registry.change_job(job.name, desired=desired.value, problem=None)
            unit = self.units.get(job.unit)
            if unit is not None and desired in _WANTED:
                unit.begin_anew(job.name)

    def wait_until(self, jobs: Iterable[str], *, runs: bool, timeout: timedelta) -> dict[str, str]:
        """Wait until jobs run, or have ended; return their phases. Raises TimeoutError."""
        names = list(jobs)
        clock, never = self.services.clock, threading.Event()
        deadline = clock.monotonic() + timeout.total_seconds()
        while True:
            # In this order: a run that ends between the two is not reported as running.
            open_runs = {run.job for run in self.services.registry.open_runs(self.services.server)}
            phases = {name: self.phase(name) for name in names}
            if runs and all(phase in ("running", "finished", "scheduled") for phase in phases.values()):
                return phases
            if not runs and not open_runs & set(names):
                return phases
            troubled = [job for job in map(self.services.registry.job, names) if runs and job.problem]
            if troubled:
                raise JobError(str(troubled[0].problem), job=troubled[0].name)
            if clock.monotonic() >= deadline:
                raise TimeoutError(f"after {timeout.total_seconds():g} s: {phases}")
            clock.wait(never, 0.05)

    def phase(self, name: str) -> str:
        """Return what a job does now, in one word for people."""
        job = self.services.registry.job(name)
        unit = self.units.get(job.unit)
        phase = unit.phase(name) if unit is not None else None
        if unit is not None and phase in RUNS:
            return str(phase)
        if job.desired not in _WANTED:
            return job.desired.value
        if job.current_version is None:
            if job.problem:
                return "refused"
            return "waiting" if self._waits_for_a_person(job) else "new"
        if job.desired is Desired.SCHEDULED:
            return job.desired.value
        if unit is not None and unit.policy(name).rests:
            return "resting"
        if unit is not None and unit.policy(name).failures:
            return "failing"
        return phase if phase is not None else "starting"

    def _waits_for_a_person(self, job: JobRecord) -> bool:
        """Return whether the first version of a job waits for ``headrace upgrade``: ``roll_out: manual``."""
        number = None if job.unit in self._busy else self.services.registry.newest_version(job.name)
        return number is not None and self.services.settings(job.name, number).roll_out == "manual"

    def figures(self, name: str) -> Mapping[str, Any] | None:
        """Return the figures that the runner of a job gave last; None if it does not run."""
        job = self.services.registry.job(name)
        unit = self.units.get(job.unit)
        found: Mapping[str, Any] | None = unit.statuses.get(name, {}).get("figures") if unit is not None else None
        return found

    def ask_runner(self, name: str, do: str, *, timeout_seconds: float, **arguments: Any) -> Any:
        """Send a request about a job to its runner. Raises JobError if none runs; what the runner refuses."""
        job = self.services.registry.job(name)
        unit = self.units.get(job.unit)
        if unit is None or unit.runner is None or name not in unit.running_versions():
            raise JobError("the job does not run", job=name, hint=f"headrace start {name}")
        return unit.runner.ask(do, job=name, timeout_seconds=timeout_seconds, **arguments)

    def stop_with_savepoint(self, name: str, path: Path, *, timeout_seconds: float) -> None:
        """Stop a job at a savepoint; it stays stopped. Raises JobError if none runs, what the savepoint refuses."""
        job = self.services.registry.job(name)
        # The lock keeps the loop from starting the job again before it is known that this is not wanted.
        with self._unit(job.unit, {}).held():
            try:
                self.ask_runner(name, "stop", savepoint=str(path), timeout_seconds=timeout_seconds)
            finally:
                self.desire([job], Desired.STOPPED)

    def reset_checkpoint(self, name: str) -> Path:
        """Set the checkpoint of a stopped job aside: it begins anew at its next start. Returns where the old one is now."""
        self.refuse_if_running(name)
        checkpoint = self.services.data.checkpoint(name)
        if not checkpoint.exists():
            raise JobError("the job has no checkpoint", job=name)
        aside = checkpoint.with_name(f"checkpoint.{int(self.services.clock.now() * 1000)}")
        os.rename(checkpoint, aside)
        return aside

    def refuse_if_running(self, name: str) -> None:
        """Raise JobError unless the job is stopped and no process has it."""
        job = self.services.registry.job(name)
        has_run = any(run.job == name for run in self.services.registry.open_runs())
        if job.desired in (Desired.RUNNING,) or has_run:
            raise JobError("this needs a job that is stopped", job=name, hint=f"headrace stop {name}")

    # ---------------------------------------------------------------------------------------------------------- inside

    def _jobs_by_unit(self) -> dict[str, dict[str, JobRecord]]:
        found: dict[str, dict[str, JobRecord]] = defaultdict(dict)
        for job in self.services.registry.jobs():
            found[job.unit][job.name] = job
        return found

    def _unit(self, name: str, jobs: Mapping[str, JobRecord], *, group: bool | None = None) -> Unit:
        if name not in self.units:
            is_group = group if group is not None else any(job.name != name for job in jobs.values())
            self.units[name] = Unit(name, self.services, group=is_group)
        return self.units[name]


def _last_accepted(versions: Sequence[VersionRecord]) -> VersionRecord | None:
    """Return the newest accepted one of versions that are given newest first."""
    return next((each for each in versions if each.state is VersionState.ACCEPTED), None)


def _end_operation(registry: Registry, operation: str, report: RollOutReport) -> None:
    """Note the end of a roll-out: its report, and what was refused or taken back."""
    problems = {**report.refused, **report.fell_back}
    text = "; ".join(f"{job}: {reason}" for job, reason in problems.items())
    registry.end_operation(operation, result=msgspec.json.encode(asdict(report)).decode(), error=text or None)


def raise_if_running(unit: Unit | None, job: str) -> None:
    """Raise JobError if a unit runs a job that is to move to another unit."""
    if unit is not None and job in unit.running_versions():
        raise JobError("a job changes its group only while it is stopped", job=job, hint=f"headrace stop {job}")
