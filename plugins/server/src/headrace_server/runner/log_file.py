"""The log of a runner: what its process prints and logs, in a file that is rotated.

Standard output and error of the process *are* the file, so that a crash in C code leaves its traceback there as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from headrace.foundation.logs import configure
from headrace.foundation.private_files import FILE_MODE

FILE_MAX_BYTES = 10 * 1024 * 1024
FILES_KEPT = 5


class LogFile:
    """Redirects this process's output to a file. ``rotate`` is called now and then by the process itself."""

    def __init__(self, path: Path, *, max_bytes: int = FILE_MAX_BYTES, kept: int = FILES_KEPT) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept

    def open(self, format: Literal["console", "json"] = "console") -> None:
        """Make the file standard output and standard error, and let events be logged there, limited in rate. Raises OSError.

        With ``json`` each event is one line of JSON with its fields; output that a job prints is written unchanged.
        """
        self._redirect()
        configure(format, "info")

    def rotate(self) -> bool:
        """Begin a new file if this one is large; return whether that was done. Raises OSError."""
        if self._path.exists() and self._path.stat().st_size < self._max_bytes:
            return False
        for number in range(self._kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        if self._path.exists():
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._redirect()
        return True

    def _redirect(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, FILE_MODE)
        try:
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
        finally:
            os.close(descriptor)
