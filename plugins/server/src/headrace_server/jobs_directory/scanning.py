"""Finds the jobs in ``jobs/``, up to two levels deep, and what a version of each consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from headrace.foundation.errors import HeadraceError, JobError

from headrace_server.jobs_directory.settings import SETTINGS_FILE, JobSettings, is_name, settings_of

SUFFIXES = (".py", ".sql")
#: A job's folder is copied into every version, so it must hold sources and not data.
FILES_MAX_BYTES = 20 * 1024 * 1024
_LEFT_OUT = ("__pycache__", "job.yaml")


class FoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that lies in the directory now."""

    name: str
    file: Path
    settings: JobSettings
    #: Every file of a version by its path in the folder: the job's own, and what it may import or read.
    files: Mapping[str, bytes]
    content_hash: str


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a job that cannot be made a version, and why."""

    name: str
    reason: str


def scan(directory: Path) -> tuple[list[FoundJob], list[Unusable]]:
    """Return the jobs below a directory by name, and those that cannot be used. Called by the server every few seconds.

    A job is a ``.py`` or ``.sql`` file in the directory or in a folder of it. Names that begin with ``_`` or ``.`` are no jobs: files
    with ``_`` are for jobs to import. Raises JobError if the directory cannot be read.
    """
    found: list[FoundJob] = []
    unusable: list[Unusable] = []
    try:
        folders = [directory, *sorted(each for each in directory.iterdir() if each.is_dir() and is_name(each.name))]
        for folder in folders:
            prefix = "" if folder == directory else f"{folder.name}/"
            _scan_folder(folder, prefix, found, unusable)
    except OSError as error:
        raise JobError(f"the directory of jobs {directory} cannot be read: {error}") from error
    return found, unusable


def _scan_folder(folder: Path, prefix: str, found: list[FoundJob], unusable: list[Unusable]) -> None:
    files = [each for each in sorted(folder.iterdir()) if each.suffix in SUFFIXES and each.is_file()]
    jobs = [each for each in files if not each.name.startswith(("_", "."))]
    stems = [each.stem for each in jobs]
    for file in jobs:
        name = prefix + file.stem
        try:
            if not is_name(file.stem):
                raise JobError(f"{file.name!r} cannot be the name of a job", hint="use a-z, 0-9, - and _")
            if stems.count(file.stem) > 1:
                raise JobError(f"two files have the name {file.stem!r}", hint="rename one of them")
            settings = settings_of(folder, file.stem)
            contents = _contents(folder, file, jobs)
        except HeadraceError as error:
            unusable.append(Unusable(name=name, reason=str(error)))
            continue
        found.append(
            FoundJob(
                name=name, file=file, settings=settings, files=contents, content_hash=content_hash(contents, settings)
            )
        )


def _contents(folder: Path, file: Path, jobs: Iterable[Path]) -> dict[str, bytes]:
    """Read the job's file and what lies beside it, except for other jobs. Folders count if their name begins with ``_``."""
    others = set(jobs) - {file}
    contents: dict[str, bytes] = {}
    total = 0
    for each in sorted(folder.rglob("*")):
        inside = each.relative_to(folder)
        if any(part in _LEFT_OUT or part.startswith(".") for part in inside.parts) or each in others:
            continue
        if len(inside.parts) > 1 and not inside.parts[0].startswith("_"):
            continue
        if each.is_symlink() and not each.resolve().is_relative_to(folder.resolve()):
            raise JobError(f"{inside} leads out of the folder", hint="put the file itself there")
        if not each.is_file():
            continue
        total += each.stat().st_size
        if total > FILES_MAX_BYTES:
            raise JobError(
                f"the files beside the job are larger than {FILES_MAX_BYTES:,} bytes",
                hint="keep data elsewhere: every version has a copy of the folder",
            )
        contents[inside.as_posix()] = each.read_bytes()
    return contents


def content_hash(contents: Mapping[str, bytes], settings: JobSettings) -> str:
    """Return the hash of what a version consists of: the files and the settings of the job."""
    hashed = hashlib.sha256(msgspec.json.encode(settings, order="sorted"))
    for name, content in sorted(contents.items()):
        hashed.update(f"\0{name}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()


__all__ = ["FILES_MAX_BYTES", "SETTINGS_FILE", "SUFFIXES", "FoundJob", "Unusable", "content_hash", "scan"]
