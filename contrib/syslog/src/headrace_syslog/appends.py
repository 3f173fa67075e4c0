"""Splits messages into parts that the buffer can append at once."""

from __future__ import annotations

from collections.abc import Iterator

import headrace as hr
import numpy as np

#: Bytes that a message needs in the buffer beside its body, including its headers if no other message shares them.
OVERHEAD_BYTES = 192
#: Bytes that a block needs.
SPARE_BYTES = 4 * 1024


def parts_of(bodies: hr.Bodies, append_max_bytes: int) -> Iterator[hr.Bodies]:
    """Yield the bodies in order, in parts of at most so many bytes, including what a message needs beside its body."""
    count = len(bodies)
    sizes = bodies.ends - bodies.starts + OVERHEAD_BYTES
    room = append_max_bytes - SPARE_BYTES
    if int(sizes.sum()) <= room:
        if count:
            yield bodies
        return
    behind = np.cumsum(sizes)
    first = 0
    while first < count:
        before = int(behind[first - 1]) if first else 0
        end = max(int(np.searchsorted(behind, before + room, side="right")), first + 1)
        rows = slice(first, end)
        yield hr.Bodies(
            bodies.buffer, bodies.starts[rows], bodies.ends[rows], newline_separated=bodies.newline_separated
        )
        first = end
