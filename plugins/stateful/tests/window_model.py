"""Windows in plain Python, row by row: what the operators must agree with. Slow, and as simple as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.messages import ChangeKind
from headrace.windows import Emit, Window

NEVER = -(2**63)
#: (key, number)
Item = tuple[Any, int | None]
#: (watermark, change kind, key, start, end, numbers in order, result): what an operator gives, aggregates left out.
Given = tuple[int | None, int, Any, int, int, tuple[int | None, ...], str]


@dataclass
class _Group:
    """The rows of a key in a window."""

    start: int
    end: int
    numbers: list[int | None] = field(default_factory=list)
    is_new: bool = False
    shown: tuple[int, int, tuple[int | None, ...], str] | None = None


class WindowModel:
    """Give it rows with ``row`` and read ``given`` and ``late``."""

    def __init__(self, window: Window, emit: Emit) -> None:
        self.window, self.emit = window, emit
        self.groups: dict[tuple[Any, int], _Group] = {}
        self.reached = NEVER
        self.given: list[Given] = []
        self.late: list[tuple[Any, int, int | None]] = []

    def windows_of(self, time: int) -> Sequence[tuple[int, int]]:
        size, every, offset = self.window.size_us, self.window.every_us, self.window.offset_us
        found = []
        if self.window.kind == "cumulative":
            start = (time - offset) // size * size + offset
            found = [(start, start + step) for step in range(every, size + 1, every)]
        else:
            start = (time - offset) // every * every + offset
            while start + size > time:
                found.append((start, start + size))
                start -= every
        return [(start, end) for start, end in found if start <= time < end]

    def row(self, key: Any, time: int, number: int | None, watermark: int) -> None:
        self.advance(watermark)
        taken = False
        for start, end in sorted(self.windows_of(time)):
            if end + self.emit.until_us <= self.reached:
                continue
            taken = True
            group = self.groups.setdefault((key, end), _Group(start, end))
            group.numbers.append(number)
            group.is_new = True
            if end > self.reached and self.emit.before_us == 0:
                self.show(key, group, watermark, "early")
            elif end <= self.reached and self.emit.after_us == 0:
                self.show(key, group, watermark, "update")
        if not taken:
            self.late.append((key, time, number))

    def advance(self, watermark: int) -> None:
        if watermark <= self.reached:
            return
        due = []
        for (key, _), group in self.groups.items():
            for instant, result in self.instants(group):
                if self.reached < instant <= watermark:
                    due.append((instant, result, key, group))
        for instant, result, key, group in sorted(due, key=lambda each: each[0]):
            if group.is_new or result == "final":
                self.show(key, group, instant - 1, result)
        self.reached = watermark
        last = watermark - self.emit.until_us
        self.groups = {place: group for place, group in self.groups.items() if group.end > last}

    def instants(self, group: _Group) -> list[tuple[int, str]]:
        emit, found = self.emit, [(group.end, "final")]
        if emit.before_us:
            found += [(time, "early") for time in range(group.start + emit.before_us, group.end, emit.before_us)]
        last = group.end + emit.until_us
        if emit.until_us:
            if emit.after_us:
                found += [(time, "update") for time in range(group.end + emit.after_us, last, emit.after_us)]
            found.append((last, "update"))
        return found

    def finish(self) -> None:
        """Close everything, as at the end of the input: no early results any more."""
        for group in self.groups.values():
            group.is_new = group.is_new and group.end <= self.reached
        if self.groups:
            self.advance(max(group.end for group in self.groups.values()) + self.emit.until_us)

    def show(self, key: Any, group: _Group, watermark: int, result: str) -> None:
        at = None if watermark == NEVER else watermark
        group.is_new = False
        kind = ChangeKind.INSERT
        if group.shown is not None:
            self.given.append((at, ChangeKind.UPDATE_BEFORE, key, *group.shown))
            kind = ChangeKind.UPDATE_AFTER
        group.shown = (group.start, group.end, tuple(group.numbers), result)
        self.given.append((at, kind, key, *group.shown))


@dataclass
class _Session:
    start: int
    end: int
    #: (place in the order of arrival, number)
    rows: list[tuple[int, int | None]]


class SessionModel:
    """Session windows with final results only."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self.open: dict[Any, list[_Session]] = {}
        self.reached = NEVER
        self.given: list[Given] = []
        self.late: list[tuple[Any, int, int | None]] = []
        self.count = 0

    def row(self, key: Any, time: int, number: int | None, watermark: int) -> None:
        self.advance(watermark)
        self.count += 1
        found = self.open.setdefault(key, [])
        touched = [each for each in found if time < each.end and each.start < time + self.gap]
        start = min([time, *(each.start for each in touched)])
        end = max([time + self.gap, *(each.end for each in touched)])
        if end <= self.reached:
            self.late.append((key, time, number))
            return
        rows = sorted([(self.count, number), *(row for each in touched for row in each.rows)], key=lambda row: row[0])
        self.open[key] = [*(each for each in found if each not in touched), _Session(start, end, rows)]

    def advance(self, watermark: int) -> None:
        self.reached = max(self.reached, watermark)
        for key, found in self.open.items():
            for each in found:
                if each.end <= self.reached:
                    numbers = tuple(number for _, number in each.rows)
                    self.given.append((each.end - 1, ChangeKind.INSERT, key, each.start, each.end, numbers, "final"))
            self.open[key] = [each for each in found if each.end > self.reached]

    def finish(self) -> None:
        ends = [each.end for found in self.open.values() for each in found]
        self.advance(max(ends, default=NEVER))
