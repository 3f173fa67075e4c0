"""Finds the files of a store that the option ``path`` names."""

from __future__ import annotations

import fnmatch
import glob
import logging
import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace_file.identity import FileIdentity

from headrace_remotefiles.entries import Entry

if TYPE_CHECKING:
    from headrace_file.settings import FileSourceSettings

    from headrace_remotefiles.remote_files import RemoteFiles

logger = logging.getLogger(__name__)


class RemotePaths:
    """The files that paths, directories and globs of a store name."""

    def __init__(self, files: RemoteFiles, settings: FileSourceSettings) -> None:
        self._files = files
        self._paths = settings.paths
        self._recursive = settings.recursive
        self._excluded = re.compile("|".join(map(fnmatch.translate, settings.exclude)) or r"(?!)").match
        #: When the last list was begun, and its result, which is used until the next list.
        self._at = float("-inf")
        self._found: dict[str, FileIdentity] = {}
        self._seen: set[str] = set()
        self._empty: set[str] = set()
        self._directories: set[str] = set()

    @property
    def may_hold_rotated(self) -> bool:
        return any(glob.has_magic(path) or path in self._directories for path in self._paths) or len(self._paths) > 1

    def unchanged(self) -> bool:
        return self._files.is_fresh(self._at)

    def files(self, known: Collection[str] = ()) -> dict[str, FileIdentity]:
        if self.unchanged():
            return dict(self._found)
        at, found = time.monotonic(), {}
        for path in self._paths:
            try:
                entries = self._expanded(path)
            except FileNotFoundError:
                if path not in known and path not in self._seen:
                    raise self._never_there(path) from None
                entries = {}
            except OSError as error:
                raise self._unreachable(path, error) from error
            self._note(path, entries)
            for name, entry in entries.items():
                found[name] = FileIdentity((entry.st_dev, entry.st_ino), modified_ns=entry.st_mtime_ns)
        self._at, self._found = at, dict(sorted(found.items()))
        return dict(self._found)

    def _expanded(self, path: str) -> Mapping[str, Entry]:
        if glob.has_magic(path):
            root = _root(path)
            found = self._chosen(root, self._files.matching(root, path))
            self._files.listed(root, found, ())  # files that are not in these directories are unknown
            return found
        if path in self._directories or self._files.is_directory(path):
            root = path.rstrip("/")
            self._directories.add(path)
            every = self._files.list(root, recursive=self._recursive)
            folders = {name.rpartition("/")[0] for name in every} if self._recursive else set()
            self._files.listed(root, every, {root, *folders})
            return self._chosen(root, every)
        return {path: self._files.look(path)}

    def _chosen(self, root: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        """Leave out what the option ``exclude`` names, and empty markers of directories."""
        start = len(root.rstrip("/")) + 1
        return {
            path: entry
            for path, entry in entries.items()
            if path[start:]
            and not path.endswith("/")
            and not any(self._excluded(part) for part in path[start:].split("/"))
        }

    def _note(self, path: str, entries: Mapping[str, Entry]) -> None:
        self._seen.add(path)
        if entries:
            self._empty.discard(path)
        elif path not in self._empty:
            self._empty.add(path)
            logger.warning("path %r matches no file so far", path)

    def _never_there(self, path: str) -> JobError:
        return JobError(
            f"{path} does not exist",
            plugin="file",
            option="path",
            hint="to wait for a file that comes later, name its directory",
        )

    def _unreachable(self, path: str, error: OSError) -> HeadraceError:
        text = f"cannot list {path}: {error.strerror or error}"
        if path not in self._seen and isinstance(error, PermissionError):
            hint = "check the keys or the login in the environment or in storage_options"
            return JobError(text, plugin="file", option="path", hint=hint)
        return RetriableError(text, plugin="file", option="path")


def _root(pattern: str) -> str:
    """Return the directory below which the files of a glob are."""
    parts = pattern.split("/")
    return "/".join(parts[: next(number for number, part in enumerate(parts) if glob.has_magic(part))])
