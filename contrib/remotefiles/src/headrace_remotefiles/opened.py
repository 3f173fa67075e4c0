"""An open remote file: reads ranges of bytes, and checks that they belong to the version that was opened."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from headrace_file.file_system import OpenedFile

from headrace_remotefiles.entries import Entry

if TYPE_CHECKING:
    from headrace_remotefiles.remote_files import RemoteFiles

#: How much a small read fetches, so that the following reads need no request. It doubles while the file is read
#: sequentially.
_AHEAD_BYTES_MIN = 256 * 1024
_AHEAD_BYTES_MAX = 4 * 1024**2


class RemoteFile(OpenedFile):
    """Reads one file. Used by one thread at a time.

    After each request for bytes it asks the store whether the file is still the version that was opened. If it is not,
    the bytes are dropped and OSError is raised.
    """

    def __init__(self, files: RemoteFiles, path: str, entry: Entry) -> None:
        self._files = files
        self._path = path
        self._entry = entry
        self._block = b""
        self._block_at = 0
        self._ahead = _AHEAD_BYTES_MIN

    def status(self) -> Entry:
        return self._entry

    def pread(self, position: int, size: int) -> bytes:
        if position + size > self._entry.st_size:
            self._take(self._files.status(self._path))  # it may have grown
        size = max(0, min(size, self._entry.st_size - position))
        if not size:
            return b""
        within = position - self._block_at
        if not (within >= 0 and within + size <= len(self._block)):
            begin, end = position, position + size
            if size < self._ahead:
                on = within == len(self._block) or 0 < within < len(self._block)
                self._ahead = min(2 * self._ahead, _AHEAD_BYTES_MAX) if on else _AHEAD_BYTES_MIN
                end = min(position + max(size, self._ahead), self._entry.st_size)
            self._block, self._block_at, within = self._fetched(begin, end), begin, 0
        data = self._block[within : within + size]
        if within + size == len(self._block) and self._block_at:
            self._block, self._block_at = b"", position + size  # all of it was given
        return data

    def _fetched(self, begin: int, end: int) -> bytes:
        data = self._files.read(self._path, begin, end)
        self._take(self._files.look(self._path))
        if len(data) == end - begin:
            return data
        if len(data) == self._entry.st_size:
            return data[begin:end]  # a web server that does not support ranges
        if self._entry.st_size < end:
            raise FileNotFoundError(errno.ENOENT, "it became shorter while it was read", self._path)
        raise OSError(errno.ECONNABORTED, f"the store returned {len(data)} bytes instead of {end - begin}", self._path)

    def _take(self, entry: Entry) -> None:
        """Continue with the present status, if it is still the same file."""
        if (entry.st_dev, entry.st_ino) != (self._entry.st_dev, self._entry.st_ino):
            raise FileNotFoundError(errno.ENOENT, "another version has replaced it", self._path)
        if entry.st_size < self._entry.st_size:
            self._block = b""
        self._entry = entry

    def close(self) -> None:
        self._block = b""
