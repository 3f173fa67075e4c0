"""Finding a file again after rotation, and the file that comes after it.

Rotated files stay in the directory of the file that is followed (or of the file its symbolic link leads to). They are
found by inode when they were renamed and by their first bytes when they were copied or compressed; their order is that
of their last change, which renaming, ``gzip`` and ``zstd`` keep.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.foundation.errors import BrokenQueueError

from headrace_file.file_system import LOCAL, FileStatus, FileSystem
from headrace_file.identity import FileIdentity, Fingerprint
from headrace_file.siblings import Beside, Directories
from headrace_file.streams import FileMovedError, PlainStream, open_stream


@dataclass(frozen=True, slots=True)
class Successor:
    """The file that holds the next generation. Not ``settled``: it may still be written, check again later."""

    path: str
    settled: bool


#: Device, inode, size and time of the last change.
Signature = tuple[int, int, int, int]


def signature_of(status: FileStatus | None) -> Signature | None:
    """Return what shows whether a file has changed; None for one that is not there."""
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class RotatedNames:
    """Knows the names that rotation gives to a file, by the patterns of the option ``rotated``."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def matcher(self, path: str) -> Callable[[str], bool]:
        """Return a test whether a path may be that of a rotated ``path``."""
        name = os.path.basename(path)
        stem, suffix = os.path.splitext(name)
        values = {"name": _escaped(name), "stem": _escaped(stem), "suffix": _escaped(suffix)}
        expressions = [fnmatch.translate(_filled(pattern, values)) for pattern in self._patterns]
        found = re.compile("|".join(expressions)) if expressions else None
        return lambda other: found is not None and found.match(os.path.basename(other)) is not None

    def prefix(self, path: str) -> str:
        """Return what the names of rotated files of ``path`` begin with, whichever pattern they follow."""
        name = os.path.basename(path)
        return os.path.splitext(name)[0] if any(each.startswith("{stem}") for each in self._patterns) else name

    def possible_originals(self, path: str) -> Iterator[str]:
        """Yield the paths that ``path`` could be a rotated form of, whether they exist or not."""
        directory, name = os.path.split(path)
        for end in range(1, len(name)):
            if name[end] in ".-_" or any(pattern.startswith("{stem}") for pattern in self._patterns):
                yield os.path.join(directory, name[:end])


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def _filled(pattern: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        pattern = pattern.replace("{" + key + "}", value)
    return pattern


def order_key(path: str, modified_ns: int) -> tuple[int, int, str]:
    """Return the sort key of rotated files, from old to new: the last change, then app.log.2 before app.log.1."""
    number = re.search(r"\.(\d{1,6})(?:\.\w+)?$", path)
    return (modified_ns, -int(number[1]) if number else 0, path)


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A file as it is now, with its first bytes after decompression."""

    identity: FileIdentity
    head: bytes
    compressed: bool
    #: Of the file as it is, compressed or not.
    size: int = 0

    def is_same_as(self, known: FileIdentity) -> bool:
        """Return whether this is the file that was known: the same inode, and it still begins as it did."""
        return self.identity.key == known.key and known.head.matches(self.head)

    def is_copy_of(self, known: FileIdentity) -> bool:
        """Return whether this is a compressed copy of the file that was known."""
        return self.compressed and known.head.length > 0 and known.head.matches(self.head)

    def is_copy_before(self, known: FileIdentity, byte: int) -> bool:
        """Return whether this is a copy of the beginning of the file that was known, from before it had ``byte`` bytes."""
        if self.compressed:
            return self.is_copy_of(known)
        return self.size < byte and known.head.length > 0 and known.head.matches(self.head)


def glimpse(path: str, compression: str, files: FileSystem = LOCAL) -> Glimpse | None:
    """Look at the beginning of a file; None when it is gone. Raises BrokenQueueError when it cannot be read or decompressed."""
    try:
        stream = open_stream(path, compression, files=files)
    except FileMovedError:
        return None
    try:
        identity, head = FileIdentity.of(stream)
        return Glimpse(identity, head, not isinstance(stream, PlainStream), stream.file.stat().st_size)
    except FileMovedError:
        return None
    finally:
        stream.release()


@dataclass(frozen=True, slots=True)
class Mark:
    """A place that was read, and the bytes before it."""

    byte: int
    tail: Fingerprint


def holds(path: str, compression: str, file: FileIdentity, marks: Sequence[Mark], files: FileSystem = LOCAL) -> bool:
    """Return whether the file at ``path`` begins as ``file`` did and has the same bytes before the marks.

    Of a compressed file only the first mark is looked at, where reading is to go on. Raises BrokenQueueError when it cannot be
    read or decompressed.
    """
    seen = glimpse(path, compression, files)
    if seen is None or not file.head.matches(seen.head):
        return False
    looked_at = [mark for mark in (marks[:1] if seen.compressed else marks) if mark.byte]
    if not looked_at:
        return True
    try:
        stream = open_stream(path, compression, near=looked_at[0].byte, files=files)
    except FileMovedError:
        return False
    try:
        return all(
            mark.tail.matches(stream.read_at(mark.byte - mark.tail.length, mark.tail.length)) for mark in looked_at
        )
    except FileMovedError:
        return False
    finally:
        stream.close()


def locate(
    path: str,
    names: RotatedNames,
    compression: str,
    file: FileIdentity,
    marks: Sequence[Mark],
    directories: Directories,
) -> str | None:
    """Return where the file that was read at ``path`` is now, or None when it is not found.

    The search order is: the same inode, at its path or under another name; then copies under the names that rotation gives;
    then the path itself when a copy was put in its place. Raises BrokenQueueError when the same inode cannot be read.
    """

    files = directories.files

    def same(candidate: str) -> bool:
        try:
            return holds(candidate, compression, file, marks, files)
        except BrokenQueueError:
            return False  # a damaged copy is no copy

    status = files.status_or_none(path)
    if status is not None and status.st_ino == file.inode:
        unread = not file.head.length and not any(mark.byte for mark in marks) and status.st_dev == file.key[0]
        if unread or holds(path, compression, file, marks, files):
            return path
    for beside in directories.looks(path):
        for found in beside.with_inode(file.inode):
            if same(found):
                return found
        if not file.head.length:
            continue
        is_rotated = names.matcher(path)
        rotated = [each.path for each in beside.starting_with(names.prefix(path)) if is_rotated(each.path)]
        copies = [(its.st_mtime_ns, each) for each in rotated if (its := files.status_or_none(each)) is not None]
        for _, candidate in sorted(copies, reverse=True):
            if same(candidate):
                return candidate
    if not file.head.length:
        return None
    return path if status is not None and same(path) else None


def find_successor(
    path: str,
    names: RotatedNames,
    compression: str,
    current: FileIdentity,
    current_path: str,
    *,
    settled_before_ns: int,
    byte: int,
    expected: tuple[int, int] | None,
    beside: Beside,
    is_excluded: Callable[[Glimpse], bool],
    files: FileSystem = LOCAL,
) -> Successor | None:
    """Return the file that came after ``current`` under the name ``path``: a rotated one, else the one there now.

    ``beside`` shows the directory as it was when the path was seen to lead to another file, ``expected`` (device, inode), or later:
    when it leads to yet another one, there may be files in between, and the answer is None. ``current`` was read up to ``byte``;
    ``current_path`` is "" when it was truncated and no copy holds all that was read. ``is_excluded`` is asked whether a file belongs
    to another queue or was read before. Raises BrokenQueueError when a file that could be it cannot be read.
    """
    after = order_key(current_path, current.modified_ns)
    is_rotated = names.matcher(path)
    found: list[tuple[tuple[int, int, str], str]] = []
    for sibling in beside.starting_with(names.prefix(path)):
        if sibling.inode == current.inode or not is_rotated(sibling.path):
            continue
        status = files.status_or_none(sibling.path)
        if status is not None and status.st_size and order_key(sibling.path, status.st_mtime_ns) > after:
            found.append((order_key(sibling.path, status.st_mtime_ns), sibling.path))
    for (modified_ns, _, _), candidate in sorted(found):
        seen = glimpse(candidate, compression, files)
        if seen is None or (not current_path and seen.is_copy_before(current, byte)):
            continue  # lines were read after the copy was made: it holds nothing new
        if not is_excluded(seen):
            return Successor(candidate, settled=modified_ns < settled_before_ns)
    seen = glimpse(path, compression, files)
    if seen is None or is_excluded(seen) or (expected is not None and seen.identity.key != expected):
        return None
    return Successor(path, settled=True)
