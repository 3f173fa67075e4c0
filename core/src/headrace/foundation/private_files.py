"""Files and directories that only the job's own user can read: checkpoints, state and savepoints hold what records hold."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.foundation.directories import make_directories

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_private_directory(directory: Path) -> None:
    """Make a directory, if it is not there, and let only this user into it. Its parents are made as usual.

    After a crash of the machine it is still there. A directory that belongs to somebody else is left as it is. Raises OSError.
    """
    if make_directories(directory, DIRECTORY_MODE):
        return
    status = directory.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        directory.chmod(DIRECTORY_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open a file that only this user can read: for ``open(path, "wb", opener=private_opener)``."""
    return os.open(path, flags, FILE_MODE)
