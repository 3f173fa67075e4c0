"""Bytes of one file by their place, whether it is compressed or not.

A stream can close its file descriptor, and opens it again by itself; it notices when another file has replaced its own file since.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import BrokenQueueError

from headrace_file.decompression import MAGIC_LENGTH, Decompressor, kind_of, make_decompressor
from headrace_file.file_system import LOCAL, FileStatus, FileSystem, OpenedFile
from headrace_file.read_errors import read_error

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Compressed bytes read at once, and kept to see whether the file is still the one that was read.
_RAW_BYTES = 256 * 1024
_RAW_TAIL_BYTES = 64
_SKIP_BYTES = 1024 * 1024
_PARKED_MAX = 8


class FileMovedError(Exception):
    """The path does not lead to the file any more, or the file's beginning has changed. Stays inside this package."""


class OpenFile:
    """One file, known by device and inode, open for reading or closed for a while."""

    def __init__(self, path: str, expected: tuple[int, int] | None = None, files: FileSystem = LOCAL) -> None:
        """Open ``path``. Raises FileMovedError when it is not there or is not the ``expected`` (device, inode)."""
        self.path = path
        self.expected = expected
        self.files = files
        self._opened: OpenedFile | None = None
        self._open()

    @property
    def held(self) -> bool:
        return self._opened is not None

    def _open(self) -> OpenedFile:
        if self._opened is not None:
            return self._opened
        try:
            opened = self.files.open(self.path)
            found = opened.status()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileMovedError(self.path) from error
        except OSError as error:
            raise read_error(self.path, error) from error
        identity = (found.st_dev, found.st_ino)
        if self.expected is not None and identity != self.expected:
            opened.close()
            raise FileMovedError(self.path)
        self.expected = identity
        self._opened = opened
        return opened

    def stat(self) -> FileStatus:
        try:
            return self._open().status()
        except OSError as error:
            raise self._failed(error) from error

    def pread(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end of the file."""
        try:
            return self._open().pread(position, size)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Exception:
        if isinstance(error, FileNotFoundError):
            self.release()
            return FileMovedError(self.path)
        return read_error(self.path, error)

    def release(self) -> None:
        """Close the file. The next use opens the path again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class ByteStream(ABC):
    """The content of a file after decompression."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file

    @abstractmethod
    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on; fewer only when there are no more now.

        Raises FileMovedError when the file that was read is not there any more.
        """

    @abstractmethod
    def has_more(self, position: int) -> bool:
        """Return whether the file is known to hold bytes at or after ``position``."""

    def keep_from(self, position: int) -> None:
        """Drop buffered content before ``position``."""

    def release(self) -> None:
        """Close the file descriptor until the next read."""
        self.file.release()

    def close(self) -> None:
        self.file.release()


class PlainStream(ByteStream):
    """A file read as it is: every place is reached at once."""

    def read_at(self, position: int, size: int) -> bytes:
        return self.file.pread(position, size)

    def has_more(self, position: int) -> bool:
        return self.file.stat().st_size > position


class CompressedStream(ByteStream):
    """A compressed file. Reading on is cheap; going back starts from the beginning, with memory bounded by the read's size.

    Files of several members (gzip), frames (zstd) or streams (bzip2, xz) are read as one. A file that ends within a member gives what can
    be decompressed so far, and more when it grows. What one read decompresses is given only if all of it is valid: the bytes
    just before the place where the damage is noticed are most likely wrong.
    """

    def __init__(self, file: OpenFile, kind: str) -> None:
        super().__init__(file)
        self.kind = kind
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._raw_position = 0
        self._raw_tail = b""
        self._kept = b""
        self._kept_at = 0
        #: The error of the content, and the file's size and time of change when it was found.
        self._damage: tuple[BrokenQueueError, tuple[int, int]] | None = None
        self._begin_decompression()

    def _begin_decompression(self) -> None:
        self._decompressor: Decompressor = make_decompressor(self.kind)

    @property
    def _position(self) -> int:
        return self._kept_at + len(self._kept)

    def read_at(self, position: int, size: int) -> bytes:
        self._check_unchanged()
        if self._damage is not None:
            if self._damage[1] == self._version():
                raise self._damage[0]
            self._begin_anew()
        if position < self._kept_at:
            self._begin_anew()
        while self._position < position:
            # Skip: bytes before the place are not kept, only those of the last step after it.
            piece = self._produce(min(_SKIP_BYTES, position - self._position))
            if not piece:
                return b""
            self._kept, self._kept_at = piece, self._position
        pieces = [self._kept[position - self._kept_at :]]
        missing = size - len(pieces[0])
        while missing > 0:
            piece = self._produce(missing)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._kept, self._kept_at = data, position
        return data[:size] if len(data) > size else data

    def _produce(self, size: int) -> bytes:
        """Return 1 to about ``size`` bytes more, or none when there are none now."""
        while True:
            if not self._decompressor.needs_input:
                piece = self._decompress(b"", size)
                if piece:
                    return piece
                if not self._decompressor.needs_input:
                    continue
            raw = self.file.pread(self._raw_position, _RAW_BYTES)
            if not raw:
                return b""
            self._raw_position += len(raw)
            self._raw_tail = (self._raw_tail + raw[-_RAW_TAIL_BYTES:])[-_RAW_TAIL_BYTES:]
            piece = self._decompress(raw, size)
            if piece:
                return piece

    def _decompress(self, raw: bytes, size: int) -> bytes:
        try:
            return self._decompressor.decompress(raw, size)
        except ValueError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> BrokenQueueError:
        """Note that the content is damaged, until the file changes; return the error that readers raise."""
        broken = BrokenQueueError(
            f"{self.file.path} is not valid {self.kind} after {self._position} decompressed bytes: {error}",
            plugin="file",
            hint="repair or remove the file; records before the damage were read",
        )
        self._damage = broken, self._version()
        return broken

    def describe_cut(self, offset: int) -> str:
        """Return the message that the end of the file is missing; ``offset`` is the number of the record that would be
        next.
        """
        where = f"after record {offset - 1}" if offset else "before record 0"
        return f"{self.file.path} ends in the middle of its compressed data, {where}"

    def cut_error(self, offset: int) -> BrokenQueueError:
        """Return the error for a file whose end will not come; ``offset`` is the number of the record that would be next."""
        return BrokenQueueError(
            f"{self.describe_cut(offset)}: it was truncated, or is still being written",
            plugin="file",
            hint="put the whole file there, or remove it; records before its end were read",
        )

    def _version(self) -> tuple[int, int]:
        status = self.file.stat()
        return status.st_size, status.st_mtime_ns

    def _check_unchanged(self) -> None:
        """Raise FileMovedError when the bytes just read are not in the file any more."""
        if not self.is_unchanged():
            raise FileMovedError(self.file.path)

    def is_unchanged(self) -> bool:
        """Return whether the bytes just read are still in the file."""
        begin = self._raw_position - len(self._raw_tail)
        return not self._raw_tail or self.file.pread(begin, len(self._raw_tail)) == self._raw_tail

    def has_more(self, position: int) -> bool:
        if self._position > position or not self._decompressor.needs_input:
            return True
        return self.file.stat().st_size > self._raw_position

    def keep_from(self, position: int) -> None:
        if position > self._kept_at:
            self._kept = self._kept[position - self._kept_at :]
            self._kept_at = position

    def close(self) -> None:
        super().close()
        park(self)

    def reaches(self, position: int) -> bool:
        """Return whether ``position`` can be read without starting again from the beginning."""
        return self._kept_at <= position

    @property
    def is_cut(self) -> bool:
        """Whether the file, as far as it was read, ends within a gzip member, zstd frame, bzip2 or xz stream."""
        return self._decompressor.within_member

    @property
    def holds_several_files(self) -> bool:
        """Whether it is an archive of more than one file."""
        return False

    @property
    def is_damaged(self) -> bool:
        return self._damage is not None

    @property
    def at_start(self) -> bool:
        return self._raw_position == 0


_parked: OrderedDict[Hashable, CompressedStream] = OrderedDict()
_parked_lock = threading.Lock()


def park(stream: CompressedStream) -> None:
    """Keep a stream for the reader that continues at its position: the next range of the same file, in a new reader."""
    if stream.at_start or stream.is_damaged or stream.file.expected is None:
        return
    with _parked_lock:
        _parked[(stream.file.expected, stream.kind)] = stream
        _parked.move_to_end((stream.file.expected, stream.kind))
        while len(_parked) > _PARKED_MAX:
            _parked.popitem(last=False)


def _unpark(file: OpenFile, kind: str, position: int) -> CompressedStream | None:
    with _parked_lock:
        stream = _parked.get((file.expected, kind))
        if stream is None or not stream.reaches(position):
            return None
        del _parked[(file.expected, kind)]
    stream.file = file
    # It may have been given bytes that were there before the file was mended: it would not find its records again.
    return stream if stream.is_unchanged() else None


def forget_parked() -> None:
    """Drop all parked streams (for tests that measure reading from the start)."""
    with _parked_lock:
        _parked.clear()


def open_stream(
    path: str, compression: str, expected: tuple[int, int] | None = None, near: int = 0, *, files: FileSystem = LOCAL
) -> ByteStream:
    """Open ``path`` to be read from about ``near``; ``compression`` "auto" looks at its first bytes.

    Raises FileMovedError when it is not there or is not the ``expected`` (device, inode).
    """
    file = OpenFile(path, expected, files)
    kind: Any = compression
    if compression == "auto":
        kind = kind_of(file.pread(0, MAGIC_LENGTH), path)
    if kind == "none":
        return PlainStream(file)
    parked = _unpark(file, kind, near) if near else None
    if parked is not None:
        return parked
    if kind == "zip":
        from headrace_file.zip_stream import ZipStream

        return ZipStream(file)
    return CompressedStream(file, kind)


def beginning_of(stream: ByteStream, size: int) -> bytes:
    """Return the first bytes of the file that ``stream`` reads, which stays where it is. Raises FileMovedError when it is gone."""
    file = stream.file
    if isinstance(stream, PlainStream):
        if file.held:  # also if its path leads to another file now
            return stream.read_at(0, size)
        fresh: ByteStream = PlainStream(OpenFile(file.path, file.expected, file.files))
    else:
        fresh = open_stream(file.path, "auto", file.expected, files=file.files)
    try:
        return fresh.read_at(0, size)
    finally:
        fresh.release()
