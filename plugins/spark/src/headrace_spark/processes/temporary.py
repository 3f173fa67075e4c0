"""Temporary directories of a driver. If the driver was killed, the next driver removes them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "headrace-"
_LOCK = ".lock"
#: What the name of a directory ends in while it is removed.
_GONE = ".gone"
#: The file that says whether the driver of a directory lives is there long before this.
_UNLOCKED_SECONDS_MAX = 24 * 3600
#: Kept open, and so locked, until the process ends: the file that tells other drivers, and the directory itself, which tells
#: programs that remove old files of the temporary directory (systemd-tmpfiles).
_locks: dict[Path, tuple[int, int]] = {}


def temporary_directory(kind: str) -> Path:
    """Make a directory that only this user can read; ``kind`` is a part of its name.

    The caller removes it by ``remove``. If the process is killed before, ``remove_abandoned`` of a later one does.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
    fresh = directory / f"{_LOCK}.new"
    descriptor = os.open(fresh, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # It gets its name when it is locked, so that nobody takes the directory for an abandoned one.
    fresh.rename(directory / _LOCK)
    whole = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(whole, fcntl.LOCK_EX)
    _locks[directory] = descriptor, whole
    return directory


def remove(directory: Path) -> None:
    """Remove a directory that ``temporary_directory`` made. May be called twice."""
    _clear(directory)
    for descriptor in _locks.pop(directory, ()):
        os.close(descriptor)


def lock_of(directory: Path) -> int:
    """Return the file descriptor of the lock. A child that inherits it keeps the directory from being taken for abandoned."""
    return _locks[directory][0]


def remove_abandoned(kinds: tuple[str, ...]) -> list[Path]:
    """Remove directories of these kinds whose process is gone; return them. Those of other users are left alone."""
    removed = []
    for kind in kinds:
        for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{kind}-*"):
            if directory not in _locks and _is_abandoned(directory):
                _clear(directory)
                removed.append(directory)
    return removed


def _clear(directory: Path) -> None:
    """Remove a directory. Processes that are about to end may still write to it: under another name they do not find it."""
    gone = directory.with_name(f"{directory.name}{_GONE}")
    try:
        directory.rename(gone)
    except OSError:  # it is not there, or an earlier attempt was cut off
        gone = directory
    shutil.rmtree(gone, ignore_errors=True)


def _is_abandoned(directory: Path) -> bool:
    try:
        status = directory.lstat()
        if status.st_uid != os.getuid() or directory.is_symlink() or not directory.is_dir():
            return False
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return directory.exists() and time.time() - status.st_mtime > _UNLOCKED_SECONDS_MAX
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # its process lives
    finally:
        os.close(descriptor)
    return True
