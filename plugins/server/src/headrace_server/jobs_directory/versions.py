"""The files of versions: written once, never changed, checked when they are used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from headrace.foundation.durable_files import sync_directory, write_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import make_private_directory

from headrace_server.registry.shared import SharedTables


class VersionFiles:
    """Versions below a directory: ``<job>/<number>/…``."""

    def __init__(self, directory: Path, *, elsewhere: SharedTables | None = None) -> None:
        self._directory = directory
        #: Where servers of one registry find versions that another one has made.
        self._elsewhere = elsewhere

    def place(self, job: str, number: int) -> Path:
        """Return where the files of a version are; get them first if another server has made it."""
        place = self._place(job, number)
        if self._elsewhere is not None and not place.exists():
            contents = self._elsewhere.files(job, number)
            if contents:
                with contextlib.suppress(OSError):  # another thread was first; ``check`` reports missing files
                    self._write(job, number, contents)
        return place

    def _place(self, job: str, number: int) -> Path:
        return self._directory / job / str(number)

    def store(self, job: str, number: int, contents: Mapping[str, bytes]) -> Mapping[str, str]:
        """Write the files of a version; return their hashes by name. A crash leaves all of them or none. Raises OSError.

        If servers share the registry, it has them first.
        """
        if self._elsewhere is not None:
            self._elsewhere.store_files(job, number, contents)
        return self._write(job, number, contents)

    def _write(self, job: str, number: int, contents: Mapping[str, bytes]) -> Mapping[str, str]:
        place = self._place(job, number)
        make_private_directory(place.parent)
        new = place.with_name(f".{number}.{uuid.uuid4().hex[:8]}.new")
        make_private_directory(new)
        try:
            for name, content in contents.items():
                target = new / name
                target.parent.mkdir(parents=True, exist_ok=True)
                write_durably(target, content)
            shutil.rmtree(place, ignore_errors=True)  # of a crash between the files and the registry
            os.rename(new, place)
        except BaseException:
            # The server tries again every few seconds: what is left would fill the disk, if it is not the reason.
            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_directory(place.parent)
        return {name: _hash(content) for name, content in contents.items()}

    def check(self, job: str, number: int, hashes: Mapping[str, str]) -> Path:
        """Return where a version is. Raises JobError if a file of it is missing or was changed."""
        place = self.place(job, number)
        for name, expected in hashes.items():
            try:
                found = _hash((place / name).read_bytes())
            except OSError as error:
                raise JobError(f"version {number} cannot be used: {name}: {error.strerror}", job=job) from error
            if found != expected:
                raise JobError(
                    f"version {number} cannot be used: {place / name} was changed after it was stored",
                    job=job,
                    hint="change the file in the jobs directory instead: this creates a new version",
                )
        return place

    def contents(self, job: str, number: int) -> dict[str, str]:
        """Return the texts of a version's files, for people who compare versions. Bytes that are no text are replaced."""
        place = self.place(job, number)
        files = sorted(each for each in place.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
        return {each.relative_to(place).as_posix(): each.read_text("utf-8", errors="replace") for each in files}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
