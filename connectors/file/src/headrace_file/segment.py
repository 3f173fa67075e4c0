"""Consecutive records of one queue as they come from a file, in one buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from headrace.flow.messages import Bodies

from headrace_file.framing import CARRIAGE_RETURN

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOM = b"\xef\xbb\xbf"
#: Ends the body of a record that was cut. The first byte is never part of UTF-8 text, nor of JSON.
CUT_MARK = b"\xff[cut: the record has %d bytes, the limit is %d]"


@dataclass(frozen=True, slots=True)
class Segment:
    """``count`` records were passed; ``bodies`` and their ``offsets`` leave out blank ones. Empty when not asked for."""

    count: int
    bodies: Bodies
    offsets: NDArray[np.int64]


def empty_segment(count: int) -> Segment:
    """Return a segment of ``count`` records of which no body is wanted."""
    nothing = np.empty(0, dtype=np.int64)
    return Segment(count, Bodies(b"", nothing, nothing, newline_separated=True), nothing)


def make_segment(
    buffer: bytes,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first_offset: int,
    *,
    keep_blank: bool,
    build: bool,
) -> Segment:
    """Make a segment of the records ``buffer[starts[i]:ends[i]]``, between which there is one newline each.

    Carriage returns before the newlines are left out; blank records too, unless ``keep_blank``. Where nothing is to be
    left out, the bodies lie in ``buffer`` itself.
    """
    count = len(ends)
    if not build or not count:
        return empty_segment(count)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    has_returns = buffer.find(b"\r", int(starts[0]), int(ends[-1])) >= 0
    if not has_returns and (keep_blank or not (ends == starts).any()):  # as nearly always
        return Segment(count, Bodies(buffer, starts, ends, newline_separated=True), offsets)
    array = np.frombuffer(buffer, dtype=np.uint8)
    returns = (ends > starts) & (array[np.maximum(ends - 1, 0)] == CARRIAGE_RETURN)
    blank = np.zeros(count, dtype=bool) if keep_blank else ends - returns == starts
    if not returns.any() and not blank.any():
        return Segment(count, Bodies(buffer, starts, ends, newline_separated=True), offsets)
    if blank.all():
        return empty_segment(count)
    begin, end = int(starts[0]), int(ends[-1])
    kept = np.ones(end - begin, dtype=bool)
    kept[ends[returns] - 1 - begin] = False
    # The newline of a blank record is left out with it; that of the last record is not part of the segment.
    newlines = ends[blank] - begin
    kept[newlines[newlines < end - begin]] = False
    # Bytes left out before each record: its own carriage return comes after it.
    removed = np.cumsum(returns.astype(np.int64) + blank)
    before = np.concatenate(([0], removed[:-1]))
    new_starts, new_ends = starts - begin - before, ends - returns - begin - before
    packed = array[begin:end][kept].tobytes()
    there = ~blank
    bodies = Bodies(packed, new_starts[there], new_ends[there], newline_separated=True)
    return Segment(count, bodies, offsets[there])


def cut_segment(body: bytes, offset: int, length: int) -> Segment:
    """Make a segment of one record of ``length`` bytes of which only the begin is kept."""
    marked = body + CUT_MARK % (length, len(body))
    return Segment(1, Bodies.of([marked]), np.array([offset], dtype=np.int64))
