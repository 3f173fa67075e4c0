"""From the option ``path`` to the files that exist now."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence

from headrace.errors import JobError, RetriableError

from headrace_file.identity import FileIdentity
from headrace_file.streams import read_error


class PathSet:
    """The files that a list of paths, directories and globs names. Looks again each time it is asked."""

    def __init__(self, paths: Sequence[str], *, exclude: Sequence[str], recursive: bool) -> None:
        self._paths = tuple(os.path.expanduser(path) for path in paths)
        self._excluded = re.compile("|".join(map(fnmatch.translate, exclude)) or r"(?!)").match
        self._recursive = recursive
        self._seen: set[str] = set()

    @property
    def may_hold_rotated(self) -> bool:
        """Whether rotated files can be among the files: only if anything but single files is named."""
        return any(glob.has_magic(path) or path in self._seen for path in self._paths) or len(self._paths) > 1

    def files(self, known: Sequence[str] = ()) -> dict[str, FileIdentity]:
        """Return the regular files that exist now by name, in order; each file under one name. Heads are not read.

        ``known`` are names whose absence is no error. Raises JobError when a path was never there, RetriableError when
        a directory that was there is away.
        """
        found: dict[str, FileIdentity] = {}
        for path in self._paths:
            for name in self._expand(path, known):
                try:
                    status = os.stat(name)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # gone since it was listed
                except OSError as error:
                    raise read_error(name, error) from error
                if stat.S_ISREG(status.st_mode):
                    found[name] = FileIdentity((status.st_dev, status.st_ino), modified_ns=status.st_mtime_ns)
        unique = {file.key: (name, file) for name, file in sorted(found.items(), reverse=True)}
        return dict(reversed(unique.values()))

    def _expand(self, path: str, known: Sequence[str]) -> Iterator[str]:
        if glob.has_magic(path):
            yield from self._matches(path)
        elif os.path.isdir(path):
            self._seen.add(path)
            yield from self._inside(path)
        elif os.path.lexists(path) or path in known:
            if os.path.exists(path):
                yield path
        elif path in self._seen:
            raise RetriableError(f"the directory {path} is away", plugin="file")
        else:
            raise JobError(
                f"{path} is not there",
                plugin="file",
                option="path",
                hint=f"the working directory is {os.getcwd()}; to wait for a file that comes later, name its directory",
            )

    def _matches(self, pattern: str) -> Iterator[str]:
        parts = pattern.split(os.sep)
        plain = next(number for number, part in enumerate(parts) if glob.has_magic(part))
        root = os.sep.join(parts[:plain]) or (os.sep if pattern.startswith(os.sep) else ".")
        if os.path.isdir(root):
            self._seen.add(root)
        elif root in self._seen:
            raise RetriableError(f"the directory {root} is away", plugin="file")
        else:
            raise JobError(f"{root}, where {pattern} looks for files, is not there", plugin="file", option="path")
        for name in glob.iglob(pattern, recursive=True):
            if not any(self._excluded(part) for part in name.split(os.sep)[plain:]):
                yield name

    def _inside(self, directory: str) -> Iterator[str]:
        for folder, folders, names in os.walk(directory, followlinks=True):
            folders[:] = sorted(name for name in folders if not self._excluded(name)) if self._recursive else []
            for name in names:
                if not self._excluded(name):
                    yield os.path.join(folder, name)
