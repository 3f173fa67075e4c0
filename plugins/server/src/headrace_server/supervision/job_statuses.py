"""How jobs are: those of this server by its units, those of others by what their servers say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.foundation.errors import JobError

from headrace_server.registry.records import Desired, JobRecord, JobStatusRecord
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import RUNS, Unit

#: A job that waits until some server has it, or until its server is back.
UNASSIGNED = "unassigned"
_RESTING = "resting"
WANTED = frozenset({Desired.RUNNING, Desired.SCHEDULED})


def is_up(phase: str, has_run: bool) -> bool:
    """Return whether a job is as a start leaves it. Another server's word may be older than the job's last end."""
    return phase in ("finished", "scheduled") or (phase == "running" and has_run)


class JobStatuses:
    """Tells how jobs are. May be called from any thread. Give it the records that you have: it asks the registry little."""

    def __init__(self, services: Services, units: Mapping[str, Unit], is_busy: Callable[[str], bool]) -> None:
        self._services = services
        self._units = units
        self._is_busy = is_busy

    def is_here(self, job: JobRecord) -> bool:
        """Return whether this server has the job."""
        member = self._services.member
        found = None if member is None else member.unit(job.unit)
        return member is None or (found is not None and found.server == self._services.server)

    def server_of(self, job: JobRecord) -> str | None:
        """Return the name of the server that has a job; None: no server has it now."""
        if self._services.member is None:
            return self._services.server
        found = self._services.member.unit(job.unit)
        return None if found is None else found.server

    def of(self, jobs: Iterable[JobRecord]) -> dict[str, JobStatusRecord]:
        """Return how each job is, asking the registry once."""
        known = list(jobs)
        elsewhere = {}
        if self._services.member is not None and not all(map(self.is_here, known)):
            elsewhere = self._services.member.tables.statuses()
        return {job.name: self._here(job) if self.is_here(job) else self._there(job, elsewhere) for job in known}

    def of_here(self, jobs: Iterable[JobRecord]) -> dict[str, JobStatusRecord]:
        """Return how the jobs of this server are."""
        return {job.name: self._here(job) for job in jobs if self.is_here(job)}

    def is_resting(self, job: JobRecord) -> bool:
        """Return whether a job has failed too often and waits for a person or its schedule, on whichever server."""
        return self.of([job])[job.name].state == _RESTING

    def figures(self, job: JobRecord) -> Mapping[str, Any] | None:
        """Return the figures that the runner of a job of this server gave last; None if it does not run here."""
        unit = self._units.get(job.unit)
        found: Mapping[str, Any] | None = unit.statuses.get(job.name, {}).get("figures") if unit is not None else None
        return found

    def _here(self, job: JobRecord) -> JobStatusRecord:
        unit, figures = self._units.get(job.unit), self.figures(job)
        runner = None if unit is None else unit.runner
        return JobStatusRecord(
            state=self._state(job), figures=figures, pid=runner.pid if runner is not None and figures is not None else None,
            failures=unit.policy(job.name).failures if unit is not None else 0,
        )  # fmt: skip

    def _there(self, job: JobRecord, told: Mapping[str, tuple[str, JobStatusRecord]]) -> JobStatusRecord:
        member = self._services.member
        assert member is not None
        unit = member.unit(job.unit)
        server, found = told.get(job.name, (None, None))
        if unit is None or unit.server is None or not member.is_live(unit.server):
            at_rest = job.desired not in WANTED or job.current_version is None
            return JobStatusRecord(state=job.desired.value if at_rest and job.current_version else UNASSIGNED)
        if found is None or server != unit.server:
            return JobStatusRecord(state="starting" if job.desired is Desired.RUNNING else job.desired.value)
        return found

    def _state(self, job: JobRecord) -> str:
        """Return the present activity of a job of this server, in one word for people."""
        unit = self._units.get(job.unit)
        phase = unit.phase(job.name) if unit is not None else None
        if unit is not None and phase in RUNS:
            return str(phase)
        if job.desired not in WANTED:
            return job.desired.value
        if job.current_version is None:
            if job.problem:
                return "refused"
            return "waiting" if self.waits_for_a_person(job) else "new"
        if job.desired is Desired.SCHEDULED:
            return job.desired.value
        if unit is not None and unit.policy(job.name).rests:
            return _RESTING
        if unit is not None and unit.policy(job.name).failures:
            return "failing"
        return phase if phase is not None else "starting"

    def waits_for_a_person(self, job: JobRecord) -> bool:
        """Return whether the first version of a job waits for ``headrace upgrade``: ``roll_out: manual``."""
        number = None if self._is_busy(job.unit) else self._services.registry.newest_version(job.name)
        try:
            return number is not None and self._services.settings(job.name, number).roll_out == "manual"
        except JobError:  # of a later headrace: its server says how it is
            return False
