"""Brings new versions into a unit.

The new process is prepared before the old one stops. The old versions come back if the new ones are not healthy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from sqlalchemy.exc import InterfaceError, OperationalError

from headrace_server.registry.records import VersionState
from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.sharing.member import Taken
from headrace_server.supervision.going_back import (
    PLAN_PARTS,
    KeptCheckpoint,
    RollOutNote,
    keep_way_back,
    place_of,
    rows_twice,
    why_no_way_back,
)
from headrace_server.supervision.loading_ahead import give_up, load_ahead
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import Unit, UnitElsewhereError

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_STOP_GRACE_SECONDS = 15.0
#: Between two tries while the registry's database is away.
_AWAY_SECONDS = 1.0
_GO_TIMEOUT_SECONDS = 10.0
#: How long an old process may take to give the lease of its unit back.
_RELEASE_TIMEOUT_SECONDS = 15.0
_Found = TypeVar("_Found")


class RollOutInterruptedError(Exception):
    """The server ends while a new version is loaded. Nothing has changed; the next server tries it again."""


@dataclass
class RollOutReport:
    """What became of each version of a roll-out."""

    accepted: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    fell_back: dict[str, str] = field(default_factory=dict)
    #: By job: where the old version has stopped (checkpoint, offsets).
    places: dict[str, Any] = field(default_factory=dict)
    #: From asking the old version to stop until the new one runs; None: no version ran before.
    gap_seconds: float | None = None
    #: Of the gap: ``stop`` the old version, ``keep`` its checkpoint, ``begin`` the new process, ``load`` until it runs.
    gap_parts: dict[str, float] = field(default_factory=dict)
    #: Nothing was changed: the server ends, or another one has the unit by now.
    interrupted: bool = False


class RollOut:
    """One roll-out of versions into a unit. ``run`` is called once, in a separate thread; or ``watch_on``, by a server that
    finds the note of an earlier one.

    ``changes``: the new versions. ``running``: the jobs that should run afterwards, with their versions before the change; a
    changed job that is not among them is only checked. ``say`` is called for each step.
    """

    def __init__(
        self, unit: Unit, services: Services, *, changes: Mapping[str, int], running: Mapping[str, int | None],
        say: Callable[[str], None], stopping: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self._unit = unit
        self._services = services
        self._changes = dict(changes)
        self._running = dict(running)
        self._say = say
        self._report = RollOutReport()
        #: Of the changed jobs, as their prepared runner gave them.
        self._plans: dict[str, Any] = {}
        self._python_before: str | None = None
        #: The versions run already: only the headrace that runs them is new, so they are not judged.
        self._renews = False
        self._never = threading.Event()
        self._server_stops = stopping or self._never

    def run(self) -> RollOutReport:
        """Roll the versions out; return the outcome of each.

        Raises JobError if the old version cannot be stopped, RollOutInterruptedError if the server ends before the switch, or another
        process may be running the unit: it is tried again.
        """
        with self._unit.held():
            self._unit.look()
            self._secure_places()
            before = self._unit.running_versions()
            self._renews = all(before.get(job) == number for job, number in self._changes.items())
            self._check_those_that_do_not_run()
            new = self._prepared()
            if new is not None:
                self._switch(new)
        return self._report

    def watch_on(self, note: RollOutNote) -> RollOutReport:
        """Continue a roll-out whose server died while it watched the new versions. They are watched for a whole window
        again. Returns the outcome of each.

        Versions that were stopped in order, or had not begun, are not judged: they stay new, and the old ones are started.
        """
        with self._unit.held():
            registry, running = self._services.registry, self._unit.running_versions()
            accepted = all(registry.job(job).current_version == number for job, number in note.changes.items())
            if (accepted and not note.renews) or any(
                note.changes.get(job, number) != number for job, number in running.items()
            ):
                self._forget(note)
                return self._report
            unhealthy = dict(note.unhealthy) or self._unhealthy(note.changes, self._services.clock.monotonic())
            if not unhealthy:
                self._accept_all(note)
            elif not note.unhealthy and all(self._was_stopped(job) for job in unhealthy):
                self._fall_back(note, {})
            else:
                self._fall_back(note, unhealthy)
        return self._report

    # ------------------------------------------------------------------------------------------------- preparing

    def _secure_places(self) -> None:
        """See to it that new processes are prepared for places that no process elsewhere may write, if it wakes up."""
        wanted = {job: version for job, version in self._running.items() if version is not None}
        try:
            self._unit.secure_places({**wanted, **self._changes})
        except RetriableError as error:
            raise RollOutInterruptedError(str(error)) from error

    def _check_those_that_do_not_run(self) -> None:
        """Plan the new versions of jobs that are stopped, each in a process that ends afterwards."""
        for job, version in list(self._changes.items()):
            if job in self._running:
                continue
            del self._changes[job]
            self._say(f"planning {job} version {version}, which does not run now")
            try:
                runner = self._launch({job: version})
            except HeadraceError as error:
                self._refuse(job, version, str(error))
                continue
            try:
                refused = self._wait_prepared(runner) or self._note_plans(runner, {job: version})
                if job in refused:
                    self._refuse(job, version, refused[job])
                else:
                    self._accept(job, version)
            finally:
                runner.kill()

    def _prepared(self) -> RunnerProcess | None:
        """Return a runner that has prepared all that should run; versions that are refused are left out of it."""
        while self._changes:
            wanted = {
                **{job: version for job, version in self._running.items() if version is not None},
                **self._changes,
            }
            self._say(
                "preparing " + ", ".join(f"{job} version {number}" for job, number in sorted(self._changes.items()))
            )
            refused: dict[str, str] = {}
            runner: RunnerProcess | None = None
            try:
                runner = self._launch(wanted)
                refused = self._wait_prepared(runner)
                if not refused:
                    refused = self._compare(runner)
                if not refused:
                    refused = self._note_plans(runner, self._changes)
            except HeadraceError as error:
                refused = dict.fromkeys(self._changes, str(error))
            others = [job for job in refused if job not in self._changes]
            if others:  # an unchanged job of the group does not prepare now: it must not be stopped for this
                reason = f"{others[0]} of the same group cannot be prepared: {refused[others[0]]}"
                refused = dict.fromkeys(self._changes, reason)
            if not refused and runner is not None:
                return runner
            if runner is not None:
                runner.kill()
            for job, reason in refused.items():
                self._refuse(job, self._changes.pop(job), reason)
        return None

    def _launch(self, versions: Mapping[str, int], *, python: str | None = None) -> RunnerProcess:
        return self._services.launch(self._unit.name, versions, group=self._unit.group, wait=True, python=python)

    def _wait_prepared(self, runner: RunnerProcess, *, to_the_end: bool = False) -> dict[str, str]:
        """Wait until a runner has prepared its jobs; return those that it refuses, with the reason.

        ``to_the_end``: also if the server ends. Raises RollOutInterruptedError otherwise.
        """
        jobs = [each.name for each in runner.specification.jobs]
        allowed = max(
            self._services.settings(each.name, each.version).prepare_timeout for each in runner.specification.jobs
        )
        clock = self._services.clock
        deadline = clock.monotonic() + allowed
        loading = jobs
        while clock.monotonic() < deadline:
            alive = runner.is_alive()
            try:
                found = runner.ask("status")["jobs"]
            except RunnerAwayError:
                found = None
            if found is not None:
                loading = [job for job in jobs if found[job]["phase"] == "loading"]
                if not loading:
                    return {job: str(each["error"]) for job, each in found.items() if each["phase"] == "refused"}
            if not alive:
                return {job: str(outcome.reason) for job, outcome in runner.outcomes().items()}
            if self._server_stops.is_set() and not to_the_end:
                runner.kill()
                raise RollOutInterruptedError("the server stopped while the version was being loaded")
            clock.wait(self._never if to_the_end else self._server_stops, _LOOK_SECONDS)
        # Jobs are loaded one after the other: those behind the one that hangs have done nothing wrong.
        return {
            loading[0]: f"not loaded and planned within {allowed:.0f} s (prepare_timeout): does an import wait or loop?"
        }

    def _compare(self, new: RunnerProcess) -> dict[str, str]:
        """Compare the state of each changed job with that of its running version; return those that do not fit."""
        old, refused = self._unit.runner, {}
        for job in self._changes:
            if old is None or self._unit.phase(job) != "running":
                continue  # the start itself compares with the checkpoint, before anything is read
            try:
                running = old.ask("plan", job=job)
                new.ask("compare", job=job, running=running)
                why = why_no_way_back(job, old, running, new.ask("plan", job=job))
            except RunnerAwayError:
                continue  # it was killed in this moment, which is no fault of the new version
            except RefusedError as error:
                refused[job] = str(error)
            else:
                refused |= {} if why is None else {job: why}
        return refused

    def _note_plans(self, new: RunnerProcess, versions: Mapping[str, int]) -> dict[str, str]:
        """Note the plans of prepared versions. Return those whose pipeline another job of the server has: then none is noted."""
        try:
            plans = {job: new.ask("plan", job=job) for job in versions}
        except RefusedError as error:
            raise JobError(error.message, hint=error.hint) from error
        self._plans, refused = plans, {}
        for job, plan in plans.items():
            pipeline = str(plan["job"])
            other = self._services.registry.claim_pipeline(pipeline, job)
            if other is not None:
                refused[job] = (
                    f"the pipeline {pipeline!r} is already that of the job {other!r}: both would share their consumer groups and their "
                    "positions in sinks, and lose rows; give this one another name in hr.stream(namespace, pipeline)"
                )
        if not refused and not self._renews:
            for job, version in versions.items():
                plan, notices = str(plans[job]["text"]), plans[job].get("notices", ())
                self._services.registry.judge_version(job, version, VersionState.NEW, plan=plan, notices=notices)
        return refused

    # -------------------------------------------------------------------------------------------------- switching

    def _switch(self, new: RunnerProcess) -> None:
        before = self._unit.running_versions()
        guarded = {job: version for job, version in self._changes.items() if before.get(job)}
        clock = self._services.clock
        if guarded and not self._load_ahead(new):
            return
        begun = clock.monotonic()
        if self._unit.runner is not None:
            if self._unit.is_of_another_server:
                self._python_before = self._unit.runner.specification.python
            self._say("stopping the old version at a checkpoint")
            self._stop_old()
        stopped, note = clock.monotonic(), None
        if guarded:
            note = self._kept(new, before)
            if note is None:
                return
        kept = clock.monotonic()
        token = self._lease_for(new)
        # Noted before it runs: a server that dies now finds the process again.
        self._unit.take(new)
        self._go(new, token)
        self._report.gap_parts = {"stop": stopped - begun, "keep": kept - stopped, "begin": clock.monotonic() - kept}
        if note is None:
            for job, version in self._changes.items():
                self._accept(job, version)
            return
        self._say("the new version starts")
        unhealthy = self._unhealthy(guarded, begun)
        if unhealthy:
            self._fall_back(note, unhealthy)
        else:
            self._accept_all(note)

    def _load_ahead(self, new: RunnerProcess) -> bool:
        """Let the new process load state; return whether it may take over. Raises RollOutInterruptedError if the server ends."""
        self._say("loading the state of the running version")
        ended = load_ahead(self._services, new, self._changes, self._server_stops)
        if ended is None and not self._server_stops.is_set():
            return True
        give_up(self._services, new, self._changes)
        if self._server_stops.is_set():
            raise RollOutInterruptedError("the server stopped while state was being loaded")
        for job, version in self._changes.items():
            self._refuse(job, version, str(ended))
        return False

    def _kept(self, new: RunnerProcess, before: Mapping[str, int]) -> RollOutNote | None:
        """Keep the way back: the checkpoints of the stopped versions, and a note. None: that cannot be; the old versions run again."""
        plans = {job: {name: self._plans[job].get(name) for name in PLAN_PARTS} for job in self._changes}
        note = RollOutNote(
            unit=self._unit.name, group=self._unit.group, before=before, changes=self._changes, plans=plans,
            places=self._report.places, python=self._python_before, renews=self._renews,
        )  # fmt: skip
        try:
            keep_way_back(note, self._services.data)
        except OSError as error:
            new.kill()
            for job, version in self._changes.items():
                self._refuse(
                    job, version, f"the checkpoint of the previous version cannot be kept for a roll-back: {error}"
                )
            self._unit.start(before)
            return None
        return note

    def _lease_for(self, runner: RunnerProcess) -> int | None:
        """Take the unit's lease for a prepared process; return its token, None if it needs none.

        Raises RollOutInterruptedError if another server has the unit by now, OSError: then the process is killed.
        """
        try:
            taken = self._obtained()
            if taken is None:
                return None
            jobs = runner.specification.jobs
            self._unit.prepare_places({each.name: each.version for each in jobs}, taken)
            if any(each.checkpoint != str(self._services.data.checkpoint(each.name)) for each in jobs):
                raise RollOutInterruptedError(
                    "it was prepared for a checkpoint into which an old process may still write"
                )
            return taken.lease.token
        except BaseException:
            runner.kill()
            raise

    def _go(self, runner: RunnerProcess, token: int | None) -> None:
        """Let a prepared process run."""
        try:
            runner.ask("go", timeout_seconds=_GO_TIMEOUT_SECONDS, token=token)
        except (RunnerAwayError, RefusedError) as error:
            logger.warning("unit %s: %s", self._unit.name, error.message)  # the next look says that it is not healthy

    def _obtained(self) -> Taken | None:
        """Take the unit's lease, which the old process gives back at this moment; None: it needs none."""
        deadline = self._services.clock.monotonic() + _RELEASE_TIMEOUT_SECONDS
        while True:
            try:
                return self._unit.obtain()
            except UnitElsewhereError as error:
                if self._services.clock.monotonic() >= deadline:
                    raise RollOutInterruptedError(str(error)) from error
            self._services.clock.wait(self._never, _LOOK_SECONDS)

    def _stop_old(self) -> None:
        """Stop the jobs of the old runner, all at the same time, and note where. What hangs is killed: the checkpoint is whole."""
        old = self._unit.runner
        assert old is not None
        with ThreadPoolExecutor(max_workers=16) as pool:
            stops = {
                each.name: pool.submit(
                    old.ask, "stop", job=each.name, timeout_seconds=each.stop_timeout_seconds + _STOP_GRACE_SECONDS
                )
                for each in old.specification.jobs
            }
        outcome, reason, is_away = "stopped", "a new version takes over", False
        for job, stop in stops.items():
            try:
                self._report.places[job] = place_of(stop.result())
            except (RunnerAwayError, RefusedError) as error:
                is_away = True
                if Path(old.specification.socket).exists():  # else it had not begun, or has ended by itself
                    logger.warning("job %s did not stop cleanly: %s", job, error.message)
                    outcome, reason = "killed", f"it did not stop for a new version: {error.message}"
        if is_away:
            old.kill()
            self._unit.note_ended()
            self._unit.end_finished_runs(old)
        elif old.specification.leased:
            try:
                old.ask("release")
            except (RunnerAwayError, RefusedError) as error:
                logger.warning("unit %s: its lease will be released later: %s", self._unit.name, error.message)
        self._unit.end_runs(outcome, reason)
        self._unit.leave()

    def _unhealthy(self, guarded: Mapping[str, int], begun: float) -> dict[str, str]:
        """Watch the new versions; return those that are not healthy, with the reason. Empty: all are."""
        settings = [self._services.settings(job, version) for job, version in guarded.items()]
        clock = self._services.clock
        deadline = clock.monotonic() + max(each.health_timeout for each in settings)
        window = max(each.health_window for each in settings)
        healthy_since: float | None = None
        while True:
            found = self._patiently(lambda: self._look_at(guarded))
            now = clock.monotonic()
            bad = {job: reason for job, reason in found.items() if reason}
            if bad:
                return bad
            if all(reason is None for reason in found.values()):
                if healthy_since is None:
                    healthy_since = now
                    self._report.gap_seconds = now - begun
                    self._report.gap_parts["load"] = now - begun - sum(self._report.gap_parts.values())
                    self._say(f"the new version runs; watching it for {window:g} s")
                if now - healthy_since >= window:
                    return {}
            elif now >= deadline:
                return {job: "it did not run within the time of health_timeout" for job in guarded if found[job] == ""}
            clock.wait(self._never, 0.01 if healthy_since is None else _LOOK_SECONDS)

    def _look_at(self, guarded: Mapping[str, int]) -> dict[str, str | None]:
        self._unit.look()
        return {job: self._judged(job) for job in guarded}

    def _patiently(self, work: Callable[[], _Found]) -> _Found:
        """Do ``work``, and repeat it while the registry's database is not available: the new version is in place and runs."""
        while True:
            try:
                return work()
            except (OperationalError, InterfaceError) as error:
                if self._server_stops.is_set():
                    raise  # the note of the roll-out is for the next server
                logger.warning(
                    "unit %s: a new version is observed, the registry is away: %s", self._unit.name, error.orig
                )
                self._services.clock.wait(self._server_stops, _AWAY_SECONDS)

    def _judged(self, job: str) -> str | None:
        """Return None for a healthy job, the reason for one that is not, and an empty text for one that is not there yet."""
        status = self._unit.statuses.get(job)
        if self._unit.runner is None:
            last = self._services.registry.runs_of(job, limit=1)
            ended = last[0] if last else None
            if ended is not None and ended.outcome == "finished":
                return None
            return (ended and ended.reason) or "its process has ended"
        if status is None or status["phase"] in ("loading", "prepared", "starting"):
            return ""
        if status["phase"] in ("failed", "refused", "stopped", "stopping"):
            return str(status["error"] or f"it is {status['phase']}")
        figures = status.get("figures")
        if figures and figures["records_read"] > 0 and figures["dead_letters"] >= figures["records_read"]:
            stored = sum(figures["rows_written"].values()) + figures["rows_skipped"]
            if not stored:
                return f"all of the {figures['records_read']:,} records that it has read became dead letters"
        return None

    def _was_stopped(self, job: str) -> bool:
        """Return whether the last run of a job has ended in order."""
        last = self._services.registry.runs_of(job, limit=1)
        return bool(last) and last[0].outcome == "stopped"

    def _fall_back(self, note: RollOutNote, unhealthy: Mapping[str, str]) -> None:
        """Start the old versions again. ``unhealthy`` empty: the new ones are not judged, they were not watched to the end."""
        data = self._services.data
        self._check_ours()
        self._say("not healthy, going back: " + "; ".join(f"{job}: {reason}" for job, reason in unhealthy.items()))
        if unhealthy:
            msgspec.structs.replace(note, unhealthy=unhealthy).write(data)
        places = self._last_places()
        if self._unit.runner is not None:
            self._stop_old()
            places |= {job: place for job, place in self._report.places.items() if place}
        self._report.places = dict(note.places)
        self._unit.end_runs("failed", "fell back to the version before")
        old = self._prepared_again(note)
        for job, version in note.changes.items():
            told = self._placed(old, note, job, places.get(job, {}))
            self._unit.begin_anew(job)
            if unhealthy:
                reason = unhealthy.get(job, "another version of the same roll-out was not healthy") + told
                if not note.renews:
                    self._services.registry.judge_version(job, version, VersionState.FELL_BACK, reason=reason)
                self._report.fell_back[job] = reason
                what = "the headrace of this server" if note.renews else f"version {version}"
                problem = f"{what} was not healthy and was taken back: {reason}"
                self._services.registry.change_job(job, problem=problem)
            else:
                self._services.registry.change_job(job, problem=told.removeprefix("; ") or None)
        # From here on a server that dies leaves what any other does: the old versions are wanted, and no process has them.
        note.remove(data)
        if old is not None:
            token = self._lease_for(old)
            self._unit.take(old)
            self._go(old, token)

    def _last_places(self) -> dict[str, Any]:
        return {job: place_of(status) for job, status in self._unit.statuses.items()}

    def _prepared_again(self, note: RollOutNote) -> RunnerProcess | None:
        """Return a runner that has prepared the old versions. None: that is not possible now; the unit's next ticks try to start them."""
        runner: RunnerProcess | None = None
        try:
            runner = self._launch(note.before, python=note.python_there)
            refused = self._wait_prepared(runner, to_the_end=True)
        except HeadraceError as error:
            refused = dict.fromkeys(note.before, str(error))
        if not refused:
            return runner
        logger.error("unit %s: the previous version cannot be prepared: %s", self._unit.name, refused)
        if runner is not None:
            runner.kill()
        return None

    def _placed(self, old: RunnerProcess | None, note: RollOutNote, job: str, after: Mapping[str, Any]) -> str:
        """Let a job continue from the checkpoint of its new version, or from its own if it cannot read that. Return a text about it."""
        kept = KeptCheckpoint(self._services.data, job)
        why = None if old is None else self._cannot_read(old, job, note.plans[job])
        if why is None or not kept.is_changed():
            kept.unguard() if old is None else kept.drop()
            return ""
        number = note.changes[job]
        if note.plans[job].get("state_outside"):
            # The version before ended just when it was to be asked whether it could go back.
            kept.drop()
            return f"; it may not start, as it cannot read the state that version {number} has stored ({why})"
        kept.restore()
        return (
            f"; the version before cannot read the state that version {number} has stored ({why}), so it goes on from its own "
            f"checkpoint: rows may be there twice of {rows_twice(note.places.get(job, {}), after)}; the checkpoint of version {number} "
            f"is {kept.aside}"
        )

    @staticmethod
    def _cannot_read(old: RunnerProcess, job: str, plan: Mapping[str, Any]) -> str | None:
        """Return why a prepared old version cannot use the state that the new one stored; None: it can, or refuses it itself."""
        try:
            must_be_empty = old.ask("compare", job=job, running=plan)
        except RefusedError as error:
            return error.message.partition("\n")[0]
        except RunnerAwayError:
            return None
        return f"not all of {', '.join(must_be_empty)} is in it" if must_be_empty else None

    # ------------------------------------------------------------------------------------------------------ notes

    def _accept_all(self, note: RollOutNote) -> None:
        for job, version in note.changes.items():
            self._patiently(partial(self._accept, job, version))
        self._forget(note)

    def _forget(self, note: RollOutNote) -> None:
        """Give up the way back."""
        note.remove(self._services.data)
        for job in note.changes:
            KeptCheckpoint(self._services.data, job).drop()

    def _check_ours(self) -> None:
        """Raise RollOutInterruptedError if another server has the unit by now: it continues from the record of this roll-out."""
        member = self._services.member
        if member is not None and not member.tables.has(self._unit.name, self._services.server):
            raise RollOutInterruptedError("another server now runs the unit and continues the roll-out")

    def _accept(self, job: str, version: int) -> None:
        self._check_ours()
        self._services.registry.judge_version(job, version, VersionState.ACCEPTED)
        self._services.registry.change_job(job, current_version=version, problem=None)
        self._unit.begin_anew(job)
        self._unit.policy(job).started()
        self._report.accepted[job] = version

    def _refuse(self, job: str, version: int, reason: str) -> None:
        self._check_ours()
        logger.warning("job %s: version %d is refused: %s", job, version, reason)
        if self._renews:
            problem = (
                f"it stays with the headrace that runs it, as that of this server refuses version {version}: {reason}"
            )
        else:
            self._services.registry.judge_version(job, version, VersionState.REFUSED, reason=reason)
            problem = f"version {version} is refused: {reason}"
        self._services.registry.change_job(job, problem=problem)
        self._report.refused[job] = reason
