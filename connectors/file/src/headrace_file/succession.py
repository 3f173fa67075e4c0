"""Which file comes after the one that a cursor reads."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from headrace.foundation.errors import BrokenQueueError

from headrace_file.context import Context
from headrace_file.file_system import FileStatus
from headrace_file.identity import FileIdentity, Place
from headrace_file.rotation import Departure, Glimpse, Successor, find_between, find_successor, glimpse
from headrace_file.streams import ByteStream


class Succession:
    """What a cursor has seen of the path while it reads another file, and of a file before it had bytes. Of one file at a time."""

    def __init__(self, context: Context, name: str, begin: Place | None) -> None:
        """``begin``: where reading begins, if the file was looked at there: of which no bytes are known, it had none."""
        self._context = context
        self._name = name
        #: What was seen when the path was found to lead to another file.
        self.left: Departure | None = None
        #: The file as it was seen without any bytes, until its first bytes are known to be its first.
        self.empty: FileIdentity | None = None
        if begin is not None and begin.file is not None and not begin.byte and not begin.file.head.length:
            self.empty = begin.file

    def begin(self) -> None:
        """The cursor goes to another file."""
        self.left = self.empty = None

    def is_noted(self, status: FileStatus) -> bool:
        """Return whether this is the file that was seen at the path."""
        return self.left is not None and self.left.file.key == (status.st_dev, status.st_ino)

    def look(self, status: FileStatus) -> Departure:
        """Look at the file that is at the path now."""
        seconds = time.monotonic()
        file = FileIdentity((status.st_dev, status.st_ino), modified_ns=status.st_mtime_ns)
        with contextlib.suppress(BrokenQueueError):  # it comes again when the file before is finished
            seen = glimpse(self._name, self._context.settings.compression, self._context.files)
            file = seen.identity if seen is not None else file
        return Departure(file, "", seconds)

    def after(self, current: FileIdentity, current_path: str, byte: int) -> Successor | None:
        """Return the file after ``current``; see ``find_successor``."""
        context = self._context
        return find_successor(
            self._name,
            context.names,
            context.settings.compression,
            current,
            current_path,
            settled_before_ns=self._settled_before_ns,
            byte=byte,
            left=self.left,
            directories=context.tracker.directories,
            is_excluded=partial(self._is_excluded, current),
        )

    def before_first_bytes(self, stream: ByteStream, data: bytes) -> Successor | None:
        """Return the file that now holds the content of a file that was empty before. ``data`` are its present first
        bytes, if there are any.
        """
        context = self._context
        if self.empty is None:
            return None
        found = find_between(
            self._name,
            context.names,
            context.settings.compression,
            self.empty,
            stream,
            data,
            settled_before_ns=self._settled_before_ns,
            directories=context.tracker.directories,
            is_excluded=partial(self._is_excluded, self.empty),
        )
        if found is None and data:
            self.empty = None
        return found

    def identified(self, before: FileIdentity | None, file: FileIdentity, *, begins: bool) -> FileIdentity:
        """Return what counts as known of a file: ``file`` as it was seen now, or ``before`` while its bytes may not be its first.

        ``begins``: nothing of it was read. What is only known from a list of a directory had bytes then, or not: that is not known.
        """
        seen_empty = before is not None and before.key == file.key and not before.head.length and before.generation > 0
        if self.empty is not None and self.empty.key == file.key:
            before, seen_empty = self.empty, True
        if not begins:
            return file
        if seen_empty:
            self.empty = before
            assert before is not None
            return before
        self.empty = None if file.head.length else file
        return file

    @property
    def _settled_before_ns(self) -> int:
        context = self._context
        return int((context.clock.now() - context.settings.rotate_wait.total_seconds()) * 1e9)

    def _is_excluded(self, current: FileIdentity, seen: Glimpse) -> bool:
        return self._context.tracker.excludes(self._name, seen, current)
