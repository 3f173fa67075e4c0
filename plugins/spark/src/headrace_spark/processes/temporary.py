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
#: The file that says whether the driver of a directory lives is there long before this.
_UNLOCKED_SECONDS_MAX = 24 * 3600
#: Kept open, and so locked, until the process ends.
_locks: dict[Path, int] = {}


def temporary_directory(kind: str) -> Path:
    """Make a directory that only this user can read; ``kind`` stands in its name.

    The caller removes it by ``remove``. If the process is killed before, ``remove_abandoned`` of a later one does.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
    fresh = directory / f"{_LOCK}.new"
    descriptor = os.open(fresh, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # It gets its name when it is locked, so that nobody takes the directory for an abandoned one.
    fresh.rename(directory / _LOCK)
    _locks[directory] = descriptor
    return directory


def remove(directory: Path) -> None:
    """Remove a directory that ``temporary_directory`` made. May be called twice."""
    shutil.rmtree(directory, ignore_errors=True)
    descriptor = _locks.pop(directory, None)
    if descriptor is not None:
        os.close(descriptor)


def remove_abandoned(kinds: tuple[str, ...]) -> list[Path]:
    """Remove directories of these kinds whose process is gone; return them. Those of other users are left alone."""
    removed = []
    for kind in kinds:
        for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{kind}-*"):
            if directory not in _locks and _is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)
                removed.append(directory)
    return removed


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
