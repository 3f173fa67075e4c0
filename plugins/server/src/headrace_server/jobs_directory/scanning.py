"""Finds the jobs in ``jobs/``, up to two levels deep, and the files of each job's version."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import HeadraceError, JobError
from headrace.interfaces.registry import default_registry

from headrace_server.jobs_directory.plugin_wheels import LOCK_FILE, PluginWheels
from headrace_server.jobs_directory.settings import SETTINGS_FILE, FolderSettings, JobSettings, is_name

#: Of files of jobs. What other files have too, such as rules in YAML, is a job if its language says so.
SUFFIXES = (".py", ".sql", ".yaml", ".yml")
_OF_OTHERS_TOO = (".yaml", ".yml")
#: A job's folder is copied into every version, so it must hold sources and not data.
FILES_MAX_BYTES = 20 * 1024 * 1024
_LEFT_OUT = ("__pycache__", SETTINGS_FILE)
#: A file that was written so shortly before a look may be written again without a new time in the file system.
_SETTLED_AFTER_SECONDS = 2.0

#: What tells a changed file from the same one: path, inode, size, times of its content and of its entry.
_Signature = tuple[tuple[str, int, int, int, int], ...]


class FoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that lies in the directory now."""

    name: str
    file: Path
    settings: JobSettings
    #: Every file of a version by its path in the folder: the job's file, and files that it may import or read.
    files: Mapping[str, bytes]
    content_hash: str


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a job that cannot become a version, and the reason. A name that ends with ``/`` means a whole folder."""

    name: str
    reason: str

    def covers(self, job: str) -> bool:
        """Return whether a job is this one, or lies in this folder."""
        return job == self.name or (self.name.endswith("/") and job.startswith(self.name))


@dataclass(frozen=True)
class _Look:
    """What the last look at a folder found, and whether it is sure that an equal signature means equal files."""

    signature: _Signature
    settled: bool
    found: list[FoundJob]
    unusable: list[Unusable]


class Scanner:
    """Looks at a directory of jobs again and again. Files are read only in folders in which something has changed."""

    def __init__(self, directory: Path, clock: Clock, *, ext: Path | None = None) -> None:
        self._directory = directory
        self._wheels = PluginWheels(ext or directory.parent / "ext")
        self._clock = clock
        self._looks: dict[Path, _Look] = {}

    def scan(self) -> tuple[list[FoundJob], list[Unusable]]:
        """Return the jobs below the directory by name, and those that cannot be used. Called by the server every few seconds.

        A job is a ``.py`` or ``.sql`` file, or a pipeline in YAML, in the directory or in a folder of it. Names that begin with ``_``
        or ``.`` are no jobs: files with ``_`` are for jobs to import. Raises JobError if the directory cannot be read.
        """
        try:
            folders = sorted(each for each in self._directory.iterdir() if each.is_dir() and is_name(each.name))
        except OSError as error:
            raise JobError(f"the directory of jobs {self._directory} cannot be read: {error}") from error
        looks = {folder: self._look(folder) for folder in [self._directory, *folders]}
        self._looks = looks
        unusable = [each for look in looks.values() for each in look.unusable]
        found = []
        for job in [job for look in looks.values() for job in look.found]:
            try:
                found.append(self._with_plugins(job))
            except (JobError, OSError) as error:
                unusable.append(_Unreadable(name=job.name, reason=str(error)))
        return _without_groups_of_a_jobs_name(found, unusable)

    def _with_plugins(self, job: FoundJob) -> FoundJob:
        """Put the hashes of a job's plug-ins into its files: another wheel of the same name makes a new version."""
        if not job.settings.plugins:
            return job
        contents = {**job.files, LOCK_FILE: self._wheels.lock(job.settings.plugins).encode()}
        return msgspec.structs.replace(job, files=contents, content_hash=content_hash(contents, job.settings))

    def _look(self, folder: Path) -> _Look:
        prefix = "" if folder == self._directory else f"{folder.name}/"
        try:
            files = _files_of(folder)
            signature = tuple((name, *_signed(path)) for name, path in files.items())
        except OSError as error:
            if not prefix:
                raise JobError(f"the directory of jobs {folder} cannot be read: {error}") from error
            reason = f"the folder cannot be read: {error}"
            return _Look((), settled=False, found=[], unusable=[Unusable(name=prefix, reason=reason)])
        before = self._looks.get(folder)
        if before is not None and before.settled and before.signature == signature:
            return before
        newest = max((max(each[3:]) for each in signature), default=0)
        settled = newest / 1e9 + _SETTLED_AFTER_SECONDS < self._clock.now()
        found, unusable = _jobs_of(folder, prefix, files)
        settled = settled and not any(isinstance(each, _Unreadable) for each in unusable)
        return _Look(signature, settled, found, unusable)


class _Unreadable(Unusable, frozen=True, kw_only=True):
    """The reason may go without a change of a file: the next look reads again."""


def scan(directory: Path) -> tuple[list[FoundJob], list[Unusable]]:
    """Look at a directory once; see Scanner."""
    return Scanner(directory, SystemClock()).scan()


def is_job_file(path: Path) -> bool:
    """Return whether a file with the suffix of jobs is one. A YAML file is asked for by its language, if that is installed.

    A YAML file that is too large for a version is data, and is not read.
    """
    if path.suffix not in _OF_OTHERS_TOO:
        return True
    registry, name = default_registry(), path.suffix.lstrip(".")
    try:
        if path.stat().st_size > FILES_MAX_BYTES:
            return False
        return registry.has("language", name) and bool(registry.find("language", name).is_job(path.read_bytes()))
    except OSError:  # an unreadable file is reported when the files of a version are read
        return False


def _files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their path in it. Folders count if their name begins with ``_``. Raises OSError."""
    found: dict[str, Path] = {}

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=refuse):
        inside = Path(place).relative_to(folder)
        top = inside == Path()
        folders[:] = [
            each for each in folders if each != "__pycache__" and each[0] != "." and (not top or each[0] == "_")
        ]
        found |= {(inside / each).as_posix(): Path(place, each) for each in files if each[0] != "."}
    return dict(sorted(found.items()))


def _signed(path: Path) -> tuple[int, int, int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:  # removed since, or a link that leads nowhere
        return (0, 0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _jobs_of(folder: Path, prefix: str, files: Mapping[str, Path]) -> tuple[list[FoundJob], list[Unusable]]:
    jobs = [
        path
        for name, path in files.items()
        if "/" not in name and path.suffix in SUFFIXES and not name.startswith("_") and path.is_file()
        and name != SETTINGS_FILE and is_job_file(path)
    ]  # fmt: skip
    others = {name: path for name, path in files.items() if path not in set(jobs) and path.name not in _LEFT_OUT}
    settings = FolderSettings(folder)
    stems = [each.stem for each in jobs]
    shared: dict[str, bytes] | None = None
    found: list[FoundJob] = []
    unusable: list[Unusable] = []
    if SETTINGS_FILE in files and is_job_file(files[SETTINGS_FILE]):
        reason = (
            f"{SETTINGS_FILE} is the name of the settings file, and this one holds a pipeline: give it another name"
        )
        unusable.append(Unusable(name=f"{prefix}{Path(SETTINGS_FILE).stem}", reason=reason))
    for file in jobs:
        name = prefix + file.stem
        try:
            if not is_name(file.stem):
                raise JobError(f"{file.name!r} cannot be the name of a job", hint="use a-z, 0-9, - and _")
            if stems.count(file.stem) > 1:
                raise JobError(f"two files have the name {file.stem!r}", hint="rename one of them")
            of_job = settings.of(file.stem)
            if shared is None:
                shared = _read(folder, others)
            contents = dict(
                sorted({**shared, **_read(folder, {file.name: file}, sum(map(len, shared.values())))}.items())
            )
        except HeadraceError as error:
            unusable.append(Unusable(name=name, reason=str(error)))
        except OSError as error:
            unusable.append(_Unreadable(name=name, reason=f"{error.filename} cannot be read: {error.strerror}"))
        else:
            hashed = content_hash(contents, of_job)
            found.append(FoundJob(name=name, file=file, settings=of_job, files=contents, content_hash=hashed))
    return found, unusable


def _read(folder: Path, files: Mapping[str, Path], total: int = 0) -> dict[str, bytes]:
    """Read files. Raises JobError for what must not be in a version, OSError."""
    contents: dict[str, bytes] = {}
    for name, path in files.items():
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise JobError(
                f"{name} is a link that leads out of the job's folder", hint="put the file itself into the folder"
            )
        if not path.is_file():
            continue
        total += path.stat().st_size
        if total > FILES_MAX_BYTES:
            raise JobError(
                f"the files beside the job are larger than {FILES_MAX_BYTES:,} bytes",
                hint="store data outside the folder: every version of the job gets a copy of it",
            )
        contents[name] = path.read_bytes()
    return contents


def _without_groups_of_a_jobs_name(
    found: list[FoundJob], unusable: list[Unusable]
) -> tuple[list[FoundJob], list[Unusable]]:
    """Refuse jobs whose group has the name of a job: both would be one unit, with one log and one process."""
    names = {job.name for job in found} | {each.name for each in unusable}
    good, refused = [], []
    for job in found:
        if job.settings.group in names:
            reason = f"group: {job.settings.group!r} is the name of a job; hint: give the group a name of its own"
            refused.append(Unusable(name=job.name, reason=reason))
        else:
            good.append(job)
    return good, [*unusable, *refused]


def content_hash(contents: Mapping[str, bytes], settings: JobSettings) -> str:
    """Return the hash of a version's content: the files and the settings of the job."""
    hashed = hashlib.sha256(msgspec.json.encode(settings, order="sorted"))
    for name, content in sorted(contents.items()):
        hashed.update(f"\0{name}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()


__all__ = ["FILES_MAX_BYTES", "SETTINGS_FILE", "SUFFIXES", "FoundJob", "Scanner", "Unusable", "content_hash", "scan"]
