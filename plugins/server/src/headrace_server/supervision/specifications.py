"""Makes the specification of a runner from the registry."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError, OptionError

from headrace_server.access.secret_places import SecretPlaces
from headrace_server.jobs_directory.plugin_wheels import LOCK_FILE
from headrace_server.jobs_directory.scanning import SUFFIXES, is_job_file
from headrace_server.jobs_directory.settings import JobSettings, keeps_nothing_on_disk
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.loop_watch import LoopRounds
from headrace_server.registry.database import Registry
from headrace_server.registry.records import VersionRecord
from headrace_server.runner.limits import Limits
from headrace_server.runner.specification import JobSpecification, RunnerSpecification
from headrace_server.runner.unit_lease import Access
from headrace_server.sharing.member import Member, Taken
from headrace_server.supervision.cgroups import Cgroups, remove
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.environments import Environments
from headrace_server.supervision.fencing import begin_without_checkpoint, fence_checkpoint, take_from_lost_process
from headrace_server.supervision.processes import Launcher, RunnerProcess, environment_of_jobs

#: Gives the values of secrets by name. Raises JobError for one that it does not have.
SecretReader = Callable[[Sequence[str]], Mapping[str, str]]


def secrets_of_environment(names: Sequence[str]) -> Mapping[str, str]:
    """Return secrets from the environment of the server. Raises OptionError that names those that are not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise OptionError(
            f"the server does not have the secrets {', '.join(missing)}",
            option="secrets",
            hint="set them in the environment of headrace serve",
        )
    return {name: os.environ[name] for name in names}


@functools.cache
def own_environment() -> str:
    """Return a digest of this server's installed packages and their places: processes that it starts have the same."""
    installed = sorted({f"{each.name}=={each.version}" for each in importlib.metadata.distributions()})
    return hashlib.sha256("\n".join([sys.version, sys.prefix, *installed]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Services:
    """What units need of their server."""

    registry: Registry
    data: DataDirectory
    versions: VersionFiles
    launcher: Launcher
    clock: Clock
    server: str
    read_secrets: SecretReader = secrets_of_environment
    environments: Environments | None = None
    #: None: limits are those of processes, see ``no_cgroups``.
    cgroups: Cgroups | None = None
    no_cgroups: str = "it was not looked for"
    log_format: Literal["console", "json"] = "console"
    #: Set if the server shares its registry with others.
    member: Member | None = None

    @property
    def loop_of_member(self) -> LoopRounds | None:
        """The rounds of the loop that looks at other servers; None: there are none."""
        return None if self.member is None else self.member.looped

    def launch(
        self,
        unit: str,
        versions: Mapping[str, int],
        *,
        group: bool,
        wait: bool,
        token: int | None = None,
        python: str | None = None,
    ) -> RunnerProcess:
        """Start a runner of a unit with these versions of its jobs. Raises JobError.

        ``token``: of the unit's lease, if the runner does not wait and the unit has one. ``python``: another interpreter than
        this server's.
        """
        records = [self.registry.version(job, number) for job, number in sorted(versions.items())]
        settings = {record.job: _settings_of(record) for record in records}
        if not self._is_movable(settings.values()) and self.member is not None:
            self.member.pin(unit)
        leased = self.member is not None and self.member.is_leased(unit)
        generation = uuid.uuid4().hex[:12]
        place = self.data.of_unit(unit, group=group)
        limits = _limits_of(settings.values())
        specification = RunnerSpecification(
            unit=unit,
            generation=generation,
            jobs=tuple(self._job(record, settings[record.job]) for record in records),
            socket=str(self.data.socket(generation)),
            log=str(self.data.log(unit, group=group)),
            work_directory=str(place / "work"),
            group=group,
            wait=wait,
            python=python or self._python(unit, versions) or sys.executable,
            environment=None if python else own_environment(),
            log_format=self.log_format,
            limits=limits,
            control_group=self._group(unit, generation, limits),
            leased=leased,
        )
        file = self.data.specification(unit, generation, group=group)
        given = self._access(token) if leased else b""
        try:
            return self.launcher.launch(specification, file, self.environment(settings.values()), given=given)
        except BaseException:
            remove(specification.control_group)
            raise

    def _group(self, unit: str, generation: str, limits: Limits) -> str | None:
        """Return the control group for a runner with limits, which is made; None: it needs none, or its process gets the limits."""
        if not limits.needs_group:
            return None
        if self.cgroups is not None:
            return self.cgroups.make(unit, generation, limits)
        for option in ("cpu_max", "cpu_weight"):
            if getattr(limits, option) is not None:
                raise OptionError(
                    f"{unit}: this server cannot limit processor time: {self.no_cgroups}", option=option,
                    hint="remove the limit, or give the server its own control group: docs/deployment.md",
                )  # fmt: skip
        return None

    def _is_movable(self, settings: Iterable[JobSettings]) -> bool:
        """Return whether other servers reach all that the jobs of a unit keep."""
        return self.data.shared is not None or all(map(keeps_nothing_on_disk, settings))

    def _access(self, token: int | None) -> bytes:
        assert self.member is not None
        access = Access(
            url=self.registry.engine.url.render_as_string(hide_password=False), server=self.server,
            machine=self.member.identity.machine, duration_seconds=self.member.lease_duration.total_seconds(), token=token,
        )  # fmt: skip
        return msgspec.json.encode(access)

    def prepare_places(self, versions: Mapping[str, int], taken: Taken) -> None:
        """Ensure that a process with a new lease finds its files, and none that another process may still write. Raises OSError."""
        for job, number in sorted(versions.items()):
            settings = self.settings(job, number)
            if self.data.shared is None:
                if taken.moved:
                    begin_without_checkpoint(self.data, job, taken.lease.token)
            elif taken.fenced and settings.backend == "light":
                fence_checkpoint(self.data, job, taken.lease.token)
            elif taken.fenced:
                take_from_lost_process(settings.backend, self.data.checkpoint(job), job)

    def python_of(self, job: str, number: int) -> str | None:
        """Return the interpreter of a version with its own plug-ins; None: the server's. Raises JobError if it cannot be made."""
        lock = self.versions.place(job, number) / LOCK_FILE
        try:
            text = lock.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        if self.environments is None:
            raise JobError("this server has no directory for environments of plug-ins", job=job, option="plugins")
        return self.environments.python_of(text)

    def process_of(self, job: str, number: int) -> dict[str, Any]:
        """Return the environment and the interpreter of a version, as a trial takes them. Raises JobError."""
        return {
            "environment": self.environment([self.settings(job, number)]),
            "python": self.python_of(job, number),
        }

    def _python(self, unit: str, versions: Mapping[str, int]) -> str | None:
        found = {job: self.python_of(job, number) for job, number in versions.items()}
        if len(set(found.values())) > 1:
            raise JobError(
                f"the jobs of the group {unit!r} need different plug-ins, but share one process", option="plugins",
                hint="give them the same plugins:, or another group",
            )  # fmt: skip
        return next(iter(found.values()), None)

    def environment(self, of: Iterable[JobSettings]) -> dict[str, str]:
        """Return the environment of a process for jobs with these settings, with their secrets. Raises JobError for a missing secret."""
        given: dict[str, str] = {}
        secrets: dict[str, str] = {}
        for each in of:
            given |= each.environment
            if isinstance(each.secrets, Mapping):
                places = SecretPlaces(each.secrets)
                secrets |= {name: places.reveal(name) for name in each.secrets}
            else:
                secrets |= self.read_secrets(each.secrets)
        return environment_of_jobs(os.environ, given, secrets)

    def settings(self, job: str, number: int) -> JobSettings:
        """Return the settings of a version. Raises JobError for those of a later headrace that this one does not know."""
        return _settings_of(self.registry.version(job, number))

    def job_specification(self, job: str, number: int) -> JobSpecification:
        """Return the description of a version that a runner gets."""
        record = self.registry.version(job, number)
        return self._job(record, _settings_of(record))

    def _job(self, record: VersionRecord, settings: JobSettings) -> JobSpecification:
        place = self.versions.check(record.job, record.number, record.files)
        stem = record.job.rpartition("/")[2]
        present = [place / f"{stem}{suffix}" for suffix in SUFFIXES if f"{stem}{suffix}" in record.files]
        files = [file for file in present if is_job_file(file)]  # rules in YAML beside the job may have its name
        if not files:
            raise JobError(f"version {record.number} has no file of the job", job=record.job)
        return JobSpecification(
            name=record.job,
            version=record.number,
            file=str(files[0]),
            backend=settings.backend,
            options=settings.options,
            variables={name: _text(value) for name, value in settings.variables.items()},
            bounded=settings.until == "end",
            checkpoint=str(self.data.checkpoint(record.job)),
            stop_timeout_seconds=settings.stop_timeout,
        )


def _settings_of(record: VersionRecord) -> JobSettings:
    try:
        return msgspec.json.decode(record.settings, type=JobSettings)
    except msgspec.ValidationError as error:
        raise JobError(
            f"a newer headrace has stored its version {record.number}, and this one does not know its settings: {error}",
            job=record.job, hint="upgrade headrace on this server",
        ) from error  # fmt: skip


def _limits_of(jobs: Collection[JobSettings]) -> Limits:
    """Return the limits of a process for jobs: of each kind the sum, or none if one of the jobs has none."""
    sums = {}
    for name in Limits.__struct_fields__:
        found = [getattr(each, name) for each in jobs]
        sums[name] = None if None in found else sum(found)
    return Limits(**sums)


def _text(value: str | int | float | bool) -> str:
    """Return a value of YAML as the command line would give it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
