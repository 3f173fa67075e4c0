"""Starts jobs when they are due: once each, whatever is killed or paused in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import sqlalchemy as sa
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError, RetriableError
from headrace.foundation.secrecy import masked
from headrace_lease import Lease, LeaseLostError, Leases

from headrace_server.schedules import history
from headrace_server.schedules.history import HistoryEntry, RunState
from headrace_server.schedules.settings import ScheduleSettings

logger = logging.getLogger(__name__)
LEASE_NAME = "headrace/schedules"
_LEASE_DURATION = timedelta(seconds=15)
_REASON_LENGTH_MAX = 500
_HISTORY_KEPT = timedelta(days=90)


class JobStarter(Protocol):
    """What the scheduler is given to start jobs."""

    def start_job(self, name: str, scheduled_for: datetime) -> str:
        """Start a run of the job and return its name.

        A second call with the same arguments returns the name of the first run and starts nothing: keep both in a unique key of the
        table of runs, and insert the row before the process is started. The scheduler calls again when it cannot know whether a call
        was done, as when it was killed meanwhile. Raises JobError when the job cannot be started. RetriableError, OSError and errors
        of the database mean: it is not known, call again.
        """
        ...

    def stop_job(self, name: str) -> None:
        """Ask the run of the job to end; does not wait. Called again while it is at work, with ``overlap: replace``."""
        ...

    def is_running(self, name: str) -> bool:
        """Return whether a run of the job is at work, or was started and is not yet."""
        ...


@dataclass(frozen=True)
class _Pass:
    """One tick of the scheduler: its time, and the lease that it holds."""

    now: datetime
    lease: Lease


class Scheduler:
    """The schedules of a server. Of several servers on one database the one with the lease ``headrace/schedules`` works.

    Each step commits under the lease's guard: a server that was paused cannot change the history after another has taken over. ``leases``
    must be in the database of ``engine``. ``hold`` keeps or takes the lease in another way, which returns None if another server has it.
    """

    def __init__(
        self, engine: sa.Engine, leases: Leases, clock: Clock, starter: JobStarter, *, server: str,
        hold: Callable[[], Lease | None] | None = None,
    ) -> None:  # fmt: skip
        self._hold = hold
        self._engine = engine
        self._leases = leases
        self._clock = clock
        self._starter = starter
        self._server = server
        self._lease: Lease | None = None
        #: The next instant of each schedule, so that a tick at which nothing is due reads and writes little.
        self._next: dict[str, tuple[str, datetime]] = {}

    def tick(self, schedules: Mapping[str, ScheduleSettings]) -> bool:
        """Start and end the runs that are due now. Return whether this server has the lease.

        Called about once a second with the schedules of the jobs that are not paused; a job that is left out is not started, and its
        instants are lost, not missed. Raises RetriableError when the database is away: call again.
        """
        lease = self._hold_lease()
        if lease is None:
            return False
        step = _Pass(datetime.fromtimestamp(self._clock.now(), UTC), lease)
        try:
            for job, settings in schedules.items():
                self._note_due(step, job, settings)
            self._start_what_waits(step, schedules)
        except LeaseLostError as error:
            logger.warning("%s", error)
            self._lease = None
            return False
        except sa.exc.OperationalError as error:
            raise RetriableError(f"the database of the schedules is not available or busy: {error.orig}") from error
        return True

    def next_due(self, job: str) -> datetime | None:
        """Return the next instant of a schedule that the last tick has seen; None for one that it has not."""
        found = self._next.get(job)
        return None if found is None else found[1]

    def stop(self) -> None:
        """Give the lease back, so that another server need not wait. Called when the server stops."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def history(self, job: str | None = None, *, count_max: int = 100) -> list[HistoryEntry]:
        """Return the outcomes of the last scheduled times, newest first."""
        with self._engine.connect() as connection:
            return history.entries(connection, job, newest_first=True, count_max=count_max)

    def remove_old_history(self) -> int:
        """Remove entries older than 90 days. Called about once a day."""
        before = datetime.fromtimestamp(self._clock.now(), UTC) - _HISTORY_KEPT
        with self._engine.begin() as transaction:
            return history.remove_old(transaction, before)

    def _hold_lease(self) -> Lease | None:
        if self._hold is not None:
            self._lease = self._hold()
            return self._lease
        if self._lease is not None:
            try:
                self._lease.renew()
            except LeaseLostError as error:
                logger.warning("%s", error)
                self._lease = None
        if self._lease is None:
            self._lease = self._leases.acquire(LEASE_NAME, holder=self._server, duration=_LEASE_DURATION)
        return self._lease

    def _note_due(self, step: _Pass, job: str, settings: ScheduleSettings) -> None:
        """Put the instants since the last tick into the history. They and the position are stored together."""
        definition = settings.definition()
        known, at = self._next.get(job, ("", step.now))
        if known == definition and step.now < at:
            return
        with self._engine.begin() as transaction:
            step.lease.guard(transaction)
            since = history.position(transaction, job, definition)
            if (
                since is not None and since < step.now
            ):  # otherwise the clock was set back: the due runs are in the history
                for entry in self._entries(step, job, settings, since):
                    history.add(transaction, entry, step.lease.token)
            if since is None or since < step.now:  # a new schedule begins now
                history.set_position(transaction, job, definition, step.now)
        self._next[job] = (definition, next(settings.times().after(max(step.now, since or step.now))))

    @staticmethod
    def _entries(step: _Pass, job: str, settings: ScheduleSettings, since: datetime) -> list[HistoryEntry]:
        times = settings.times()
        kept = settings.catch_up_max if settings.catch_up == "all" else 1
        # One more than is started says that something was missed; a row for each minute of a year would help nobody.
        found = times.latest(step.now, since, kept + 1)
        recent = [each for each in found if step.now - each <= settings.late_max]
        started = found[-kept:] if settings.catch_up != "none" else recent[-1:]
        made = []
        for each in found:
            state, reason = RunState.DUE, ""
            if each not in started:
                state = RunState.MISSED
                reason = f"it and perhaps earlier ones: no server ran, and catch_up is {settings.catch_up!r}"
            made.append(HistoryEntry(job, each, state, None, step.now, reason))
        return made

    def _start_what_waits(self, step: _Pass, schedules: Mapping[str, ScheduleSettings]) -> None:
        with self._engine.connect() as connection:
            waiting = history.entries(connection, None, RunState.DUE, RunState.STARTING)
        by_job: dict[str, list[HistoryEntry]] = {}
        for entry in waiting:
            by_job.setdefault(entry.job, []).append(entry)
        for job, entries in by_job.items():
            # A start that was claimed is finished first, also for a job whose schedule is gone.
            for entry in [each for each in entries if each.state is RunState.STARTING]:
                self._finish_start(step, entry)
            due = [each for each in entries if each.state is RunState.DUE]
            if due and job not in schedules:
                for entry in due:
                    self._end(step, entry, RunState.SKIPPED, "the job has no schedule any more, or is paused")
            elif due:
                self._start_by_policy(step, schedules[job], due)

    def _start_by_policy(self, step: _Pass, settings: ScheduleSettings, due: list[HistoryEntry]) -> None:
        if settings.overlap == "replace":
            for entry in due[:-1]:
                self._end(step, entry, RunState.SKIPPED, "a later run replaces it")
            due = due[-1:]
        if settings.overlap == "queue":
            for entry in due[settings.queue_max :]:
                self._end(step, entry, RunState.SKIPPED, f"{settings.queue_max} runs wait already")
            due = due[: settings.queue_max]
        if not self._starter.is_running(due[0].job):
            self._start(step, due[0])
            due = due[1:]
        if due and settings.overlap == "replace":
            self._starter.stop_job(due[0].job)
        # Several that were caught up follow each other; one that came due while another is at work is skipped.
        for entry in due if settings.overlap == "skip" else []:
            if settings.catch_up != "all" or step.now - entry.due <= settings.late_max:
                self._end(step, entry, RunState.SKIPPED, "the run before is still at work")

    def _start(self, step: _Pass, entry: HistoryEntry) -> None:
        """Claim, start, note. A kill in between leaves ``starting``, which the next tick of any server finishes."""
        with self._engine.begin() as transaction:
            step.lease.guard(transaction)
            claimed = history.change(transaction, entry, step.lease.token, step.now, state=RunState.STARTING)
        if claimed:
            self._finish_start(step, HistoryEntry(entry.job, entry.due, RunState.STARTING, None, step.now, ""))

    def _finish_start(self, step: _Pass, entry: HistoryEntry) -> None:
        step.lease.check()  # not a proof, but a paused server that wakes here need not disturb its successor
        try:
            run = self._starter.start_job(entry.job, entry.due)
        except JobError as error:
            logger.error("the scheduled run of %s for %s was refused: %s", entry.job, entry.due.isoformat(), error)
            self._end(step, entry, RunState.FAILED, str(error))
        except (RetriableError, OSError, sa.exc.DBAPIError) as error:
            logger.warning(
                "the scheduled run of %s for %s will be tried again: %s", entry.job, entry.due.isoformat(), error
            )
        else:
            self._end(step, entry, RunState.STARTED, "", run=run)

    def _end(self, step: _Pass, entry: HistoryEntry, state: RunState, reason: str, run: str | None = None) -> None:
        text = masked(reason)[:_REASON_LENGTH_MAX]
        with self._engine.begin() as transaction:
            step.lease.guard(transaction)
            history.change(transaction, entry, step.lease.token, step.now, state=state, reason=text, run=run)
