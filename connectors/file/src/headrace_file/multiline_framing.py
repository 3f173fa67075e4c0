"""Records of several lines of text, such as stack traces: which lines begin a record is said by a pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from headrace_file.framing import NEWLINE, Framing, find_byte

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MultilineFraming(Framing):
    """Joins lines. A line begins a record if ``first_line`` matches somewhere in it, or (``continuation``) if that does not match.

    The end of a record is known when the next one begins, so that the last record of a file waits for that, or for the end. A record
    also ends after ``lines_max`` lines, and at the last line that fits into the limit of its bytes; the next line begins a record then.
    """

    def __init__(self, *, first_line: str | None, continuation: str | None, lines_max: int) -> None:
        """Raises ValueError for an invalid pattern."""
        pattern = first_line if first_line is not None else continuation
        assert pattern is not None
        try:
            self._search = re.compile(pattern.encode()).search
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        self._begins_where_found = first_line is not None
        self._lines_max = lines_max

    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        newlines = find_byte(buffer, NEWLINE, begin)
        if not len(newlines):
            return newlines
        found: list[int] = []
        start, lines, previous = begin, 0, -1
        at = begin
        search, begins_where_found, lines_max = self._search, self._begins_where_found, self._lines_max
        for end in newlines.tolist():
            is_first = (search(buffer[at:end].removesuffix(b"\r")) is not None) is begins_where_found
            if lines and (is_first or lines >= lines_max or end - start > limit):
                found.append(previous)
                start, lines = at, 0
            lines += 1
            previous, at = end, end + 1
        # The text after the last newline belongs to the record if it is no longer than the limit: its continuation is not known yet.
        if final or len(buffer) - start > limit:
            found.append(previous)
        return np.array(found, dtype=np.int64)
