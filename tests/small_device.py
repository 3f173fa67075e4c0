"""A small file system in memory, for tests in which a disk is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, *, size: str = "1m") -> Iterator[Path]:
    """Mount it at a new directory, with a size as ``mount`` takes it; skip the test where nothing may be mounted."""
    place.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(device: Path) -> Path:
    """Use all the room that is left; return the file to remove when there shall be room again."""
    ballast = device / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(descriptor, bytes(4096)):
            pass
    except OSError:
        os.close(descriptor)
    return ballast
