"""Directories whose entries are there after a crash of the machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Make the entries of a directory durable: files that were made, renamed or removed in it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path, mode: int = 0o777) -> bool:
    """Make a directory and those above it, if they are not there, and make their names durable; return whether it was not there.

    ``mode`` is that of the last one; those above it are made as usual. Without this, files that were made durable in a new
    directory may be gone after a crash of the machine, because the name of the directory is. One that is there may have been made
    by a process that was killed before its name was durable. Raises OSError.
    """
    made = False
    if not directory.exists():
        if directory.parent != directory:
            make_directories(directory.parent)
        with contextlib.suppress(FileExistsError):  # another process was faster
            directory.mkdir(mode)
            made = True
    with contextlib.suppress(PermissionError):  # it may be written and not read: then it cannot be asked for
        sync_directory(directory.parent)
    return made
