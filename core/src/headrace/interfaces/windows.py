"""The functions that describe windows: ``hr.tumbling``, ``hr.sliding``, ``hr.session``, ``hr.cumulative`` and
``hr.emit``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import parse_duration

Duration = str | timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """How rows are assigned to windows. The functions of this module make it; lengths are in microseconds.

    Windows are aligned to the Unix epoch plus ``offset_us``, and are [start, end). ``on`` names the event-time column;
    None: processing time. A tumbling window has ``every_us == size_us``. ``kind`` "cumulative": windows with the same
    start grow by ``every_us`` up to ``size_us``. "session": a window ends ``size_us`` after the last of its rows.
    """

    kind: Literal["tumbling", "sliding", "session", "cumulative"]
    size_us: int
    every_us: int
    on: str | None
    offset_us: int = 0

    def __str__(self) -> str:
        lengths = f"{timedelta(microseconds=self.size_us)}"
        if self.kind in ("sliding", "cumulative"):
            lengths += f" every {timedelta(microseconds=self.every_us)}"
        return f"{self.kind} {lengths} on {self.on or 'processing time'}"


@dataclass(frozen=True, slots=True)
class Emit:
    """When a window gives results before and after the final one at its end. ``emit`` makes it; lengths are in
    microseconds.

    ``before_us``: the interval of results while the window is open (0: at every change). ``after_us``: the same for
    rows after the window's end. ``until_us``: how long after its end a window accepts rows: the allowed lateness.
    """

    before_us: int | None = None
    after_us: int | None = None
    until_us: int = 0


def tumbling(size: Duration, *, on: str | None = None, offset: Duration = "0 s") -> Window:
    """Return windows of one size that follow each other, for ``window(…)``. A row belongs to exactly one of them.

    ``size`` is a text such as ``"10 s"`` or a timedelta. ``on``: the event-time column; without it windows use
    processing time. ``offset`` moves the beginnings, which are whole multiples of ``size`` since 1970 in UTC. Raises
    OptionError for a length that is no duration, or not more than 0.
    """
    length = _microseconds(size, "size")
    return Window("tumbling", length, length, on, _microseconds(offset, "offset", positive=False))


def sliding(size: Duration, every: Duration, *, on: str | None = None, offset: Duration = "0 s") -> Window:
    """Return windows of one size of which one begins every ``every`` (hop windows). A row belongs to all windows that
    contain its time.

    For ``on``, ``offset`` and errors see ``tumbling``. Raises OptionError when ``every`` is longer than ``size``.
    """
    length, step = _microseconds(size, "size"), _microseconds(every, "every")
    if step > length:
        raise OptionError(
            "the step must not be longer than the size: rows between two windows would be lost", option="every"
        )
    return Window("sliding", length, step, on, _microseconds(offset, "offset", positive=False))


def session(gap: Duration, *, on: str | None = None) -> Window:
    """Return windows of activity: a window ends when its key had no row for ``gap``.

    A row exactly ``gap`` after the last one belongs to the same window. A row between two windows merges them. For
    ``on`` and errors see ``tumbling``.
    """
    length = _microseconds(gap, "gap")
    return Window("session", length, length, on)


def cumulative(size: Duration, every: Duration, *, on: str | None = None, offset: Duration = "0 s") -> Window:
    """Return windows that begin every ``size`` and grow by ``every``: the first hour of a day, the first two hours, …,
    the day.

    For ``on``, ``offset`` and errors see ``tumbling``. Raises OptionError when ``size`` is no multiple of ``every``.
    """
    length, step = _microseconds(size, "size"), _microseconds(every, "every")
    if length % step:
        raise OptionError("the size must be a multiple of the step", option="every")
    return Window("cumulative", length, step, on, _microseconds(offset, "offset", positive=False))


def emit(*, before: Duration | None = None, after: Duration | None = None, until: Duration | None = None) -> Emit:
    """Ask for results of a window before and after its final result.

    ``before``: while the window is open, each ``before`` of event time after its start (for sessions: each whole
    multiple since 1970) gives a result for every key with new rows; "0 s": each row gives one. ``until``: how long
    after its end the window accepts rows (default: not at all). ``after`` (needs ``until``): after the window's end,
    each ``after`` of event time gives an update for every key with new rows, and so does the end of ``until``; "0 s":
    each row gives one. Without ``after`` there is one update, at the end of ``until``. Raises OptionError for ``after``
    without ``until``, and for negative lengths.
    """
    if after is not None and until is None:
        raise OptionError(
            "updates after the end of a window need 'until', which says how long a window is kept", option="after"
        )
    return Emit(
        None if before is None else _microseconds(before, "before", positive=False),
        None if after is None else _microseconds(after, "after", positive=False),
        0 if until is None else _microseconds(until, "until", positive=False),
    )


def microseconds(value: Duration, option: str) -> int:
    """Return a length of time of any sign: ``"-5 min"``, a timedelta. Raises OptionError."""
    if isinstance(value, str) and value.strip().startswith("-"):
        return -microseconds(value.strip()[1:], option)
    try:
        return parse_duration(value) // timedelta(microseconds=1)
    except ValueError as error:
        raise OptionError(str(error), option=option) from error


def _microseconds(value: Duration, option: str, *, positive: bool = True) -> int:
    found = microseconds(value, option)
    if found < 0 or (positive and found == 0):
        least = "more than 0" if positive else "0 or more"
        raise OptionError(f"unusable value {value!r}: it must be {least}", option=option)
    return found
