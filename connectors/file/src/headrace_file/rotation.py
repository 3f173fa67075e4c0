"""Finding a file again after rotation, and the file that comes after it.

Rotated files stay in the directory of the file that is followed (or of the file its symbolic link leads to). They are
found by inode when they were renamed and by their first bytes when they were copied or compressed; their order is that
of ``rotated_order``.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.foundation.errors import BrokenQueueError

from headrace_file.file_system import LOCAL, FileStatus, FileSystem
from headrace_file.identity import FileIdentity, Fingerprint
from headrace_file.rotated_order import OrderKey, is_later, order_key, ordered
from headrace_file.settings import UNFINISHED
from headrace_file.siblings import Beside, Directories, Sibling
from headrace_file.streams import ByteStream, FileMovedError, PlainStream, open_stream


@dataclass(frozen=True, slots=True)
class Successor:
    """The file that holds the next generation. Not ``settled``: it may still be written, check again later."""

    path: str
    file: FileIdentity
    settled: bool


@dataclass(frozen=True, slots=True)
class Departure:
    """The path leads to another file than the one that is read: observations of both, with their time."""

    #: The file at the path, and where the one that is read is now, "" if that is not known.
    file: FileIdentity
    left_to: str
    #: By ``time.monotonic``, before the path was looked at.
    seconds: float

    def still_shows(self, seen: Glimpse | None) -> bool:
        """Return whether the file at the path is the same, with nothing taken away and written anew in between, as far as its bytes tell.

        A file that was empty and is not any more may have been copied away and truncated.
        """
        known = self.file
        if seen is None or seen.identity.key != known.key:
            return False
        return known.head.matches(seen.head) if known.head.length else not seen.head


#: Device, inode, size and time of the last change.
Signature = tuple[int, int, int, int]


def signature_of(status: FileStatus | None) -> Signature | None:
    """Return what shows whether a file has changed; None for one that is not there."""
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class RotatedNames:
    """Knows the names that rotation gives to a file, by the patterns of the option ``rotated``."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        #: What is being compressed has such a name until it is whole (kubelet), and the rotated file is still there beside it. A
        #: pattern may ask for such names.
        self._unfinished = () if any(each.endswith(UNFINISHED) for each in patterns) else (UNFINISHED,)

    def matcher(self, path: str) -> Callable[[str], bool]:
        """Return a test whether a path may be that of a rotated ``path``."""
        name = os.path.basename(path)
        stem, suffix = os.path.splitext(name)
        values = {"name": _escaped(name), "stem": _escaped(stem), "suffix": _escaped(suffix)}
        expressions = [fnmatch.translate(_filled(pattern, values)) for pattern in self._patterns]
        found = re.compile("|".join(expressions)) if expressions else None
        return lambda other: found is not None and found.match(os.path.basename(other)) is not None

    def prefix(self, path: str) -> str:
        """Return the beginnings of the names of rotated files of ``path``, for every pattern."""
        name = os.path.basename(path)
        return os.path.splitext(name)[0] if any(each.startswith("{stem}") for each in self._patterns) else name

    def among(self, path: str, beside: Beside, files: FileSystem) -> Iterator[Sibling]:
        """Yield the files with a name that rotation gives to ``path``, or to the file that it leads to if it is a symbolic link."""
        seen: set[str] = set()
        for each in {os.path.basename(name): name for name in (files.real_path(path), path)}.values():
            is_rotated = self.matcher(each)
            for sibling in beside.starting_with(self.prefix(each)):
                rotated = sibling.path
                if rotated not in seen and is_rotated(rotated) and not rotated.endswith(self._unfinished):
                    seen.add(rotated)
                    yield sibling

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

    def is_copy_of_now(self, beginning: bytes, size: int) -> bool:
        """Return whether this is a whole copy of a file that begins with these bytes and has this size."""
        shared = min(len(self.head), len(beginning))
        return self.size == size > 0 and self.head[:shared] == beginning[:shared]

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

    Every file begins as one of which no bytes are known: such a one must have the inode, too. Of a compressed file only the first mark
    is looked at, where reading is to go on. Raises BrokenQueueError when it cannot be read or decompressed.
    """
    seen = glimpse(path, compression, files)
    if seen is None or not file.head.matches(seen.head):
        return False
    if not file.head.length and seen.identity.inode != file.inode:
        return False  # the list of the directory that gave the path was made before it led to another file
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
        rotated = [each.path for each in names.among(path, beside, files)]
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
    left: Departure | None,
    directories: Directories,
    is_excluded: Callable[[Glimpse], bool],
) -> Successor | None:
    """Return the file that came after ``current`` under the name ``path``: a rotated one, else the one there now.

    The path is looked at first and the directory after it, so that a file which was moved away from the path is found
    in the directory. ``left`` says what was seen when the path was found to lead to another file. As long as the path
    still shows the same, the earlier list of the directory can be used. When the path leads to yet another file, there
    may be files in between, and the answer is None. ``current`` was read up to ``byte``; ``current_path`` is "" when it
    was truncated and no copy holds all that was read. ``is_excluded`` is asked whether a file belongs to another queue
    or was read before. Raises BrokenQueueError when a file that could be it cannot be read.
    """
    files, seconds, broken, seen = directories.files, time.monotonic(), None, None
    try:
        seen = glimpse(path, compression, files)
    except BrokenQueueError as error:
        broken = error
    beside = directories.beside(path, left.seconds if left is not None and left.still_shows(seen) else seconds)
    after = order_key(current_path, current.modified_ns)
    if not current.head.length and not current_path:
        after = (current.modified_ns, -sys.maxsize, "")  # whatever was written came when it was empty, or later
    for _, modified_ns, candidate in _rotated_after(path, names, current, current_path, after, beside, files):
        rotated = glimpse(candidate, compression, files)
        if rotated is None or (not current_path and rotated.is_copy_before(current, byte)):
            continue  # lines were read after the copy was made: it holds nothing new
        if seen is not None and rotated.is_copy_of_now(seen.head, seen.size):
            continue  # of the file at the path, which is not truncated yet
        if not is_excluded(rotated):
            return Successor(candidate, rotated.identity, settled=modified_ns < settled_before_ns)
    if broken is not None:
        raise broken
    if seen is None or is_excluded(seen) or (left is not None and seen.identity.key != left.file.key):
        return None
    file = seen.identity
    if left is not None and not seen.head:
        # What is written to an empty file and taken away again, from when it was first seen on, is found by this time.
        file = replace(file, modified_ns=min(file.modified_ns, left.file.modified_ns))
    return Successor(path, file, settled=True)


def find_between(
    path: str,
    names: RotatedNames,
    compression: str,
    empty: FileIdentity,
    stream: ByteStream,
    data: bytes,
    *,
    settled_before_ns: int,
    directories: Directories,
    is_excluded: Callable[[Glimpse], bool],
) -> Successor | None:
    """Return the rotated file that contains the first bytes written to a file that was ``empty``.

    None: its first bytes are ``data``, the present beginning of ``stream``, if there are any. They are not if the file was
    copied and truncated, or was compressed after a rotation and another file has got its inode. Raises BrokenQueueError when a file
    that could be it cannot be read.
    """
    status = stream.file.stat()
    if status.st_mtime_ns == empty.modified_ns:
        return None
    until = order_key(stream.file.path, status.st_mtime_ns)
    # A rotated file has the time of its last line, which came when this one was empty or later.
    after = (empty.modified_ns, -sys.maxsize, "")
    beside = directories.beside(path)
    at_path = stream.file.path == path
    for key, modified_ns, candidate in _rotated_after(path, names, empty, "", after, beside, directories.files):
        if key[0] > until[0] if at_path else not is_later(stream.file.path, until, candidate, key):
            continue
        rotated = glimpse(candidate, compression, directories.files)
        if rotated is None or not rotated.head:
            continue
        if rotated.is_copy_of_now(data, status.st_size):
            continue  # of this file, which is not truncated yet
        if not is_excluded(rotated):
            return Successor(candidate, rotated.identity, settled=modified_ns < settled_before_ns)
    return None


def _rotated_after(
    path: str,
    names: RotatedNames,
    current: FileIdentity,
    current_path: str,
    after: OrderKey,
    beside: Beside,
    files: FileSystem,
) -> list[tuple[OrderKey, int, str]]:
    """Return the rotated files that were written after ``current``, from old to new: their keys, last changes and paths."""
    found: dict[str, int] = {}
    for sibling in names.among(path, beside, files):
        if sibling.inode == current.inode:
            continue
        status = files.status_or_none(sibling.path)
        if status is not None and status.st_size:
            found[sibling.path] = status.st_mtime_ns
    return [
        (key, found[candidate], candidate)
        for key, candidate in ordered(list(found.items()))
        if is_later(candidate, key, current_path, after)
    ]
