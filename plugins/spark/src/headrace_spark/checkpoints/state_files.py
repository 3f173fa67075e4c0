"""The files of a job's keyed state: a directory on this machine, on a shared disk, or in a store that Arrow reaches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from headrace.foundation.errors import CheckpointError
from headrace.foundation.private_files import private_opener
from pyarrow import fs as untyped_fs

from headrace_spark.checkpoints.object_stores import S3Options

#: Schemes of stores where a file appears as a whole when it is closed; a rename would be a copy there.
_APPEARS_WHOLE = ("s3", "gs", "gcs", "abfs", "abfss")


class StateFiles(Protocol):
    """The operations on a directory tree. Paths are relative, with slashes."""

    def names(self, directory: str) -> dict[str, int]:
        """Return the sizes of the files in a directory by name; none when there is no such directory."""

    def read(self, path: str, length: int | None = None) -> bytes | None:
        """Return the first ``length`` bytes of a file, or all of it; None when there is no such file."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file. Raises OSError when that cannot be found out."""

    def write(self, path: str, *parts: bytes) -> None:
        """Write a file of these parts, over one that may be there. Others see all of it or nothing."""

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""


def state_files(uri: str, s3: S3Options | None = None) -> StateFiles:
    """Return the files below a URI; ``s3``: how to reach it if it is in S3.

    Raises CheckpointError when it is of no kind that can be reached from Python.
    """
    if uri.startswith("file:"):
        return _LocalFiles(Path(cast(str, untyped_fs.FileSystem.from_uri(uri)[1])))
    scheme, _, rest = uri.partition("://")
    try:
        if s3 is not None:
            files, path = s3.file_system(rest.partition("/")[0]), rest
        else:
            files, path = untyped_fs.FileSystem.from_uri(f"{'s3' if scheme == 's3a' else scheme}://{rest}")
    except Exception as error:  # pyarrow's, and those of the libraries that it looks for
        raise CheckpointError(
            f"keyed state cannot be stored in {uri!r}: {error}",
            option="checkpoint",
            hint="use a disk that all workers share (file:///…), or hdfs, s3, gs or abfs",
        ) from error
    return _ArrowFiles(files, path, renames=scheme not in _APPEARS_WHOLE and scheme != "s3a")


class _LocalFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, directory: str) -> dict[str, int]:
        try:
            with os.scandir(self._root / directory) as entries:
                return {entry.name: entry.stat().st_size for entry in entries}
        except FileNotFoundError:
            return {}

    def read(self, path: str, length: int | None = None) -> bytes | None:
        try:
            with open(self._root / path, "rb") as file:
                return file.read(-1 if length is None else length)
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._root / path)
        except FileNotFoundError:
            return False
        return True

    def write(self, path: str, *parts: bytes) -> None:
        to = self._root / path
        new = to.with_name(f".{to.name}.{os.getpid()}.new")
        try:
            _write(new, parts)
        except FileNotFoundError:
            to.parent.mkdir(parents=True, exist_ok=True)
            _write(new, parts)
        new.replace(to)

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)


def _write(path: Path, parts: Sequence[bytes]) -> None:
    with open(path, "wb", opener=private_opener) as file:
        file.writelines(parts)


class _ArrowFiles:
    def __init__(self, files: untyped_fs.FileSystem, root: str, *, renames: bool) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._renames = renames

    def names(self, directory: str) -> dict[str, int]:
        selector = untyped_fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        return {info.base_name: info.size for info in self._files.get_file_info(selector) if info.is_file}

    def read(self, path: str, length: int | None = None) -> bytes | None:
        try:
            with self._files.open_input_file(f"{self._root}/{path}") as file:
                return bytes(file.read(length))
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(f"{self._root}/{path}").is_file)

    def write(self, path: str, *parts: bytes) -> None:
        to = f"{self._root}/{path}"
        directory, _, name = to.rpartition("/")
        written = f"{directory}/.{name}.{os.getpid()}.{os.urandom(4).hex()}.new" if self._renames else to
        if self._renames:
            self._files.create_dir(directory, recursive=True)
        with self._files.open_output_stream(written) as file:
            for part in parts:
                file.write(part)
        if self._renames:
            self._files.move(written, to)

    def remove(self, path: str) -> None:
        try:
            self._files.delete_file(f"{self._root}/{path}")
        except FileNotFoundError:
            return
