"""Files and directories that only the job's own user can read: checkpoints, state and savepoints hold what records hold."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_private_directory(directory: Path) -> None:
    """Make a directory, if it is not there, and let only this user into it. Its parents are made as usual.

    A directory that belongs to somebody else is left as it is. Raises OSError.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=DIRECTORY_MODE)
        return
    status = directory.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        directory.chmod(DIRECTORY_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open a file that only this user can read: for ``open(path, "wb", opener=private_opener)``."""
    return os.open(path, flags, FILE_MODE)
