"""An endpoint that runs two versions of a job over the same records and compares what they would write."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.errors import JobError

from headrace_server.access.roles import Role
from headrace_server.api.endpoints import Asked, Change, Endpoint, check_number
from headrace_server.api.known_jobs import known_job
from headrace_server.registry.records import OperationRecord
from headrace_server.supervision.supervisor import Supervisor
from headrace_server.trials.comparison import SinkDifference, compared
from headrace_server.trials.process import Trials

_TIMEOUT = timedelta(minutes=10)
_RECORDS_MAX = 1_000_000


class ShadowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which versions: the newest and the present one unless others are named; ``records``: how many of each queue are read."""

    version: int | None = None
    against: int | None = None
    records: int = 10_000


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What two versions make of the same records."""

    before: int
    after: int
    records: int
    equal: bool
    dead_letters_before: int
    dead_letters_after: int
    sinks: Mapping[str, SinkDifference]


class ShadowHandlers:
    """The function of the endpoint, on one supervisor."""

    def __init__(self, supervisor: Supervisor, trials: Trials) -> None:
        self._supervisor = supervisor
        self._services = supervisor.services
        self._trials = trials

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoint, with the role that it needs."""
        return [
            Endpoint(
                "POST", "/v1/jobs/{job}/shadow", Role.OPERATOR, "Compare what two versions make of the last records",
                self.shadow, body=ShadowBody, returns=OperationRecord, status=202, change=Change("shadow"),
            )
        ]  # fmt: skip

    def shadow(self, asked: Asked) -> OperationRecord:
        """Run two versions over the same records into memory, one after the other. Nothing of it reaches a sink or a group."""
        body: ShadowBody = asked.body
        record = known_job(self._services.registry, asked.job)
        before = record.current_version if body.against is None else body.against
        after = self._services.registry.newest_version(record.name) if body.version is None else body.version
        if before is None or after is None:
            raise JobError(
                "no version of the job was accepted, so there is no version to compare with", job=record.name
            )
        if before == after:
            raise JobError(
                f"version {after} is the current version",
                job=record.name,
                hint="give two versions: version and against",
            )
        check_number("records", body.records, _RECORDS_MAX)

        def work(operation: str) -> ShadowReport:
            with tempfile.TemporaryDirectory(prefix="headrace-shadow-") as place:
                return self._compared(operation, record.name, (before, after), body.records, Path(place))

        return self._services.registry.operation(self._supervisor.begin("shadow", [record.name], work))

    def _compared(self, operation: str, job: str, versions: tuple[int, int], records: int, place: Path) -> ShadowReport:
        ranges: Any = None
        found: list[dict[str, Any]] = []
        files: list[dict[str, Path]] = []
        for version in versions:
            self._services.registry.note_step(operation, f"running version {version} over the last records")
            output = place / str(version)
            output.mkdir()
            specification = self._services.job_specification(job, version)
            made: dict[str, Any] = self._trials.ask(
                "shadow", timeout=_TIMEOUT, **self._services.process_of(job, version),
                file=specification.file, variables=specification.variables, records=records, ranges=ranges,
                output=str(output),
            )  # fmt: skip
            ranges = made["ranges"]
            found.append(made)
            files.append({sink: output / name for sink, name in made["files"].items()})
        sinks = compared(*files)
        equal = all(each.equal for each in sinks.values())
        return ShadowReport(
            before=versions[0], after=versions[1], records=found[0]["records"], equal=equal, sinks=sinks,
            dead_letters_before=found[0]["dead_letters"], dead_letters_after=found[1]["dead_letters"],
        )  # fmt: skip
