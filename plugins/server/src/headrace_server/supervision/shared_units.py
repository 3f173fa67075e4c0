"""How a server takes over a unit: which process runs it, and what the previous server has left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from headrace.foundation.errors import HeadraceError, JobError

from headrace_server.registry.records import Desired, JobRecord, RunRecord
from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.sharing.machines import is_process
from headrace_server.sharing.member import Member
from headrace_server.supervision.going_back import RollOutNote, read_note
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import Unit

logger = logging.getLogger(__name__)
_FINISHED = "finished"


class _Supervisor(Protocol):
    """What is needed of the server's supervisor."""

    units: dict[str, Unit]

    def unit(self, name: str, jobs: Mapping[str, JobRecord]) -> Unit: ...

    def is_busy(self, unit: str) -> bool: ...

    def watch_later(self, unit: Unit, note: RollOutNote) -> None: ...

    def settle_versions(self, unit: Unit) -> None: ...

    def roll_out_later(self, kind: str, changes: Mapping[str, int], *, ended: Callable[[bool], None]) -> str: ...


class SharedUnits:
    """The units that a server has of those that servers share. Called by the server's loop."""

    def __init__(self, supervisor: _Supervisor, services: Services, member: Member) -> None:
        self._supervisor = supervisor
        self._services = services
        self._member = member
        #: Units of this server with which it has begun, and offered versions that it rolls out.
        self._entered: set[str] = set()
        self._offers: set[tuple[str, int]] = set()

    def entered(self, jobs: Mapping[str, Mapping[str, JobRecord]], had: frozenset[str]) -> set[str]:
        """Return the units of this server with which it has begun. Those of others are forgotten when nothing of them runs here.

        ``had``: units that were this server's before ``jobs`` were read.
        """
        owned, units = self._member.owned() & had, self._supervisor.units
        self._entered &= owned
        for name in [name for name, unit in units.items() if name not in owned and unit.is_idle]:
            if not self._supervisor.is_busy(name):
                del units[name]
        for name in sorted(owned & jobs.keys() - self._entered):
            unit = self._supervisor.unit(name, jobs[name])
            if not self._supervisor.is_busy(name) and self._enter(unit, jobs[name]):
                unit.changes += (
                    1  # entering has recorded how runs ended: records of its jobs that were read before are outdated
                )
                self._entered.add(name)
                self._go_on_with_versions(unit)
        return set(self._entered)

    def is_given_away(self, unit: Unit) -> bool:
        """Return whether a unit's process belongs to another server of this machine now, which looks after it as it runs.

        This server forgets the process as soon as nothing is done to it here; until then it must not stop it either. Kills a process of
        an own unit that is silent.
        """
        if unit.runner is None or not unit.runner.specification.leased:
            return False
        busy = self._supervisor.is_busy(unit.name)
        if unit.name in self._member.owned():
            if not busy and self._member.is_silent(unit.name, unit.token, unit.runner.pid):
                unit.end_silent()
            return False
        if not self._member.has_neighbour_with(unit.name):
            return False
        if not busy:
            unit.let_go()
        return True

    def roll_out_offers(self, jobs: Mapping[str, Mapping[str, JobRecord]], owned: Iterable[str]) -> None:
        """Roll out the versions that the server of the jobs directory has found for the units of this one."""
        for name in owned:
            found = {job.name: job.offered_version for job in jobs[name].values() if job.offered_version is not None}
            new = {job: number for job, number in found.items() if (job, number) not in self._offers}
            unit = self._supervisor.units[name]
            if not new or self._supervisor.is_busy(name) or not unit.settled.is_set():
                continue
            # A roll-out may have ended since the jobs were read: without another look its version would be rolled out again.
            now = {job: self._services.registry.job(job) for job in new}
            new = {job: number for job, number in new.items() if now[job].offered_version == number}
            self._offers |= set(new.items())
            present = {job: number for job, number in new.items() if now[job].current_version == number}
            self._end_offers(present, True)
            rest = {job: number for job, number in new.items() if job not in present}
            if rest:
                self._supervisor.roll_out_later("changed files", rest, ended=partial(self._end_offers, rest))

    def _end_offers(self, offers: Mapping[str, int], done: bool) -> None:
        """Forget offers that were carried out. Others stay in the registry: this server or the next one tries again."""
        try:
            for job, number in offers.items() if done else ():
                self._member.tables.take_offer(job, number)
        finally:
            self._offers -= set(offers.items())

    def _go_on_with_versions(self, unit: Unit) -> None:
        """Continue the roll-out of the previous server."""
        try:
            note = read_note(self._services.data, unit.name, group=unit.group)
        except (OSError, msgspec.MsgspecError) as error:
            logger.error("unit %s: the record of its last roll-out cannot be read: %s", unit.name, error)
            return
        if note is not None:
            self._supervisor.watch_later(unit, note)
        elif unit.runner is not None:
            self._supervisor.settle_versions(unit)

    def _enter(self, unit: Unit, jobs: Mapping[str, JobRecord]) -> bool:
        """Take the unit over from the server before: its process, if that is on this machine and lives, else what it has left.

        Returns False as long as a process elsewhere may be running it.
        """
        if unit.runner is not None:
            return True
        runs = [run for run in self._services.registry.open_runs() if run.unit == unit.name]
        if not self._member.is_leased(unit.name):
            return self._enter_pinned(unit, runs)
        note = self._member.runner_here(unit.name)
        if note is not None:
            return self._adopted(unit, Path(note.specification), note.pid, runs, token=note.token)
        if not self._member.is_free(unit.name):
            return False
        self._settle(unit, jobs, runs)
        return True

    def _adopted(self, unit: Unit, file: Path, pid: int, runs: list[RunRecord], *, token: int | None) -> bool:
        try:
            runner: RunnerProcess = self._services.launcher.find(file, pid=pid, started_seconds=0.0)
            if token is not None:
                runner.ask("adopt", server=self._services.server)
        except (RunnerAwayError, RefusedError) as error:  # it begins, ends, or is paused: the next look tells
            logger.info("unit %s: its process %d is not taken over yet: %s", unit.name, pid, error.message)
            return False
        except JobError as error:
            logger.warning("unit %s: %s", unit.name, error)
            return False
        socket = runner.specification.socket
        self._member.tables.take_runs(unit.name, self._services.server, socket)
        own = {run.job: run for run in runs if run.socket == socket}
        for run in runs:
            if run.socket != socket:
                self._services.registry.end_run(
                    run.id, "killed", "its server has died, and another process has the job"
                )
        logger.info("unit %s: its process %d is taken over", unit.name, runner.pid)
        unit.adopt(runner, own, token=token)
        return True

    def _enter_pinned(self, unit: Unit, runs: list[RunRecord]) -> bool:
        """A unit that only this server can run has no lease: its process is known by its run."""
        for run in runs:
            file = self._services.data.specification(unit.name, Path(run.socket).stem, group=unit.group)
            if is_process(run.pid, str(file)):
                return self._adopted(unit, file, run.pid, runs, token=None)
        for run in runs:
            outcome, reason = self._outcome_of(unit, run)
            self._end(run, outcome, reason)
        return True

    def _outcome_of(self, unit: Unit, run: RunRecord) -> tuple[str, str | None]:
        file = self._services.data.specification(unit.name, Path(run.socket).stem, group=unit.group)
        try:
            found = self._services.launcher.find(file, pid=run.pid, started_seconds=0.0).outcomes()[run.job]
        except (HeadraceError, KeyError):
            return "killed", "its process has ended, and its specification is lost"
        return found.outcome, found.reason

    def _settle(self, unit: Unit, jobs: Mapping[str, JobRecord], runs: list[RunRecord]) -> None:
        """Record how the runs of another server ended: their process has reported it, or was killed with its machine."""
        found = self._member.unit(unit.name)
        outcomes: Mapping[str, Any] = {} if found is None else found.outcomes
        for run in runs:
            outcome, reason = outcomes.get(run.job, ("killed", None))
            self._end(run, outcome, reason or (f"it ran on the server {run.server}" if outcome == "killed" else None))

    def _end(self, run: RunRecord, outcome: str, reason: str | None) -> None:
        registry = self._services.registry
        registry.end_run(run.id, outcome, reason)
        if outcome == _FINISHED:
            registry.move(run.job, Desired.RUNNING, Desired.FINISHED)
