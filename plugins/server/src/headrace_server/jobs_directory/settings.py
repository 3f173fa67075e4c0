"""``job.yaml``: how the jobs of a folder are run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.settings import parse_duration, parse_size

from headrace_server.access.secret_places import SecretPlaces
from headrace_server.jobs_directory.plugin_wheels import is_wheel_name
from headrace_server.schedules.settings import ScheduleSettings

SETTINGS_FILE = "job.yaml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_SERVER = {
    "checkpoint": "it is below jobs/ of the data directory",
    "until": "write until: end beside options",
    "from_savepoint": "start a job from a savepoint with headrace run, then hand its checkpoint over",
    "show_progress": "headrace status shows progress",
}
#: What an option of a job can be in ``job.yaml``; a list or a mapping is for options such as ``conf`` of Spark.
OptionValue = str | int | float | bool | list[str] | dict[str, str | int | float | bool]
_DURATIONS = ("stop_timeout", "health_timeout", "health_window", "prepare_timeout")


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of one job, after those of its folder and its own were put together. Durations are in seconds.

    Defaults are left out where settings are stored: a new setting does not make a new version of each job.
    """

    backend: str = "light"
    #: Of the run and of the backend, as for ``headrace run --option``.
    options: Mapping[str, OptionValue] = {}
    #: Arguments of the file's ``job()`` function, or the ``${NAME}`` of a SQL text.
    variables: Mapping[str, str | int | float | bool] = {}
    #: ``never``: the job runs until it is stopped. ``end``: it reads the input that is there.
    until: Literal["never", "end"] = "never"
    #: When a bounded job is started; see ``ScheduleSettings``.
    schedule: Mapping[str, str | int] | None = None
    labels: Mapping[str, str] = {}
    #: Secrets that the job gets as environment variables: their names in the environment of the server, or their places by name.
    secrets: tuple[str, ...] | Mapping[str, str] = ()
    environment: Mapping[str, str] = {}
    #: Wheels in ``ext/`` that the job's process has in addition to the server's packages.
    plugins: tuple[str, ...] = ()
    #: Light jobs of the same group run in one process.
    group: str | None = None
    #: Most memory that a process may have; None: no limit. A group takes the sums of its jobs, also of the limits below.
    memory_max_bytes: int | None = None
    #: Its share of processor time beside others that want more than there is, 1 to 10,000; a group of the system has 100 by itself.
    cpu_weight: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    #: Most processor time that it may have, in cores.
    cpu_max: Annotated[float, msgspec.Meta(ge=0.01, le=10_000)] | None = None
    open_files_max: int | None = None
    #: Whether versions are rolled out at once, or wait for ``headrace upgrade``: also the first of a job.
    roll_out: Literal["automatic", "manual"] = "automatic"
    #: Whether a job that is found for the first time is started.
    start: bool = True
    #: Nothing that the job needs after a restart lies on the disk of its server, so any of several servers may run it.
    movable: bool = False
    stop_timeout: float = 60.0
    #: A new version must run within this time, and then keep running for the window; otherwise the old one is started again.
    health_timeout: float = 60.0
    health_window: float = 5.0
    #: A new version must be loaded and planned within this time.
    prepare_timeout: float = 120.0


class FolderSettings:
    """The ``job.yaml`` of a folder, read once for all jobs of it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / SETTINGS_FILE
        self._found: dict[Any, Any] | None = None

    def of(self, stem: str) -> JobSettings:
        """Return the settings of the job in a file of this stem. Raises OptionError that names file, job and option; OSError."""
        if self._found is None:
            self._found = self._read(stem)
        found = {name: value for name, value in self._found.items() if name != "jobs"}
        jobs = self._found.get("jobs") or {}
        if not isinstance(jobs, dict):
            raise OptionError(f"{self._file}: jobs: must be a mapping of the names of jobs", job=stem, option="jobs")
        own = jobs.get(stem) or {}
        if not isinstance(own, dict):
            raise OptionError(f"{self._file}: jobs: {stem}: must be a mapping", job=stem)
        merged = {**found, **own}
        for name in ("options", "variables", "labels", "environment"):
            both = (found.get(name) or {}, own.get(name) or {})
            if all(isinstance(each, dict) for each in both) and any(both):
                merged[name] = {**both[0], **both[1]}
        return _made(merged, self._file, stem)

    def _read(self, stem: str) -> dict[Any, Any]:
        try:
            found = yaml.safe_load(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError as error:
            raise OptionError(f"{self._file} cannot be read: {error}", job=stem) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that there is not
            raise OptionError(f"{self._file} is not YAML: {error}", job=stem) from error
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise OptionError(f"{self._file} must be a mapping", job=stem, hint="for example\n    backend: light")
        return found


def settings_of(folder: Path, stem: str) -> JobSettings:
    """Return the settings of the job in a file of this stem. Raises OptionError that names file, job and option."""
    try:
        return FolderSettings(folder).of(stem)
    except OSError as error:
        raise OptionError(f"{error.filename} cannot be read: {error.strerror}", job=stem) from error


def _made(given: dict[Any, Any], file: Path, stem: str) -> JobSettings:
    known = JobSettings.__struct_fields__
    for name in given:
        if name not in known:
            raise OptionError(
                f"{file}: unknown setting {name!r}",
                job=stem,
                option=str(name),
                hint=did_you_mean(str(name), [*known, "jobs"], known="settings"),
            )
    converted = dict(given)
    for name in _DURATIONS:
        if name in given:
            converted[name] = _converted(name, given[name], file, stem)
    if given.get("memory_max_bytes") is not None:
        converted["memory_max_bytes"] = _converted("memory_max_bytes", given["memory_max_bytes"], file, stem)
    try:
        made = msgspec.convert(converted, JobSettings)
    except msgspec.ValidationError as error:
        raise OptionError(f"{file}: {error}", job=stem) from error
    _check(made, file, stem)
    return made


def _converted(name: str, value: Any, file: Path, stem: str) -> float | int:
    try:
        if name == "memory_max_bytes":
            return parse_size(value)
        made: timedelta = parse_duration(value)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{file}: {error}", job=stem, option=name) from error
    if made <= timedelta():
        raise OptionError(f"{file}: must be longer than 0", job=stem, option=name)
    return made.total_seconds()


def _check(made: JobSettings, file: Path, stem: str) -> None:
    if made.group is not None and not _NAME.fullmatch(made.group):
        raise OptionError(
            f"{file}: {made.group!r} is not a name", job=stem, option="group", hint="use a-z, 0-9, - and _"
        )
    for name in made.plugins:
        if not is_wheel_name(name):
            raise OptionError(
                f"{file}: {name!r} is not the name of a wheel", job=stem, option="plugins",
                hint="the name of a file in ext/, such as my_plugin-1.0-py3-none-any.whl",
            )  # fmt: skip
    if made.schedule is not None:
        _check_schedule(made, file, stem)
    if made.group is not None and made.backend != "light":
        raise OptionError(f"{file}: only jobs on light can share a process", job=stem, option="group")
    for option in ("memory_max_bytes", "cpu_weight", "cpu_max"):
        if getattr(made, option) is not None and made.backend != "light":
            raise OptionError(
                f"{file}: this limit is only for jobs on light", job=stem, option=option,
                hint="set memory and cores of Spark with its own options",
            )  # fmt: skip
    for name, value in (*made.options.items(), *made.variables.items()):
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
        if any(isinstance(each, float) and not math.isfinite(each) for each in inner):
            raise OptionError(f"{file}: {name}: {value} is not a number that can be stored", job=stem, option=name)
    for name in made.options:
        if name in _OF_THE_SERVER:
            raise OptionError(
                f"{file}: the server itself sets {name!r}", job=stem, option=name, hint=_OF_THE_SERVER[name]
            )
    for name in (*made.secrets, *made.environment):
        if not _ENVIRONMENT_NAME.fullmatch(name):
            raise OptionError(
                f"{file}: {name!r} is not the name of an environment variable", job=stem, option="secrets"
            )
    if isinstance(made.secrets, Mapping):
        try:
            SecretPlaces(made.secrets)
        except OptionError as error:
            raise OptionError(f"{file}: {error.message}", job=stem, option="secrets", hint=error.hint) from None


def _check_schedule(made: JobSettings, file: Path, stem: str) -> None:
    if made.until != "end":
        raise OptionError(
            f"{file}: a job with a schedule must end, at the end of its input", job=stem, option="schedule",
            hint="add until: end; a job that never ends needs no schedule",
        )  # fmt: skip
    if made.group is not None:
        raise OptionError(f"{file}: a job with a schedule cannot share a process", job=stem, option="group")
    try:
        schedule_of(made)
    except OptionError as error:
        option = f"schedule.{error.option}" if error.option not in (None, "schedule") else "schedule"
        raise OptionError(f"{file}: {error.message}", job=stem, option=option, hint=error.hint) from None


def schedule_of(settings: JobSettings) -> ScheduleSettings | None:
    """Return the schedule of a job; None if it has none. Raises OptionError for one that cannot be."""
    return None if settings.schedule is None else ScheduleSettings.of(settings.schedule)


def keeps_nothing_on_disk(settings: JobSettings) -> bool:
    """Return whether a job can continue with an empty directory: its author says so, or its state is in topics of a broker."""
    return settings.movable or (settings.backend == "light" and settings.options.get("reliability") == "high")


def is_name(text: str) -> bool:
    """Return whether a text can be a part of a job's name."""
    return _NAME.fullmatch(text) is not None
