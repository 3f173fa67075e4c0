"""The specification with which a runner is started: a JSON file that only its user can read. It contains no secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.private_files import make_private_directory

from headrace_server.jobs_directory.settings import OptionValue
from headrace_server.runner.limits import Limits


class JobSpecification(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a runner."""

    name: str
    version: int
    #: The file that builds the job.
    file: str
    backend: str
    options: Mapping[str, OptionValue] = {}
    variables: Mapping[str, str] = {}
    bounded: bool = False
    checkpoint: str
    stop_timeout_seconds: float = 60.0


class RunnerSpecification(msgspec.Struct, frozen=True, kw_only=True):
    """One runner: the jobs of a unit, and where it listens and logs."""

    unit: str
    #: Told apart from earlier and later runners of the unit.
    generation: str
    jobs: tuple[JobSpecification, ...]
    socket: str
    log: str
    work_directory: str
    #: Whether the unit is a group: then a job that has failed can be started again in the same process.
    group: bool = False
    #: Wait for ``go`` when all jobs are prepared.
    wait: bool = False
    limits: Limits = Limits()
    #: The control group that has the limits, which the runner enters; None: the system limits its process.
    control_group: str | None = None
    #: The interpreter: that of an environment of plug-ins, or of the server that has started the process.
    python: str | None = None
    #: What that server had installed, as a digest: another server asks whether it would start the same.
    environment: str | None = None
    log_format: Literal["console", "json"] = "console"
    #: The process holds the lease of the unit: how it reaches the registry is on its standard input.
    leased: bool = False

    def write(self, file: Path) -> None:
        """Write the specification. Raises OSError."""
        make_private_directory(file.parent)
        replace_durably(file, msgspec.json.encode(self))

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> RunnerSpecification:
        """Read a specification. Raises OSError, msgspec.MsgspecError."""
        return msgspec.json.decode(Path(file).read_bytes(), type=cls)


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended in a runner."""

    outcome: str
    reason: str | None = None


def result_file(specification: Path) -> Path:
    """Return where a runner writes how its jobs have ended, for a server that was away then."""
    return specification.with_suffix(".result")


def write_result(specification: Path, outcomes: Mapping[str, JobOutcome]) -> None:
    """Write how the jobs of a runner have ended. Called by the runner just before it exits."""
    replace_durably(result_file(specification), msgspec.json.encode(outcomes))


def read_result(specification: Path) -> Mapping[str, JobOutcome] | None:
    """Return how the jobs of a runner have ended; None if it was killed before it could say so."""
    try:
        return msgspec.json.decode(result_file(specification).read_bytes(), type=dict[str, JobOutcome])
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
