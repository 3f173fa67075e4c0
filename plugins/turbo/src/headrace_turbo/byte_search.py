"""Where a byte is in a buffer, and how often: what ``headrace_accelerators`` offers as ``find_byte`` and ``count_byte``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from headrace_turbo.library import library

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Room for the places is made for one byte in so many at first, and for four times as many whenever it is full.
_BYTES_PER_PLACE = 64
_PLACES_MIN = 1024


def faster_find_byte() -> Callable[[bytes, int, int], NDArray[np.int64]] | None:
    """Return the search of the kernel; None where there is no kernel."""
    kernel = library()
    if kernel is None:
        return None
    search = kernel.headrace_turbo_find_byte

    def find_byte(buffer: bytes, byte: int, begin: int = 0) -> NDArray[np.int64]:
        found: list[NDArray[np.int64]] = []
        size = len(buffer)
        room = max(_PLACES_MIN, (size - begin) // _BYTES_PER_PLACE)
        while begin < size:
            places = np.empty(room, dtype=np.int64)
            count = search(ctypes.c_char_p(buffer), size, byte, begin, places.ctypes.data, room)
            found.append(places[:count])
            if count < room:
                break
            begin, room = int(places[-1]) + 1, min(4 * room, size - begin)
        if not found:
            return np.empty(0, dtype=np.int64)
        return found[0] if len(found) == 1 else np.concatenate(found)

    return find_byte


def faster_count_byte() -> Callable[[bytes, int, int, int], int] | None:
    """Return the count of the kernel; None where there is no kernel."""
    kernel = library()
    if kernel is None:
        return None
    count = kernel.headrace_turbo_count_byte

    def count_byte(buffer: bytes, byte: int, begin: int, end: int) -> int:
        begin, end, _ = slice(begin, end).indices(len(buffer))
        return int(count(ctypes.c_char_p(buffer), byte, begin, end)) if begin < end else 0

    return count_byte
