"""Memory that two processes map: one of them writes buffers into it, the other one reads them."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Sequence

#: Buffers begin at multiples of this, as Arrow wants them.
_ALIGNED = 64
_BYTES_MIN = 1 << 20
#: A slot above this size is made smaller if it is four times as large as its content.
_KEPT_BYTES_MAX = 32 << 20

Buffer = bytes | memoryview


class Slot:
    """One piece of shared memory. It belongs to the writer until it has told the reader, then to the reader until it answers.

    The file has no name, so it is gone with the last process that has it open.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """``descriptor``: of a slot that another process has made."""
        self.descriptor = _anonymous_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None

    def write(self, parts: Sequence[Buffer]) -> tuple[int, list[int]]:
        """Copy buffers into the slot. Return its capacity and the size of each part, for ``read``."""
        sizes = [len(part) for part in parts]
        self._make_room(max(1, sum(map(_padded, sizes))))
        assert self._map is not None
        at = 0
        for part, size in zip(parts, sizes, strict=True):
            self._map[at : at + size] = part
            at += _padded(size)
        return len(self._map), sizes

    def read(self, capacity: int, sizes: Sequence[int]) -> list[memoryview]:
        """Return the written bytes without a copy: they are valid until the writer is answered."""
        if not sizes:
            return []
        if self._map is None or len(self._map) != capacity:
            self._map_anew(capacity)
        assert self._map is not None
        view, parts, at = memoryview(self._map), [], 0
        for size in sizes:
            parts.append(view[at : at + size])
            at += _padded(size)
        return parts

    def close(self) -> None:
        """Give the memory back, as soon as parts of ``read`` that are still in use are gone."""
        self._unmap()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _make_room(self, needed: int) -> None:
        size = 0 if self._map is None else len(self._map)
        if needed > size or (size > _KEPT_BYTES_MAX and needed * 4 < size):
            capacity = max(_BYTES_MIN, 1 << max(0, needed - 1).bit_length())
            self._unmap()  # before the file is truncated: pages mapped behind its end must not be accessed
            os.ftruncate(self.descriptor, capacity)
            self._map_anew(capacity)

    def _map_anew(self, capacity: int) -> None:
        self._unmap()
        self._map = mmap.mmap(self.descriptor, capacity)

    def _unmap(self) -> None:
        if self._map is not None:
            with contextlib.suppress(BufferError):  # parts of it are in use: it is closed with the last of them
                self._map.close()
            self._map = None


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # macOS: a file without a name, mostly in the system's page cache
        return os.dup(file.fileno())
