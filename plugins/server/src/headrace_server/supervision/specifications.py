"""Makes the specification of a runner from what the registry has."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError, OptionError

from headrace_server.jobs_directory.settings import JobSettings
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry
from headrace_server.registry.records import VersionRecord
from headrace_server.runner.specification import JobSpecification, RunnerSpecification
from headrace_server.supervision.data_directory import DataDirectory
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

    def launch(self, unit: str, versions: Mapping[str, int], *, group: bool, wait: bool) -> RunnerProcess:
        """Start a runner of a unit with these versions of its jobs. Raises JobError."""
        records = [self.registry.version(job, number) for job, number in sorted(versions.items())]
        settings = {record.job: msgspec.json.decode(record.settings, type=JobSettings) for record in records}
        generation = uuid.uuid4().hex[:12]
        place = self.data.of_unit(unit, group=group)
        specification = RunnerSpecification(
            unit=unit,
            generation=generation,
            jobs=tuple(self._job(record, settings[record.job]) for record in records),
            socket=str(self.data.socket(generation)),
            log=str(self.data.log(unit, group=group)),
            work_directory=str(place / "work"),
            group=group,
            wait=wait,
            memory_max_bytes=_sum(each.memory_max_bytes for each in settings.values()),
            open_files_max=_sum(each.open_files_max for each in settings.values()),
        )
        file = self.data.specification(unit, generation, group=group)
        return self.launcher.launch(specification, file, self.environment(settings.values()))

    def environment(self, of: Iterable[JobSettings]) -> dict[str, str]:
        """Return the environment of a process for jobs with these settings, with their secrets. Raises JobError for a missing secret."""
        given: dict[str, str] = {}
        secrets: dict[str, str] = {}
        for each in of:
            given |= each.environment
            secrets |= self.read_secrets(each.secrets)
        return environment_of_jobs(os.environ, given, secrets)

    def settings(self, job: str, number: int) -> JobSettings:
        """Return the settings of a version."""
        return msgspec.json.decode(self.registry.version(job, number).settings, type=JobSettings)

    def job_specification(self, job: str, number: int) -> JobSpecification:
        """Return what a runner is told of a version."""
        record = self.registry.version(job, number)
        return self._job(record, msgspec.json.decode(record.settings, type=JobSettings))

    def _job(self, record: VersionRecord, settings: JobSettings) -> JobSpecification:
        place = self.versions.check(record.job, record.number, record.files)
        stem = record.job.rpartition("/")[2]
        files = [place / f"{stem}{suffix}" for suffix in (".py", ".sql") if f"{stem}{suffix}" in record.files]
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


def _sum(limits: Iterable[int | None]) -> int | None:
    """Return the sum of limits; None if one of the jobs has none."""
    found = list(limits)
    given = [each for each in found if each is not None]
    return sum(given) if len(given) == len(found) else None


def _text(value: str | int | float | bool) -> str:
    """Return a value of YAML as the command line would give it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
