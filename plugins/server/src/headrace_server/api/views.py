"""What the API answers with, as types: the OpenAPI document is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from headrace_server.registry.records import RunRecord

Action = Literal["start", "stop", "restart", "pause", "resume"]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the table of jobs."""

    name: str
    #: What it does now: running, stopped, paused, finished, scheduled, starting, stopping, failing, resting, refused, waiting, new,
    #: or unassigned: no server has it.
    state: str
    desired: str
    version: int | None
    newest_version: int | None
    unit: str
    labels: Mapping[str, str]
    problem: str | None
    pid: int | None = None
    records_read: int | None = None
    rows_written: int | None = None
    dead_letters: int | None = None
    lag_records: int | None = None
    seconds: float | None = None
    #: Its process has the headrace of a server before: ``upgrade`` moves it to this one's.
    has_earlier_headrace: bool = False
    #: When its schedule starts it next.
    next_due_seconds: float | None = None
    #: The server that has it; None: no server has it now.
    server: str | None = None
    #: When its checkpoint was last up to date, in seconds since the Unix epoch.
    checkpoint_seconds: float | None = None
    #: What its process says of it, if it has failed.
    error: str | None = None


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the list of a job."""

    number: int
    state: str
    reason: str | None
    author: str | None
    note: str | None
    created_seconds: float
    content_hash: str


class VersionDetail(VersionView, frozen=True, kw_only=True):
    """A version with its plan, its settings and the texts of its files."""

    plan: str | None
    settings: Any
    files: Mapping[str, str]


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """All about one job."""

    job: JobView
    #: As ``handle.status()`` gives them; None if the job does not run.
    figures: Any
    versions: list[VersionView]
    runs: list[RunRecord]


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """The server itself."""

    name: str
    version: str
    jobs_directory: str
    jobs: int
    #: Files of the jobs directory that cannot become a version, with the reason.
    refused_files: Mapping[str, str]


class OtherServerView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the servers of a registry."""

    name: str
    #: Where it is reached.
    url: str | None
    #: ``serves``, ``drains``, ``restarts`` or ``away``.
    state: str
    #: Jobs that it has, those of them that should run, and the processor cores that these use.
    jobs: int
    running: int
    cores_used: float
    cores: int | None
    version: str | None
    #: Whether it reads the jobs directory now.
    reads_jobs: bool
    started_seconds: float
    #: How long ago it has shown a sign of life.
    seen_seconds_ago: float


class ActionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start, stop, restart, pause or resume jobs. ``select``: a name, ``FOLDER/``, ``LABEL=VALUE`` or ``--all``."""

    action: Action
    select: str
    timeout_seconds: float = 120.0


class FileBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a job's file, which is written into the jobs directory."""

    suffix: Literal[".py", ".sql", ".yaml", ".yml"]
    text: str


class VersionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version; without one the newest (upgrade) or the last good one before the present (rollback)."""

    version: int | None = None


class ScheduledRunView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one time of a schedule: ``started``, ``skipped``, ``missed``, ``failed``, or ``due`` and ``starting``."""

    due_seconds: float
    state: str
    reason: str
    changed_seconds: float


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule of a job, and its last times, the newest first."""

    definition: str
    next_due_seconds: float | None
    history: list[ScheduledRunView]


class SavepointBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a savepoint, below the data directory of the server; ``stop``: the job stops at its place."""

    name: str | None = None
    stop: bool = False


class OffsetsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Next offsets by queue (``source/queue``)."""

    offsets: Mapping[str, Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]


class OffsetsView(msgspec.Struct, frozen=True, kw_only=True):
    """The next offset of each queue."""

    offsets: Mapping[str, int]
    note: str | None = None


class RulesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A set of rules, as text of a ``.yaml`` or ``.sql`` file; ``node``: which verb, if the job has several."""

    text: str
    suffix: Literal[".yaml", ".sql"] = ".yaml"
    node: str | None = None


class RulesText(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that were put last for a job, as text of a ``.yaml`` or ``.sql`` file."""

    text: str
    suffix: str


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines of a job's log."""

    lines: list[str]
