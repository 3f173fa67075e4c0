"""Compiled hyperscan databases on disk. A process that scans for the same literals reads the database instead of compiling it.

A file holds a magic word, the SHA-256 of what follows, and the database as hyperscan writes it. It is only read from a
directory that belongs to this user and that nobody else can write to, and only when the checksum is right.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)
_MAGIC = b"headrace-rules-database-1\n"
_FILES_MAX = 64


def default_directory() -> Path:
    """Return the directory for this user: below ``$HEADRACE_CACHE``, else ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return Path(own) / "rules"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "headrace" / "rules"


class DatabaseCache:
    """A directory of compiled databases. It never raises OSError: a database that cannot be read is compiled again by the caller."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or default_directory()

    def find(self, key: bytes) -> bytes | None:
        """Return the database stored for ``key``; None if there is none, or if it is damaged or not safe to read."""
        path = self._path(key)
        try:
            if not self._is_ours():
                return None
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        magic, checksum = content[: len(_MAGIC)], content[len(_MAGIC) : len(_MAGIC) + 32]
        database = content[len(_MAGIC) + 32 :]
        if magic != _MAGIC or hashlib.sha256(database).digest() != checksum:
            logger.warning("the compiled rules in %s are damaged: they are compiled again", path)
            return None
        return database

    def store(self, key: bytes, database: bytes) -> None:
        """Store a database. If there are more than 64, those that were not used for the longest time are removed."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_ours():
                logger.warning(
                    "%s belongs to another user, or others can write to it: compiled rules are not stored",
                    self.directory,
                )
                return
            content = _MAGIC + hashlib.sha256(database).digest() + database
            descriptor, name = tempfile.mkstemp(dir=self.directory, suffix=".new")
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, self._path(key))
            self._trim()
        except OSError as error:
            logger.info("compiled rules cannot be stored in %s: %s", self.directory, error)

    def _path(self, key: bytes) -> Path:
        return self.directory / f"{hashlib.sha256(key).hexdigest()}.hsdb"

    def _is_ours(self) -> bool:
        found = self.directory.stat()
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _trim(self) -> None:
        files = sorted(self.directory.glob("*.hsdb"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[_FILES_MAX:]:
            path.unlink(missing_ok=True)
