"""The schedules of the jobs of one server: which jobs have one, and how their runs begin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from headrace.foundation.errors import JobError
from headrace_lease import Leases, SqlLeaseStore

from headrace_server.jobs_directory.settings import schedule_of
from headrace_server.registry.records import ON_SCHEDULE, Desired, JobRecord
from headrace_server.schedules import HistoryEntry, Scheduler, ScheduleSettings
from headrace_server.schedules.history import to_milliseconds
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import Unit

logger = logging.getLogger(__name__)
_TICK_SECONDS = 1.0
_CLEAN_UP_SECONDS = 86_400.0
#: Longer than the history of schedules is kept.
_STARTS_KEPT = timedelta(days=100)


class JobSchedules:
    """Starts the jobs that have a schedule. ``tick`` is called by the server's loop; the other methods from any thread."""

    def __init__(
        self, services: Services, units: Mapping[str, Unit], is_resting: Callable[[JobRecord], bool]
    ) -> None:  # fmt: skip
        self._services = services
        self._starter = _Starter(services, units, is_resting)
        self._scheduler: Scheduler | None = None
        self._known: dict[str, tuple[int, ScheduleSettings | None]] = {}
        #: Versions of which this headrace does not know whether they have a schedule.
        self._unknown: dict[str, int] = {}
        self._ticked = self._cleaned = float("-inf")

    def of(self, job: JobRecord) -> ScheduleSettings | None:
        """Return the schedule of a job's present version."""
        if job.current_version is None:
            return None
        version, found = self._known.get(job.name, (0, None))
        if version != job.current_version:
            try:
                found = schedule_of(self._services.settings(job.name, job.current_version))
            except JobError as error:  # a later headrace has stored it
                logger.error("this server cannot run the schedule of %s: %s", job.name, error)
                found = None
                self._unknown[job.name] = job.current_version
            self._known[job.name] = (job.current_version, found)
        return found

    def next_due(self, job: JobRecord) -> datetime | None:
        """Return when a job is started next; None if that is not known, or if it is stopped or paused."""
        if self._scheduler is None or job.desired not in ON_SCHEDULE or self.of(job) is None:
            return None
        return self._scheduler.next_due(job.name)

    def history(self, job: str, *, count_max: int = 20) -> list[HistoryEntry]:
        """Return the outcomes of the last scheduled times of a job, newest first."""
        return self._made().history(job, count_max=count_max)

    def tick(self, jobs: Iterable[JobRecord]) -> None:
        """Start the due runs, once a second. ``jobs``: all jobs of the registry, as they were a moment ago.

        Raises RetriableError, errors of the database: the next round tries again.
        """
        now = self._services.clock.monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        schedules = self._schedules(jobs)
        if self._scheduler is None and not schedules:
            return  # nothing to do, and no lease to keep
        self._made().tick(schedules)
        if now - self._cleaned >= _CLEAN_UP_SECONDS:
            self._cleaned = now
            self._made().remove_old_history()
            kept_ms = _STARTS_KEPT // timedelta(milliseconds=1)
            self._services.registry.remove_scheduled(int(self._services.clock.now() * 1000) - kept_ms)

    def stop(self) -> None:
        """Give the lease back. Called when the server ends."""
        if self._scheduler is not None:
            self._scheduler.stop()

    def _schedules(self, jobs: Iterable[JobRecord]) -> dict[str, ScheduleSettings]:
        found: dict[str, ScheduleSettings] = {}
        for job in jobs:
            if not job.present or job.desired not in ON_SCHEDULE:
                continue
            settings = self.of(job)
            if settings is not None:
                found[job.name] = settings
            if job.current_version is None or self._unknown.get(job.name) != job.current_version:
                self._settle(job, settings)
        return found

    def _settle(self, job: JobRecord, settings: ScheduleSettings | None) -> None:
        """A run that has finished waits for the next one; a job whose new version has no schedule any more runs."""
        wanted = job.desired
        if settings is not None and job.desired is Desired.FINISHED:
            wanted = Desired.SCHEDULED
        elif settings is None and job.desired is Desired.SCHEDULED and job.current_version is not None:
            wanted = Desired.RUNNING
        if wanted is not job.desired:
            self._services.registry.move(job.name, job.desired, wanted)

    def _made(self) -> Scheduler:
        if self._scheduler is None:
            store = SqlLeaseStore(self._services.registry.engine)
            store.create_table()
            member = self._services.member
            self._scheduler = Scheduler(
                store.engine, Leases(store), self._services.clock, self._starter, server=self._services.server,
                # Of several servers the next one must not depend on the clock of the database.
                hold=None if member is None else member.hold_schedules,
            )  # fmt: skip
        return self._scheduler


class _Starter:
    """How the scheduler starts and ends runs: it changes the wanted state of a job, and the units act on it."""

    def __init__(
        self, services: Services, units: Mapping[str, Unit], is_resting: Callable[[JobRecord], bool]
    ) -> None:  # fmt: skip
        self._services = services
        self._units = units
        self._is_resting = is_resting

    def start_job(self, name: str, scheduled_for: datetime) -> str:
        """See JobStarter.start_job."""
        job = self._services.registry.job(name)
        if not job.present or job.current_version is None:
            raise JobError("the job has no file, or none of its versions was accepted", job=name, hint=job.problem)
        if self._services.registry.begin_scheduled(name, to_milliseconds(scheduled_for)):
            unit = self._units.get(job.unit)
            if unit is not None:
                unit.begin_anew(name)
        return f"{name}@{scheduled_for.isoformat()}"

    def stop_job(self, name: str) -> None:
        """See JobStarter.stop_job."""
        self._services.registry.move(name, Desired.RUNNING, Desired.SCHEDULED)

    def is_running(self, name: str) -> bool:
        """See JobStarter.is_running. A job that rests after too many failures is not running: its next run starts normally."""
        job = self._services.registry.job(name)
        wanted = job.desired is Desired.RUNNING and not self._is_resting(job)
        return wanted or any(run.job == name for run in self._services.registry.open_runs())
