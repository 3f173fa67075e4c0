"""Records of several lines: lines that a container runtime has divided into parts, and entries of the journal's export format."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from headrace_file.framing import NEWLINE, Framing, find_byte

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Stream of a part, and whether another part comes after it.
Part = tuple[bytes, bool]
_FIELD_NAME = re.compile(rb"[A-Z0-9_]{1,64}")


class PartFraming(Framing):
    """Lines, except that the parts of a divided line are one record, from the first to the last.

    Parts of stdout and of stderr may come mixed: the record ends where neither is open. A line that is no line of such a log ends
    the record before it. A record that would be longer than the limit ends at the last line that fits.

    A long record that grows is parsed once: its previous part is only compared, and not parsed again.
    """

    #: Records of at least so many bytes are remembered while their end is not there.
    _REMEMBERED_FROM = 1 << 14

    def __init__(self) -> None:
        #: The whole lines of a record whose end was not there, and the streams that are open behind them.
        self._waiting: tuple[bytes, frozenset[bytes]] | None = None

    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        newlines = find_byte(buffer, NEWLINE, begin)
        if not len(newlines):
            return newlines
        waiting = self._waiting
        known = waiting is not None and buffer.startswith(waiting[0], begin)
        if known and self._last_line(buffer, begin, newlines, 0, final=final, limit=limit) is None:
            return newlines[:0]
        ends = np.ones(len(newlines), dtype=np.bool_)
        next_line = 0
        for first in self._open_lines(buffer, begin, newlines):
            if first < next_line:
                continue
            last = self._last_line(buffer, begin, newlines, first, final=final, limit=limit)
            if last is None:
                return newlines[:first][ends[:first]]
            ends[first:last] = False
            next_line = last + 1
        return newlines[ends]

    def _last_line(
        self, buffer: bytes, begin: int, newlines: NDArray[np.int64], first: int, *, final: bool, limit: int
    ) -> int | None:
        """Return the number of the last line of the record that begins with line ``first``; None: it is not there yet."""
        start = int(newlines[first - 1]) + 1 if first else begin
        at, open_streams, begun = start, set(), first
        waiting = self._waiting
        if waiting is not None and buffer.startswith(waiting[0], start):
            at, open_streams = start + len(waiting[0]), set(waiting[1])
            begun = int(np.searchsorted(newlines, at))
        for number in range(begun, len(newlines)):
            end = int(newlines[number])
            part = self._part(buffer[at:end]) if end - start <= limit else None
            if part is None:
                return max(first, number - 1)
            stream, more = part
            if more:
                open_streams.add(stream)
            else:
                open_streams.discard(stream)
            if not open_streams:
                return number
            at = end + 1
        if final or len(buffer) - start > limit:
            return len(newlines) - 1
        if at - start >= self._REMEMBERED_FROM:
            self._waiting = buffer[start:at], frozenset(open_streams)
        return None

    @abstractmethod
    def _open_lines(self, buffer: bytes, begin: int, newlines: NDArray[np.int64]) -> Sequence[int]:
        """Return the numbers of the lines that are parts after which another comes, in order."""

    @abstractmethod
    def _part(self, line: bytes) -> Part | None:
        """Return the stream of a line, and whether it continues; None if it is not a line of such a log."""


class CriFraming(PartFraming):
    """Logs of Kubernetes: ``time stream P|F message``."""

    _OPEN = re.compile(rb"^[^ \n]{1,64} std(?:out|err) P(?=[: \r\n])", re.MULTILINE)
    _LINE = re.compile(rb"[^ ]{1,64} (stdout|stderr) ([PF])(?:[: \r]|\Z)")

    def _open_lines(self, buffer: bytes, begin: int, newlines: NDArray[np.int64]) -> Sequence[int]:
        if buffer.find(b" stdout P", begin) < 0 and buffer.find(b" stderr P", begin) < 0:
            return ()
        starts = np.array([found.start() for found in self._OPEN.finditer(buffer, begin)], dtype=np.int64)
        numbers: list[int] = np.searchsorted(newlines, starts).tolist()
        return [number for number in numbers if number < len(newlines)]

    def _part(self, line: bytes) -> Part | None:
        found = self._LINE.match(line)
        return None if found is None else (found[1], found[2] == b"P")


class _DockerLine(msgspec.Struct):
    log: str
    stream: str = ""


class DockerJsonFraming(PartFraming):
    """Logs of Docker's json-file driver: in the last part of a line, ``log`` ends with a newline."""

    #: A quote within a JSON text is never without a backslash, so this is the end of ``log``.
    _LAST = b'\\n","stream":"'
    _LAST_AFTER_BACKSLASH = b"\\" + _LAST
    _ENDS = re.compile(rb'(\\*)\\n","stream":"')

    def _open_lines(self, buffer: bytes, begin: int, newlines: NDArray[np.int64]) -> Sequence[int]:
        stop = int(newlines[-1])
        if buffer.count(self._LAST, begin, stop) == len(newlines) and not buffer.count(
            self._LAST_AFTER_BACKSLASH, begin, stop
        ):
            return ()
        # An even number of backslashes before: they are pairs, each of which means one backslash, and \n is a newline.
        found = [each.start() for each in self._ENDS.finditer(buffer, begin, stop) if len(each[1]) % 2 == 0]
        whole = np.searchsorted(newlines, np.array(found, dtype=np.int64))
        doubtful: list[int] = np.setdiff1d(np.arange(len(newlines)), whole).tolist()
        return [number for number in doubtful if self._is_open(buffer, begin, newlines, number)]

    def _is_open(self, buffer: bytes, begin: int, newlines: NDArray[np.int64], number: int) -> bool:
        start = int(newlines[number - 1]) + 1 if number else begin
        part = self._part(buffer[start : int(newlines[number])])
        return part is not None and part[1]

    def _part(self, line: bytes) -> Part | None:
        try:
            found = msgspec.json.decode(line, type=_DockerLine)
        except msgspec.DecodeError:
            return None
        return found.stream.encode(), not found.log.endswith("\n")


class JournalExportFraming(Framing):
    """Entries of ``journalctl -o export``: lines ``NAME=value``, and an empty line after the last.

    The value of a field whose line has no ``=`` follows it as eight bytes with its length, little-endian, and as many bytes as they say.
    """

    def ends(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        newlines = find_byte(buffer, NEWLINE, begin)
        if not len(newlines):
            return newlines
        starts = np.concatenate((np.array([begin], dtype=np.int64), newlines[:-1] + 1))
        equals = find_byte(buffer, ord("="), begin)
        empty = newlines == starts
        has_value = np.searchsorted(equals, starts) < np.searchsorted(equals, newlines)
        if (empty | has_value).all():
            found: NDArray[np.int64] = newlines[empty]
            if final and not empty[-1]:
                found = np.append(found, newlines[-1])
            borders = np.concatenate((np.array([begin - 1], dtype=np.int64), found))
            rest = len(buffer) - int(borders[-1]) - 1
            if rest <= limit and not np.any(np.diff(borders) - 1 > limit):
                return found
        return self._walk(buffer, begin, final=final, limit=limit)

    def _walk(self, buffer: bytes, begin: int, *, final: bool, limit: int) -> NDArray[np.int64]:
        """Find the ends entry by entry: where values have their length before them, and for entries that are broken or too long."""
        ends: list[int] = []
        at = begin
        while True:
            end, broken = _entry_end(buffer, at)
            if end is None and not broken and not final and len(buffer) - at <= limit:
                break
            if end is None or end - at > limit:
                end = buffer.find(b"\n", at)
                if end < 0:
                    break
            ends.append(end)
            at = end + 1
        return np.array(ends, dtype=np.int64)


def _entry_end(buffer: bytes, at: int) -> tuple[int | None, bool]:
    """Return where the empty line after an entry ends, None if it is not there; and whether a line or a length cannot be right."""
    while True:
        newline = buffer.find(b"\n", at)
        if newline < 0:
            return None, False
        if newline == at:
            return newline, False
        if buffer.find(b"=", at, newline) >= 0:
            at = newline + 1
            continue
        if not _FIELD_NAME.fullmatch(buffer, at, newline):
            return None, True
        value = newline + 9
        if value > len(buffer):
            return None, False
        at = value + int.from_bytes(buffer[newline + 1 : value], "little")
        if at >= len(buffer):
            return None, False
        if buffer[at] != NEWLINE:
            return None, True
        at += 1
