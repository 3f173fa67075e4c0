"""Lets a job keep every version of its state for a while, wherever its state store is: so that one can go back to an earlier checkpoint.

A state store forgets the versions before a new snapshot. A program that watches a new version of a job may need the
state from before it. It leaves a mark in the checkpoint's directory. As long as the mark is there, no version of the
state is removed, and no snapshot is made only to have fewer versions. So the versions that the next process has loaded
in advance stay valid. The next snapshot after that removes all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.foundation.durable_files import sync_directory, write_durably

#: The name of the mark: it belongs to whoever watches, and is no part of the checkpoint.
MARK = "keep-versions"


def keep_versions(checkpoint: str | os.PathLike[str]) -> None:
    """Let the job with this checkpoint forget no version of its state from now on. Called before it starts. Raises OSError."""
    place = Path(checkpoint)
    if place.is_dir():
        write_durably(place / MARK, b"")
        sync_directory(place)


def forget_versions(checkpoint: str | os.PathLike[str]) -> None:
    """Let the job forget versions again. May be called again, and while it runs. Raises OSError."""
    Path(checkpoint, MARK).unlink(missing_ok=True)


def keeps_versions(checkpoint: str | os.PathLike[str]) -> bool:
    """Return whether the job is to forget nothing. Asked by a backend after each checkpoint."""
    return Path(checkpoint, MARK).exists()
