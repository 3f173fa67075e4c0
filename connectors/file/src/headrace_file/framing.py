"""Where records end in a run of bytes, found by column operations.

Both framings are functions of the bytes from the start of a record on, so that it does not matter how a file is cut
into reads: a record that is complete in one read is the same record in any longer read.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from headrace.interfaces.accelerators import accelerated

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEWLINE = 10
CARRIAGE_RETURN = 13
#: Bytes compared at once: the intermediate results stay in the processor's cache.
_BLOCK = 128 * 1024


def find_byte(buffer: bytes, byte: int, begin: int = 0) -> NDArray[np.int64]:
    """Return the positions of ``byte`` in ``buffer`` from ``begin`` on, in order."""
    return _fastest_search()(buffer, byte, begin)


@functools.cache
def _fastest_search() -> Callable[[bytes, int, int], NDArray[np.int64]]:
    return accelerated("find_byte", find_byte_by_columns)


def find_byte_by_columns(buffer: bytes, byte: int, begin: int) -> NDArray[np.int64]:
    """Do what ``find_byte`` does, with numpy."""
    array = np.frombuffer(buffer, dtype=np.uint8)
    found = []
    for at in range(begin, len(array), _BLOCK):
        places = np.flatnonzero(array[at : at + _BLOCK] == byte)
        if len(places):
            places += at
            found.append(places)
    if not found:
        return np.empty(0, dtype=np.int64)
    return found[0] if len(found) == 1 else np.concatenate(found)


def count_byte(buffer: bytes, byte: int, begin: int, end: int) -> int:
    """Return how often ``byte`` is in ``buffer[begin:end]``."""
    return _fastest_count()(buffer, byte, begin, end)


@functools.cache
def _fastest_count() -> Callable[[bytes, int, int, int], int]:
    return accelerated("count_byte", count_byte_by_columns)


def count_byte_by_columns(buffer: bytes, byte: int, begin: int, end: int) -> int:
    """Do what ``count_byte`` does, with numpy."""
    array = np.frombuffer(buffer, dtype=np.uint8)[begin:end]
    found, count = np.empty(min(_BLOCK, len(array)), dtype=np.bool_), 0
    for at in range(0, len(array), _BLOCK):
        block = array[at : at + _BLOCK]
        count += int(np.count_nonzero(np.equal(block, byte, out=found[: len(block)])))
    return count


class Framing(ABC):
    """Finds the ends of records."""

    #: Whether each newline ends a record, so that they can be counted without being looked at.
    counts_newlines = False

    @abstractmethod
    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        """Return the positions of the newlines that end the records of ``buffer[begin:]``, which starts a record.

        ``final`` says that no byte follows the buffer. Records longer than ``limit`` bytes are not held together
        beyond it: they end at one of their lines. What comes after the last end is an incomplete record.
        """


class NewlineFraming(Framing):
    """Each line is a record."""

    counts_newlines = True

    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        first = buffer.find(b"\n", begin)
        if first == len(buffer) - 1 and first >= 0:  # one record, as often when records come one by one
            return np.array([first], dtype=np.int64)
        return find_byte(buffer, NEWLINE, begin)


class CsvFraming(Framing):
    """Lines, except that newlines inside quoted fields belong to the record (RFC 4180).

    A quote opens a field only as its first character, and closes it only before a delimiter or the end of the line;
    a quote inside is doubled. A record that breaks these rules, or whose quotes never close, ends at its first newline,
    so that one broken line does not take its neighbours along.
    """

    def __init__(self, delimiter: str = ",", quote: str = '"') -> None:
        self._delimiter = ord(delimiter)
        self._quote = ord(quote)
        d, q = re.escape(delimiter), re.escape(quote)
        plain = f"(?!{q})[^{d}\\n]*+"
        opened = f"{q}(?:[^{q}]++|{q}{q})*+"
        field = f"(?:{opened}{q}(?={d}|\\r?\\n)|{plain})"
        self._record = re.compile(f"{field}(?:{d}{field})*+\\r?\\n".encode("latin-1"))
        self._incomplete = re.compile(f"(?:{field}{d})*+(?:{opened}(?:{q}\\r?)?|{plain})\\Z".encode("latin-1"))

    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        newlines = find_byte(buffer, NEWLINE, begin)
        if not len(newlines):
            return newlines
        quotes = find_byte(buffer, self._quote, begin)
        if not len(quotes):
            return newlines
        if self._regular(buffer, begin, quotes):
            # Outside of quotes there has been an even number of quotes.
            ends: NDArray[np.int64] = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
            starts = np.concatenate(([begin], ends[:-1] + 1)) if len(ends) else ends
            incomplete = int(ends[-1]) + 1 if len(ends) else begin
            overlong = len(buffer) - incomplete > limit or bool(np.any(ends - starts > limit))
            if not overlong and not (final and newlines[-1] >= incomplete):
                return ends
        return self._walk(buffer, begin, newlines, final=final, limit=limit)

    def _regular(self, buffer: bytes, begin: int, quotes: NDArray[np.int64]) -> bool:
        """Return whether each quote stands where the rules allow it, so that counting quotes is enough."""
        array = np.frombuffer(buffer, dtype=np.uint8)
        adjacent = np.diff(quotes) == 1
        opening, closing = quotes[0::2], quotes[1::2]
        before = array[np.maximum(opening - 1, begin)]
        doubled_before = np.concatenate(([False], adjacent))[0::2]
        opens_well = (before == self._delimiter) | (before == NEWLINE) | (opening == begin) | doubled_before
        if not opens_well.all():
            return False
        size = len(array)
        after = array[np.minimum(closing + 1, size - 1)]
        after_return = array[np.minimum(closing + 2, size - 1)]
        doubled_after = np.concatenate((adjacent, [False]))[1::2]
        ends_line = (after == NEWLINE) | (
            (after == CARRIAGE_RETURN) & ((after_return == NEWLINE) | (closing + 2 >= size))
        )
        closes_well = (after == self._delimiter) | ends_line | doubled_after | (closing + 1 >= size)
        return bool(closes_well.all())

    def _walk(
        self, buffer: bytes, begin: int, newlines: NDArray[np.int64], *, final: bool, limit: int
    ) -> NDArray[np.int64]:
        """Find the ends record by record: for buffers with broken or overlong records only."""
        ends: list[int] = []
        at = begin
        while True:
            found = self._record.match(buffer, at)
            if found is not None and found.end() - 1 - at <= limit:
                end = found.end() - 1
            else:
                unfinished = found is None and self._incomplete.match(buffer, at) is not None
                if unfinished and not final and len(buffer) - at <= limit:
                    break
                place = int(np.searchsorted(newlines, at))
                if place == len(newlines):
                    break
                end = int(newlines[place])
            ends.append(end)
            at = end + 1
        return np.array(ends, dtype=np.int64)
