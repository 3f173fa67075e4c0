"""Finds the files that the option ``path`` names."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence

from headrace.foundation.errors import JobError, RetriableError

from headrace_file.folders import Folders
from headrace_file.identity import FileIdentity
from headrace_file.read_errors import read_error

logger = logging.getLogger(__name__)
#: How many entries get a separate warning: other users may write any number of entries into the directory.
_TOLD_MAX = 1000


class PathSet:
    """The files that a list of paths, directories and globs names. Looks again each time it is asked."""

    def __init__(
        self, paths: Sequence[str], *, exclude: Sequence[str], recursive: bool, follow_symlinks: bool = False
    ) -> None:
        self._paths = tuple(os.path.expanduser(path) for path in paths)
        self._excluded = re.compile("|".join(map(fnmatch.translate, exclude)) or r"(?!)").match
        self._recursive = recursive
        self._follow_symlinks = follow_symlinks
        #: The warnings about entries that are left out: one for each.
        self._told: set[tuple[str, str]] = set()
        self._seen: set[str] = set()
        self._folders = Folders()
        self._folders.give_up()
        #: Patterns that matched no file at the last check.
        self._empty: set[str] = set()

    @property
    def may_hold_rotated(self) -> bool:
        """Whether rotated files can be among the files: only if anything but single files is named."""
        return any(glob.has_magic(path) or path in self._seen for path in self._paths) or len(self._paths) > 1

    def files(self, known: Collection[str] = ()) -> dict[str, FileIdentity]:
        """Return the regular files that exist now by name, in order; each file under one name. Heads are not read.

        An entry of a directory that cannot be looked at, whose name is not a text, or that is a link out of the directory
        is left out, and a warning says so once: a user who may write into the directory must not be able to stop the job.

        ``known`` are names whose absence is no error. Raises JobError when a path was never there, RetriableError when a
        directory that existed is missing.
        """
        found: dict[str, FileIdentity] = {}
        self._folders = Folders()
        for path in self._paths:
            named = not glob.has_magic(path) and not os.path.isdir(path)
            confined = None if named or self._follow_symlinks else _Confined(_root(path))
            if named or self._follow_symlinks:
                self._folders.give_up()
            names = list(self._expand(path, known))
            self._note_empty(path, not names)
            for name in names:
                if not named and not _is_text(name):
                    self._leave_out(name, "its name is not UTF-8")
                    continue
                try:
                    status = os.stat(name)
                    if confined is not None and not confined.holds(name):
                        self._leave_out(name, "a link leads out of the directory; follow_symlinks=True allows it")
                        continue
                except (FileNotFoundError, NotADirectoryError):
                    self._folders.give_up()  # removed since it was listed, or a link to nothing
                    continue
                except OSError as error:
                    if named:
                        raise read_error(name, error) from error
                    self._leave_out(name, error.strerror or str(error))
                    continue
                if stat.S_ISREG(status.st_mode):
                    found[name] = FileIdentity((status.st_dev, status.st_ino), modified_ns=status.st_mtime_ns)
            if confined is not None and confined.met_link:
                self._folders.give_up()
        unique = {file.key: (name, file) for name, file in sorted(found.items(), reverse=True)}
        return dict(reversed(unique.values()))

    def unchanged(self) -> bool:
        """Return whether ``files`` would certainly return the same files again: a few looks at directories tell, for many files."""
        return self._folders.unchanged()

    def _note_empty(self, path: str, empty: bool) -> None:
        """Warn of a pattern that matches nothing, once until something does: it may be misspelt."""
        if not empty:
            self._empty.discard(path)
        elif path not in self._empty and glob.has_magic(path):
            self._empty.add(path)
            logger.warning("path %r matches no file so far; the working directory is %s", path, os.getcwd())

    def _expand(self, path: str, known: Collection[str]) -> Iterator[str]:
        if glob.has_magic(path):
            yield from self._matches(path)
        elif os.path.isdir(path):
            self._seen.add(path)
            yield from self._inside(path, recursive=self._recursive)
        elif os.path.lexists(path) or path in known:
            if os.path.exists(path):
                yield path
        elif path in self._seen:
            raise RetriableError(f"the directory {path} is missing", plugin="file")
        else:
            raise JobError(
                f"{path} does not exist",
                plugin="file",
                option="path",
                hint=f"the working directory is {os.getcwd()}; to wait for a file that will be created later, name its directory",
            )

    def _matches(self, pattern: str) -> Iterator[str]:
        root = _root(pattern)
        plain = _plain_parts(pattern)
        if os.path.isdir(root):
            self._seen.add(root)
        elif root in self._seen:
            raise RetriableError(f"the directory {root} is missing", plugin="file")
        else:
            raise JobError(f"{root}, where {pattern} looks for files, does not exist", plugin="file", option="path")
        wanted = pattern.split(os.sep)[plain:]
        if "**" in wanted:
            # Not with glob, which follows a link to a parent folder again and again.
            start = len(root.rstrip(os.sep)) + 1 if plain else 2
            for name in self._inside(root, recursive=True):
                if _matches_parts(name[start:].split(os.sep), wanted):
                    yield name if plain else name[2:]
            return
        if len(wanted) == 1:
            self._folders.add(root)
        else:
            self._folders.give_up()  # which folders decide is not known
        for name in glob.iglob(pattern):
            if not any(self._excluded(part) for part in name.split(os.sep)[plain:]):
                yield name

    def _inside(self, directory: str, *, recursive: bool) -> Iterator[str]:
        """Yield the entries of a directory and, if ``recursive``, of its folders; each folder once."""
        waiting, seen = [directory], set()
        while waiting:
            folder = waiting.pop()
            try:
                self._folders.add(folder)
                status = os.stat(folder)
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self._leave_out(folder, error.strerror or str(error))
                continue
            # A link to a parent folder would be followed for ever.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            folders = []
            for entry in entries:
                if self._excluded(entry.name):
                    continue
                try:
                    is_folder = entry.is_dir()
                except OSError as error:
                    self._leave_out(entry.path, error.strerror or str(error))
                    continue
                if not is_folder:
                    yield os.path.join(folder, entry.name)
                elif recursive:
                    folders.append(os.path.join(folder, entry.name))
            waiting += reversed(folders)

    def _leave_out(self, name: str, why: str) -> None:
        self._folders.give_up()
        if (name, why) not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add((name, why))
            logger.warning("%r is left out: %s", name, why)


class _Confined:
    """Says which names lead to places below a directory, when links are followed."""

    def __init__(self, root: str) -> None:
        #: Whether there was a link among the names.
        self.met_link = False
        self._root = os.path.realpath(root)
        self._folders: dict[str, bool] = {}

    def holds(self, name: str) -> bool:
        folder = os.path.dirname(name)
        if folder not in self._folders:
            self._folders[folder] = self._is_below(os.path.realpath(folder))
        if not self._folders[folder]:
            return False
        if not os.path.islink(name):
            return True
        self.met_link = True
        return self._is_below(os.path.realpath(name))

    def _is_below(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip(os.sep) + os.sep)


def _plain_parts(pattern: str) -> int:
    """Return how many parts of a glob come before the first with a wildcard."""
    return next(number for number, part in enumerate(pattern.split(os.sep)) if glob.has_magic(part))


def _root(path: str) -> str:
    """Return the directory below which the files of a directory or glob are."""
    if not glob.has_magic(path):
        return path
    return os.sep.join(path.split(os.sep)[: _plain_parts(path)]) or (os.sep if path.startswith(os.sep) else ".")


def _matches_parts(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the parts of a path fit those of a glob; ``**`` matches any number of folders, also none."""
    if not wanted:
        return not parts
    first, *rest = wanted
    if first == "**":
        skipped = range(len(parts) + 1) if rest else range(len(parts), len(parts) + 1)
        return any(
            not any(part.startswith(".") for part in parts[:count]) and _matches_parts(parts[count:], rest)
            for count in skipped
        )
    if not parts or (parts[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], first) and _matches_parts(parts[1:], rest)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
