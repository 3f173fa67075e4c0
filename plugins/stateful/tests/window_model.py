"""Windows in plain Python, row by row: what the operators must agree with. Slow, and as simple as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.flow.messages import ChangeKind
from headrace.interfaces.windows import Emit, Window

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


@dataclass(eq=False)
class _Session:
    key: Any
    start: int
    end: int
    #: (place in the order of arrival, number)
    rows: list[tuple[int, int | None]]
    is_new: bool = True
    shown: list[tuple[int, int, tuple[int | None, ...], str]] = field(default_factory=list)


class SessionModel:
    """Session windows. Time goes on step by step, from one instant at which something is due to the next."""

    def __init__(self, gap: int, emit: Emit) -> None:
        self.gap, self.emit = gap, emit
        self.open: list[_Session] = []
        self.reached = NEVER
        self.given: list[Given] = []
        self.late: list[tuple[Any, int, int | None]] = []
        self.count = 0

    def row(self, key: Any, time: int, number: int | None, watermark: int) -> None:
        self.advance(watermark)
        self.count += 1
        touched = [each for each in self.open if each.key == key and time <= each.end and each.start <= time + self.gap]
        start = min([time, *(each.start for each in touched)])
        end = max([time + self.gap, *(each.end for each in touched)])
        if end + self.emit.until_us <= self.reached:
            self.late.append((key, time, number))
            return
        rows = sorted([(self.count, number), *(row for each in touched for row in each.rows)], key=lambda row: row[0])
        joined = _Session(key, start, end, rows, shown=[old for each in touched for old in each.shown])
        self.open = [*(each for each in self.open if each not in touched), joined]
        if end > self.reached and self.emit.before_us == 0:
            self.show(joined, watermark, "early")
        elif end <= self.reached and self.emit.after_us == 0:
            self.show(joined, watermark, "update")

    def advance(self, watermark: int) -> None:
        if watermark <= self.reached:
            return
        least = min((each.start for each in self.open), default=watermark)
        for time in range(max(self.reached + 1, least), watermark + 1):
            for each in list(self.open):
                self.step(each, time)
        self.reached = watermark

    def step(self, each: _Session, time: int) -> None:
        before, after, until = self.emit.before_us, self.emit.after_us, self.emit.until_us
        if time == each.end:
            self.show(each, time - 1, "final")
        elif each.is_new and each.start < time < each.end and before and time % before == 0:
            self.show(each, time - 1, "early")
        elif each.is_new and time > each.end and after and (time - each.end) % after == 0:
            self.show(each, time - 1, "update")
        if time >= each.end + until:
            if each.is_new:
                self.show(each, time - 1, "update")
            self.open.remove(each)

    def finish(self) -> None:
        for each in self.open:
            each.is_new = each.is_new and each.end <= self.reached
        self.advance(max((each.end for each in self.open), default=NEVER) + self.emit.until_us)

    def show(self, each: _Session, watermark: int, result: str) -> None:
        at = None if watermark == NEVER else watermark
        made = (each.start, each.end, tuple(number for _, number in each.rows), result)
        kind = ChangeKind.INSERT
        for old in each.shown:
            same = old[:2] == made[:2]
            kind = ChangeKind.UPDATE_AFTER if same else kind
            self.given.append((at, ChangeKind.UPDATE_BEFORE if same else ChangeKind.DELETE, each.key, *old))
        self.given.append((at, kind, each.key, *made))
        each.shown, each.is_new = [made], False
