"""Whether directories have changed since they were listed: then their files need not be listed again."""

from __future__ import annotations

import os
import time

#: Clocks of file systems are coarse: a directory that was changed just before it was listed may change again without showing it.
_SETTLED_NS = 2_000_000_000
#: With more directories, a look at each of them is no cheaper than listing them.
_FOLDERS_MAX = 1000

#: Device, inode, times of the last change of the entries and of the directory itself.
_Version = tuple[int, int, int, int]


class Folders:
    """The directories on which a list of files depends. An entry that is added, removed, renamed or replaced changes its directory.

    Files that only grow do not. What lies behind symbolic links is not seen: ``give_up`` says that a list depends on more.
    """

    def __init__(self) -> None:
        self._versions: dict[str, _Version] = {}
        self._known = True

    def add(self, folder: str) -> None:
        """Note a directory before it is listed."""
        begun_ns = time.time_ns()
        version = _version(folder)
        settled = version is not None and begun_ns - max(version[2:]) >= _SETTLED_NS
        if version is None or not settled or len(self._versions) >= _FOLDERS_MAX:
            self._known = False
        else:
            self._versions[folder] = version

    def give_up(self) -> None:
        """Note that the list may change without a change of the directories."""
        self._known = False

    def unchanged(self) -> bool:
        """Return whether no directory has changed since it was noted. False when that is not known."""
        return self._known and all(_version(folder) == seen for folder, seen in self._versions.items())


def _version(folder: str) -> _Version | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
