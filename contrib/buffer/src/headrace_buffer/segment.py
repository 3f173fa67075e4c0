"""A segment: one file of a log, with a header and consecutive blocks of records.

The name of the file is the offset of its first record. Blocks are found by an index in memory, which is made from their
headers when it is first needed.
"""

from __future__ import annotations

import bisect
import logging
import os
import struct
import threading
from pathlib import Path
from zlib import crc32

from headrace.foundation.durable_files import sync_directory, write_whole
from headrace.foundation.errors import DataError
from headrace.foundation.private_files import FILE_MODE

from headrace_buffer.records import (
    HEADER_BYTES,
    MARK,
    BlockHeader,
    Records,
    decode_payload,
    joined,
    read_header,
    sliced,
)

logger = logging.getLogger(__name__)
SUFFIX = ".log"
_FILE_MARK = b"HRBUF\x00\x01\n"
_FILE_HEADER = struct.Struct("<8sqI")
FILE_HEADER_BYTES = _FILE_HEADER.size
#: How much one read takes from a file, unless a block is longer.
_READ_BYTES = 4 * 1024**2
#: If blocks are small, headers are searched in pieces of this size.
_SCAN_BYTES = 256 * 1024


def _datasync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


class SegmentGoneError(Exception):
    """The segment was removed before it could be read."""


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment that begins with this offset."""
    return directory / f"{first:020}{SUFFIX}"


def first_offset_of(path: Path) -> int | None:
    """Return the offset in the name of a segment, or None if the file is not a segment."""
    name = path.name.removesuffix(SUFFIX)
    return int(name) if path.name.endswith(SUFFIX) and len(name) == 20 and name.isdigit() else None


class Segment:
    """One file. Written by one thread, read by several."""

    def __init__(self, path: Path, first: int, salt: int, *, end: int | None = None) -> None:
        self.path = path
        self.first = first
        #: The offset after its last record; None until the index is made.
        self.end = end
        #: Bytes of the file's header and all complete blocks. Bytes after that do not belong to the log.
        self.size = FILE_HEADER_BYTES
        self._salt = salt
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._firsts: list[int] = []
        self._places: list[int] = []
        self._time_maxima: list[int] = []
        self._indexed = False
        #: The offset after the last block of the index.
        self._index_end = first
        #: Where the next block should begin, if there is no valid block.
        self._damaged_place: int | None = None

    # ----------------------------------------------------------------------------------------------- making, ending

    @classmethod
    def create(cls, directory: Path, first: int, salt: int) -> Segment:
        """Create the file of a new, empty segment. Raises OSError."""
        segment = cls(segment_path(directory, first), first, salt, end=first)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        segment._descriptor = os.open(segment.path, flags, FILE_MODE)
        try:
            write_whole(segment._descriptor, _file_header(first, salt))
            os.fsync(segment._descriptor)
            sync_directory(directory)
        except OSError:
            segment.close()
            raise
        segment._indexed = True
        return segment

    def close(self) -> None:
        """Close the file. Reading it afterwards opens it again."""
        with self._lock:
            if self._descriptor is not None and self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = None

    def remove(self) -> int:
        """Remove the file; return how many bytes that freed."""
        with self._lock:
            if self._descriptor is not None and self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1
        try:
            size = self.path.stat().st_size
            self.path.unlink()
        except FileNotFoundError:
            return 0
        return size

    # --------------------------------------------------------------------------------------------------- writing

    def append(self, block: bytes, count: int, time_max: int) -> None:
        """Write a block and make it durable. After an OSError, call ``take_back`` before the next write."""
        assert self.end is not None
        descriptor = self._opened()
        write_whole(descriptor, block)
        _datasync(descriptor)
        with self._lock:
            self._firsts.append(self.end)
            self._places.append(self.size)
            self._time_maxima.append(time_max)
            self.size += len(block)
            self.end += count
            self._index_end = self.end

    def take_back(self) -> None:
        """Remove the rest of a failed ``append``. Raises OSError."""
        descriptor = self._opened()
        os.ftruncate(descriptor, self.size)
        os.lseek(descriptor, self.size, os.SEEK_SET)
        os.fsync(descriptor)

    def recover(self) -> int:
        """Find the end of the last segment after a start, and remove an unfinished block after it. Returns how many
        bytes were removed.

        A block is unfinished if no complete block follows. If a complete block follows, the damage is in the middle,
        and removing it would lose records: raises DataError.
        """
        data = self.path.read_bytes()
        if data[:FILE_HEADER_BYTES] != _file_header(self.first, self._salt):
            if len(data) > FILE_HEADER_BYTES:
                raise self._damage(0, self.first)
            self._write_anew()
            return len(data)
        self._index(data, verify=True)
        cut = len(data) - self.size
        if cut:
            following = self._following_block(data, self.size + 1)
            if following is not None:
                raise self._damage(self.size, self.end or 0, until=following.first)
            self.take_back()
        else:
            # The data of a killed process may not be on the disk yet, and readers get this data from now on.
            os.fsync(self._opened())
        os.lseek(self._opened(), self.size, os.SEEK_SET)
        return cut

    def _write_anew(self) -> None:
        """Write the header of a segment that a crash left without one."""
        descriptor = self._opened()
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        write_whole(descriptor, _file_header(self.first, self._salt))
        os.fsync(descriptor)
        sync_directory(self.path.parent)
        self.end, self._indexed = self.first, True

    def _following_block(self, data: bytes, place: int) -> BlockHeader | None:
        """Return the first complete block after a place."""
        while (place := data.find(MARK, place)) >= 0:
            header = read_header(data, place, self._salt)
            if header is not None and header.first >= (self.end or 0):
                payload = memoryview(data)[place + HEADER_BYTES : place + header.size]
                if decode_payload(header, payload, with_headers=False) is not None:
                    return header
            place += 1
        return None

    # --------------------------------------------------------------------------------------------------- reading

    def read(self, offset: int, max_records: int, *, with_headers: bool) -> Records:
        """Return at least one and at most ``max_records`` records from ``offset`` on, from consecutive blocks, up to
        the first damaged block.

        Raises DataError if the block of ``offset`` is damaged, and SegmentGoneError if the file was removed.
        """
        self._make_index()
        with self._lock:
            at = bisect.bisect_right(self._firsts, offset) - 1
            limit = self.size
            if self._damaged_place is not None and offset >= self._index_end:
                raise self._damage(self._damaged_place, offset)
            begin = self._places[at]
            last = bisect.bisect_left(self._firsts, offset + max_records, lo=at + 1) - 1
            while last > at and self._place_after(last, limit) - begin > _READ_BYTES:
                last -= 1
            end = self._place_after(last, limit)
        data = memoryview(self._read_at(begin, end - begin))
        parts: list[Records] = []
        place = 0
        while place < len(data):
            header = read_header(data, place, self._salt)
            found = None
            if header is not None:
                payload = data[place + HEADER_BYTES : place + header.size]
                found = decode_payload(header, payload, with_headers=with_headers)
            if header is None or found is None:
                if not parts:
                    raise self._damage(begin + place, offset, until=self._block_end(offset))
                break
            parts.append(found)
            place += header.size
        records = joined(parts)
        skipped = offset - records.first
        return sliced(records, skipped, min(len(records), skipped + max_records))

    def first_since(self, time: int, *, least: int) -> int | None:
        """Return the first offset from ``least`` on whose record has this time or a later one; None: none has."""
        self._make_index()
        with self._lock:
            blocks = list(zip(self._firsts, self._time_maxima, strict=True))
        for at, (first, time_max) in enumerate(blocks):
            end = blocks[at + 1][0] if at + 1 < len(blocks) else (self.end or 0)
            if time_max < time or end <= least:
                continue
            records = self.read(max(first, least), end - max(first, least), with_headers=False)
            rows = (records.times >= time).nonzero()[0]
            if len(rows):
                return records.first + int(rows[0])
        return None

    # ----------------------------------------------------------------------------------------------------- parts

    def _opened(self) -> int:
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            if self._descriptor < 0:
                raise SegmentGoneError
            return self._descriptor

    def _read_at(self, place: int, length: int) -> bytes:
        """Read while the file cannot be closed. Otherwise another file could get its descriptor."""
        self._opened()
        with self._lock:
            descriptor = self._descriptor
            if descriptor is None or descriptor < 0:
                raise SegmentGoneError
            parts, left = [], length
            while left:
                part = os.pread(descriptor, left, place + length - left)
                if not part:
                    break
                parts.append(part)
                left -= len(part)
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _make_index(self) -> None:
        """Make the index of a segment that an earlier process has written. It stops at the first damaged block."""
        if self._indexed:
            return
        end = self.end
        if self._read_at(0, FILE_HEADER_BYTES) != _file_header(self.first, self._salt):
            raise self._damage(0, self.first, until=end)
        place, data, begin = FILE_HEADER_BYTES, b"", 0
        firsts, places, times, offset = [], [], [], self.first
        while end is None or offset < end:
            if place + HEADER_BYTES > begin + len(data):
                begin, data = place, self._read_at(place, _SCAN_BYTES)
            header = read_header(data, place - begin, self._salt)
            if header is None or header.first != offset:
                break
            firsts.append(offset)
            places.append(place)
            times.append(header.time_max)
            place, offset = place + header.size, offset + header.count
            if place > begin + len(data):
                data = b""
                begin = place
        with self._lock:
            self._firsts, self._places, self._time_maxima, self.size = firsts, places, times, place
            self._index_end = offset
            if end is not None and offset != end:
                self._damaged_place = place
            self._indexed = True

    def _index(self, data: bytes, *, verify: bool) -> None:
        """Make the index of the last segment, up to the first block that is incomplete or does not follow the one
        before.
        """
        place, offset = FILE_HEADER_BYTES, self.first
        whole = memoryview(data)
        while (header := read_header(data, place, self._salt)) is not None and header.first == offset:
            payload = whole[place + HEADER_BYTES : place + header.size]
            if verify and decode_payload(header, payload, with_headers=False) is None:
                break
            self._firsts.append(offset)
            self._places.append(place)
            self._time_maxima.append(header.time_max)
            place, offset = place + header.size, offset + header.count
        self.size, self.end, self._index_end, self._indexed = place, offset, offset, True

    def _place_after(self, block: int, limit: int) -> int:
        return self._places[block + 1] if block + 1 < len(self._places) else limit

    def _block_end(self, offset: int) -> int | None:
        """Return the offset after the block that has this offset."""
        at = bisect.bisect_right(self._firsts, offset)
        return self._firsts[at] if at < len(self._firsts) else self.end

    def _damage(self, place: int, offset: int, *, until: int | None = None) -> DataError:
        until = until if until is not None else self.end
        which = f"records from {offset} on" if until is None or until <= offset else f"records {offset} to {until - 1}"
        return DataError(
            f"{self.path} is damaged at byte {place}: {which} cannot be read",
            offset=offset,
            hint=f"restore the file from a backup; or, to lose these records, move the job's offset to "
            f"{until if until is not None else 'a later one'} (headrace offsets)",
        )


def _file_header(first: int, salt: int) -> bytes:
    return _FILE_HEADER.pack(_FILE_MARK, first, crc32(first.to_bytes(8, "little"), salt))
