"""What is made of rules, on disk: compiled hyperscan databases, and what conditions need. Another process reads it instead of making it.

A file holds a magic word, the SHA-256 of what follows, and the content. It is only read from a directory that belongs to
this user and that nobody else can write to, and only when the checksum is right. Its name is a hash of everything that determines
its content, versions too.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import ClassVar

logger = logging.getLogger(__name__)


def default_directory() -> Path:
    """Return the directory for this user: below ``$HEADRACE_CACHE``, else ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return Path(own) / "rules"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "headrace" / "rules"


class DiskCache:
    """A directory of files of one kind. It never raises OSError: what cannot be read is made again by the caller."""

    #: The first bytes of a file, and how its name ends.
    magic: ClassVar[bytes]
    suffix: ClassVar[str]
    #: More files than this are not kept: those that were not used for the longest time are removed.
    files_max: ClassVar[int]

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or default_directory()

    def find(self, key: bytes) -> bytes | None:
        """Return the content stored for ``key``; None if there is none, or if it is damaged or not safe to read."""
        path = self._path(key)
        try:
            if not self._is_ours():
                return None
            stored = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        begin = len(self.magic)
        checksum, content = stored[begin : begin + 32], stored[begin + 32 :]
        if stored[:begin] != self.magic or hashlib.sha256(content).digest() != checksum:
            logger.warning("the compiled rules in %s are damaged, so the rules are compiled again", path)
            return None
        return content

    def store(self, key: bytes, content: bytes) -> None:
        """Store a content. Call ``trim`` after the last one."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_ours():
                logger.warning(
                    "%s belongs to another user, or others can write to it: compiled rules are not stored",
                    self.directory,
                )
                return
            descriptor, name = tempfile.mkstemp(dir=self.directory, suffix=".new")
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.magic + hashlib.sha256(content).digest() + content)
            os.replace(name, self._path(key))
        except OSError as error:
            logger.info("compiled rules cannot be stored in %s: %s", self.directory, error)

    def trim(self) -> None:
        """Remove the files that were not used for the longest time, if there are too many."""
        try:
            used = [(path.stat().st_mtime, path) for path in self.directory.glob(f"*{self.suffix}")]
            for _, path in sorted(used, reverse=True)[self.files_max :]:
                path.unlink(missing_ok=True)
        except OSError as error:  # another process removes files, too
            logger.info("old compiled rules cannot be removed from %s: %s", self.directory, error)

    def _path(self, key: bytes) -> Path:
        return self.directory / f"{hashlib.sha256(key).hexdigest()}{self.suffix}"

    def _is_ours(self) -> bool:
        found = self.directory.stat()
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class DatabaseCache(DiskCache):
    """Compiled hyperscan databases, as hyperscan writes them."""

    magic = b"headrace-rules-database-1\n"
    suffix = ".hsdb"
    files_max = 64
