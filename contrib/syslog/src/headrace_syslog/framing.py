"""Splits the bytes of a connection into messages (RFC 6587): octet counting, or a newline after each message."""

from __future__ import annotations

import headrace as hr
import numpy as np

_NEWLINE, _RETURN = 0x0A, 0x0D
_COUNT_DIGITS_MAX = 10
_NOTHING = np.zeros(0, dtype=np.int64)
_NO_BODIES = hr.Bodies(b"", _NOTHING, _NOTHING)


class FramingError(Exception):
    """The bytes do not begin with a valid frame, so the begin of the next message is unknown. ``whole``: the messages
    before it.
    """

    def __init__(self, text: str, whole: hr.Bodies) -> None:
        super().__init__(text)
        self.whole = whole


class Framer:
    """Splits the bytes of one connection. The first byte of a frame decides: a digit begins an octet count, any other
    byte begins a line.
    """

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self._rest = b""
        self._counted: bool | None = None
        #: How many bytes of a message that is too long are still to be skipped.
        self._skipped_bytes = 0
        self._skips_line = False
        #: How many messages were dropped because they are too long.
        self.too_long = 0

    def feed(self, data: bytes) -> hr.Bodies:
        """Return the messages that are complete now. Raises FramingError."""
        if self._rest:
            data = self._rest + data
        if self._counted is None and data:
            self._counted = data[:1].isdigit()
        return self._frames(data) if self._counted else self._lines(data)

    def end(self) -> tuple[hr.Bodies, bool]:
        """Called when the connection has ended. Return the last line if it has no newline, and whether a counted
        message is incomplete.
        """
        rest, self._rest = self._rest, b""
        if self._counted or self._skips_line:
            return _NO_BODIES, bool(rest.strip()) or self._skipped_bytes > 0
        return (hr.Bodies.of([rest]) if rest.strip(b"\r") else _NO_BODIES), False

    def _lines(self, data: bytes) -> hr.Bodies:
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], data[end:]
        found = self._of_whole(whole) if whole else _NO_BODIES
        if self._skips_line:
            self._rest = b""
        elif len(self._rest) > self._message_bytes:
            self._rest, self._skips_line = b"", True
            self.too_long += 1
        return found

    def _of_whole(self, whole: bytes) -> hr.Bodies:
        values = np.frombuffer(whole, dtype=np.uint8)
        ends = np.flatnonzero(values == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        blank = (lengths == 0) | ((lengths == 1) & (values[starts] == _RETURN))
        long = lengths > self._message_bytes
        if self._skips_line:
            blank[0], long[0] = True, False
            self._skips_line = False
        self.too_long += int(long.sum())
        left_out = blank | long
        bodies = hr.Bodies(whole, starts, ends, newline_separated=True)
        return bodies.take(np.flatnonzero(~left_out)) if left_out.any() else bodies

    def _frames(self, data: bytes) -> hr.Bodies:
        place, size = 0, len(data)
        starts: list[int] = []
        ends: list[int] = []
        while True:
            if self._skipped_bytes:
                skipped = min(self._skipped_bytes, size - place)
                place += skipped
                self._skipped_bytes -= skipped
            blank = data.find(b" ", place, place + _COUNT_DIGITS_MAX + 1)
            if blank < 0:
                begin = data[place : place + _COUNT_DIGITS_MAX + 1].lstrip(b"\n")
                if len(begin) > _COUNT_DIGITS_MAX or (begin and not begin.isdigit()):
                    raise FramingError(f"{begin!r} is not an octet count", _bodies(data, starts, ends))
                break
            # Some senders put a newline behind a counted message.
            count = data[place:blank].lstrip(b"\n")
            if not count.isdigit():
                raise FramingError(f"{count!r} is not an octet count", _bodies(data, starts, ends))
            begins, length = blank + 1, int(count)
            if length > self._message_bytes:
                self.too_long += 1
                self._skipped_bytes = length
                place = begins
                continue
            if begins + length > size:
                break
            place = begins + length
            if length:
                starts.append(begins)
                ends.append(place)
        self._rest = data[place:]
        return _bodies(data, starts, ends)


def _bodies(data: bytes, starts: list[int], ends: list[int]) -> hr.Bodies:
    return hr.Bodies(data, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
