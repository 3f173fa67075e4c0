"""What rows of the registry are in Python."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec


class Desired(enum.StrEnum):
    """What a person wants of a job; ``FINISHED`` is set by the server when a bounded job has read its input.

    ``SCHEDULED``: the job waits for the next time of its schedule.
    """

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    FINISHED = "finished"
    SCHEDULED = "scheduled"


#: What a job with a schedule is, unless a person has stopped or paused it.
ON_SCHEDULE = frozenset({Desired.SCHEDULED, Desired.RUNNING, Desired.FINISHED})


class VersionState(enum.StrEnum):
    """What became of a version."""

    NEW = "new"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    FELL_BACK = "fell_back"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the server knows."""

    name: str
    desired: Desired
    current_version: int | None
    present: bool
    problem: str | None
    labels: Mapping[str, str]
    #: The unit that runs it: the name of its group, or its own name.
    unit: str
    server: str | None = None
    offered_version: int | None = None
    starts: int | None = None


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a job. Its files are below ``versions/<job>/<number>`` of the data directory."""

    job: str
    number: int
    content_hash: str
    state: VersionState
    reason: str | None
    settings: str
    files: Mapping[str, str]
    plan: str | None
    author: str | None
    note: str | None
    created_seconds: float


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job in a process."""

    id: int
    unit: str
    job: str
    version: int
    server: str
    pid: int
    process_started_seconds: float
    socket: str
    started_seconds: float
    ended_seconds: float | None
    outcome: str | None
    reason: str | None


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes long: clients look at it again, or follow it as events."""

    id: str
    kind: str
    jobs: tuple[str, ...]
    state: str
    step: str
    result: str | None
    error: str | None
    started_seconds: float
    ended_seconds: float | None
    server: str | None = None


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the registry, as it has described itself. Whether it lives, its lease says."""

    name: str
    pid: int
    url: str | None
    started_seconds: float
    ended_seconds: float | None
    data: str | None = None
    machine: str | None = None
    cores: int | None = None
    version: str | None = None
    state: str | None = None
    reads_jobs: bool | None = None
    refused_files: str | None = None


class RunnerNote(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has the lease of a unit, as it describes itself in the registry."""

    server: str
    machine: str
    pid: int
    generation: str
    specification: str
    socket: str
    token: int


class UnitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which server has a unit."""

    unit: str
    server: str | None
    epoch: int
    home: str | None
    cores: float | None
    busy: bool
    runner: RunnerNote | None
    outcomes: Mapping[str, tuple[str, str | None]]


class JobStatusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the server of a job says of it."""

    #: In one word for people, see ``JobView``.
    state: str
    pid: int | None = None
    failures: int = 0
    #: As ``handle.status()`` gives them; None if the job does not run.
    figures: Mapping[str, Any] | None = None
