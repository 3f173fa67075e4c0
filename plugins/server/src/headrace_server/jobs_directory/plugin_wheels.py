"""The wheels of plug-ins that jobs name: which of them a version has, by their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from headrace.foundation.errors import JobError

#: In the files of a version: one line per wheel, its SHA-256 and its name. The name cannot be that of a file of a folder.
LOCK_FILE = ".plugins.lock"
_WHEEL = re.compile(
    r"[A-Za-z0-9_.!+]+-[A-Za-z0-9_.!+]+(-[0-9][A-Za-z0-9_.]*)?-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+\.whl"
)


def is_wheel_name(name: str) -> bool:
    """Return whether a text is the name of a wheel, without a directory."""
    return _WHEEL.fullmatch(name) is not None


class PluginWheels:
    """The wheels in one directory. A wheel is read again only when its file has changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}

    def lock(self, names: Iterable[str]) -> str:
        """Return the text that says which wheels these are now. Raises JobError for one that is not there, OSError."""
        return "".join(f"{self.hash_of(name)}  {name}\n" for name in sorted(set(names)))

    def hash_of(self, name: str) -> str:
        """Return the SHA-256 of a wheel. Raises JobError if it is not there, OSError."""
        file = self.directory / name
        try:
            status = file.stat()
        except FileNotFoundError:
            raise JobError(
                f"there is no {name} in {self.directory}", option="plugins", hint="copy the wheel into that directory"
            ) from None
        signature = (status.st_ino, status.st_size, status.st_mtime_ns)
        before, found = self._known.get(name, ((0, 0, 0), ""))
        if before != signature:
            with open(file, "rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
            self._known[name] = (signature, found)
        return found


def wheels_of(lock: str) -> dict[str, str]:
    """Return the hashes of wheels by their names, from the text of ``PluginWheels.lock``."""
    pairs = [line.split("  ", 1) for line in lock.splitlines()]
    return {name: found for found, name in pairs}
