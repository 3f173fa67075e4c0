"""Where files are: on the disks of this machine, or in a store that another package knows.

A package offers stores by entry points of the group ``headrace.file_systems``: the name is the scheme of their paths, as ``s3`` in
``s3://bucket/logs``, and the object is called with the options of the source and returns a ``FileSystem``.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol

from headrace.foundation.errors import OptionError, did_you_mean

from headrace_file.read_errors import read_error

if TYPE_CHECKING:
    from headrace_file.identity import FileIdentity
    from headrace_file.settings import FileSourceSettings

GROUP = "headrace.file_systems"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class FileStatus(Protocol):
    """What is known of a file without reading it. Device and inode say which file it is, as long as it is there."""

    @property
    def st_dev(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...


class OpenedFile(ABC):
    """A file that is open for reading. It stays the same file even if its path leads to another one later."""

    @abstractmethod
    def status(self) -> FileStatus:
        """Return the file's status now. Raises OSError."""

    @abstractmethod
    def pread(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end of the file. Raises OSError; FileNotFoundError if the file is gone."""

    @abstractmethod
    def close(self) -> None:
        """Release its resources. May be called twice."""


class Paths(Protocol):
    """The files that the option ``path`` names."""

    @property
    def may_hold_rotated(self) -> bool:
        """Whether rotated files can be among the files."""

    def files(self, known: Collection[str] = ()) -> dict[str, FileIdentity]:
        """Return the files that exist now by name, in order. Raises JobError for paths that never existed, and RetriableError."""

    def unchanged(self) -> bool:
        """Return whether ``files`` would certainly return the same files again."""


class FileSystem(ABC):
    """Usable from several threads. Made in each process that reads; never pickled."""

    @abstractmethod
    def status(self, path: str) -> FileStatus:
        """Return the status of what ``path`` leads to. Raises OSError; FileNotFoundError if there is nothing."""

    @abstractmethod
    def open(self, path: str) -> OpenedFile:
        """Open a file. Raises OSError; FileNotFoundError if there is nothing."""

    @abstractmethod
    def entries(self, directory: str) -> Iterable[tuple[str, int]]:
        """Yield name and inode of each regular file directly in a directory. Raises OSError."""

    @abstractmethod
    def changed_ns(self, directory: str) -> int:
        """Return a number that is another one after entries were added, removed or renamed. Raises OSError."""

    @abstractmethod
    def paths(self, settings: FileSourceSettings) -> Paths:
        """Return the files that the options name."""

    def real_path(self, path: str) -> str:
        """Return the path of what ``path`` leads to; itself where there are no links."""
        return path

    def status_or_none(self, path: str) -> FileStatus | None:
        """Return the status of what ``path`` leads to, or None when there is nothing. Raises RetriableError or BrokenQueueError."""
        try:
            return self.status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_error(path, error) from error

    def close(self) -> None:
        """Close connections. May be called twice."""


class LocalFile(OpenedFile):
    """A file of this machine."""

    def __init__(self, path: str) -> None:
        self._descriptor: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _held(self) -> int:
        assert self._descriptor is not None
        return self._descriptor

    def status(self) -> os.stat_result:
        return os.fstat(self._held())

    def pread(self, position: int, size: int) -> bytes:
        descriptor = self._held()
        data = os.pread(descriptor, size, position)
        while data and len(data) < size:
            # A read of a regular file may be cut short by a signal or at 2 GiB.
            more = os.pread(descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LocalFiles(FileSystem):
    """The files of this machine, including mounted file systems."""

    def status(self, path: str) -> os.stat_result:
        return os.stat(path)

    def open(self, path: str) -> LocalFile:
        return LocalFile(path)

    def entries(self, directory: str) -> Iterable[tuple[str, int]]:
        with os.scandir(directory or ".") as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.inode()

    def changed_ns(self, directory: str) -> int:
        return os.stat(directory or ".").st_mtime_ns

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def paths(self, settings: FileSourceSettings) -> Paths:
        from headrace_file.paths import PathSet  # it builds on this module

        return PathSet(
            settings.paths,
            exclude=settings.exclude,
            recursive=settings.recursive,
            follow_symlinks=settings.follow_symlinks,
        )


LOCAL = LocalFiles()


def scheme_of(path: str) -> str:
    """Return the scheme of a path in lower case, "" for one on this machine."""
    found = _SCHEME.match(path)
    return found[1].lower() if found else ""


def file_system(settings: FileSourceSettings) -> FileSystem:
    """Return the file system of the option ``path``. Raises OptionError; does not connect."""
    schemes = {scheme_of(path) for path in settings.paths}
    if schemes == {""}:
        if settings.storage_options:
            raise _refused("storage_options", "this option has no effect on local files", "leave it out")
        return LOCAL
    if len(schemes) > 1:
        raise _refused(
            "path", "the paths have different schemes", "read each scheme with its own from_file, and union the streams"
        )
    [scheme] = schemes
    offered = _offered()
    if scheme in ("file", "local"):
        raise _refused("path", f"{settings.paths[0]!r} is a local file", "write the path without the scheme")
    if scheme not in offered:
        raise _refused(
            "path",
            f"no installed package reads {scheme}://",
            did_you_mean(scheme, offered, known="schemes") if offered else "pip install headrace-remote-files",
        )
    made: FileSystem = offered[scheme].load()(settings)
    return made


@cache
def _offered() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _refused(option: str, message: str, hint: str) -> OptionError:
    return OptionError(message, plugin="file", option=option, hint=hint)
