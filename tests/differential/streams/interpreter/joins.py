"""Joins: every row is compared with every row of the other side that is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.differential.streams.interpreter.machine import MICROSECOND, Timed
from tests.differential.streams.interpreter.values import is_true, key_of
from tests.differential.streams.interpreter.windows import windows_of
from tests.differential.streams.plan import IntervalJoin, Join, Row, TemporalJoin, WindowJoin


def pair_of(node: Join, left: Row | None, right: Row | None) -> Row:
    """Return two rows side by side; None: NULL in all columns of that side."""
    made = {name: None if left is None else left[name] for name in node.left.columns}
    if node.how in ("semi", "anti"):
        return made
    return made | {new: None if right is None else right[old] for old, new in node.renamed.items()}


def belong_together(node: Join, left: Row, right: Row) -> bool:
    """Whether the keys of two rows are equal and not NULL, and the condition holds for them."""
    for one, other in node.pairs:
        if left[one] is None or left[one] != right[other]:
            return False
    both = {**left, **{new: right[old] for old, new in node.renamed.items()}}
    return is_true(node.where, both)


def keeps(node: Join, side: int) -> bool:
    """Whether rows of a side come out when they have no partner."""
    return node.how == "full" or node.how == ("left", "right")[side] or (node.how == "anti" and side == 0)


@dataclass(eq=False)
class Kept:
    """A row that is remembered: until when (the last watermark at which it can still be met), and whether it has met one."""

    row: Row
    until: datetime
    matched: bool = False


class IntervalJoined(Timed):
    """Joins within a time bound."""

    node: IntervalJoin

    def __init__(self, node: IntervalJoin) -> None:
        super().__init__(node)
        self.lag = max(node.high, -node.low, type(node.low)())
        self._kept: tuple[list[Kept], list[Kept]] = ([], [])
        #: Rows that time has left behind. With several shards time is that of the slowest: there they may still be met.
        self._forgotten: tuple[list[Kept], list[Kept]] = ([], [])

    def time_columns(self, side: int) -> Sequence[str]:
        return (self.node.time[side],)

    joined_by = time_columns

    def on_row(self, side: int, row: Row) -> None:
        node = self.node
        time = row[node.time[side]]
        new = Kept(row, datetime.max)
        alone = time is None or None in key_of(row, [pair[side] for pair in node.pairs])
        if not alone:
            new.until = time + (-node.low if side else node.high)
            for old in self._kept[1 - side]:
                left, right = (old, new) if side else (new, old)
                if self._meet(left, right):
                    self._met(side, left, right)
            forgotten = self._forgotten[1 - side]
            self.behind |= self.behind_others and any(
                self._meet(*((old, new) if side else (new, old))) for old in forgotten
            )
        missed = alone or (self.now is not None and new.until < self.now)
        self.behind |= missed and not alone and self.behind_others
        if not missed:
            self._kept[side].append(new)
        elif not new.matched and keeps(node, side):
            self._give_alone(side, row, self.now)

    def _meet(self, left: Kept, right: Kept) -> bool:
        apart = right.row[self.node.time[1]] - left.row[self.node.time[0]]
        return self.node.low <= apart <= self.node.high and belong_together(self.node, left.row, right.row)

    def _met(self, side: int, left: Kept, right: Kept) -> None:
        if self.node.how not in ("semi", "anti") or (self.node.how == "semi" and not left.matched):
            self.give(pair_of(self.node, left.row, right.row), self.now)
        left.matched = right.matched = True

    def _give_alone(self, side: int, row: Row, before: datetime | None) -> None:
        self.give(pair_of(self.node, None, row) if side else pair_of(self.node, row, None), before)

    def on_time(self, now: datetime) -> None:
        due = [(kept, side) for side in range(2) for kept in self._kept[side] if kept.until < now]
        for kept, side in sorted(due, key=lambda each: each[0].until):
            self._kept[side].remove(kept)
            self._forgotten[side].append(kept)
            if not kept.matched and keeps(self.node, side):
                self._give_alone(side, kept.row, kept.until)

    def close(self) -> None:
        waiting = [kept.until for each in self._kept for kept in each]
        if waiting:
            self.on_time(max(waiting) + MICROSECOND)


class WindowJoined(Timed):
    """Joins of the rows of one window, when it closes."""

    node: WindowJoin

    def __init__(self, node: WindowJoin) -> None:
        super().__init__(node)
        #: (start, end, row) per side.
        self._rows: tuple[list[Any], list[Any]] = ([], [])

    def time_columns(self, side: int) -> Sequence[str]:
        return (self.node.time[side],)

    def on_row(self, side: int, row: Row) -> None:
        time = row[self.node.time[side]]
        if time is None:
            self.dead.append(row)
            return
        windows = windows_of(self.node.window, time)
        in_time = [window for window in windows if not self.passed(window[1])]
        for start, end in in_time:
            self._rows[side].append((start, end, row))
        if not in_time:
            made = pair_of(self.node, None, row) if side else pair_of(self.node, row, None)
            start, end = windows[-1]
            if not (side and self.node.how in ("semi", "anti")):
                self.too_late({**made, "window_start": start, "window_end": end})

    def on_time(self, now: datetime) -> None:
        bounds = {(start, end) for each in self._rows for start, end, _ in each if end <= now}
        for start, end in sorted(bounds, key=lambda each: each[::-1]):
            left, right = ([row for s, e, row in each if (s, e) == (start, end)] for each in self._rows)
            for each in self._rows:
                each[:] = [entry for entry in each if entry[:2] != (start, end)]
            for row in joined(self.node, left, right):
                self.give({**row, "window_start": start, "window_end": end}, end - MICROSECOND)

    def close(self) -> None:
        ends = [end for each in self._rows for _, end, _ in each]
        if ends:
            self.on_time(max(ends))


def joined(node: Join, left: list[Row], right: list[Row]) -> list[Row]:
    """Return what a join of two bounded lists gives."""
    given = []
    met: set[int] = set()
    for row in left:
        partners = [at for at, other in enumerate(right) if belong_together(node, row, other)]
        met.update(partners)
        if node.how == "semi" and partners:
            given.append(pair_of(node, row, None))
        elif node.how not in ("semi", "anti"):
            given += [pair_of(node, row, right[at]) for at in partners]
        if not partners and keeps(node, 0):
            given.append(pair_of(node, row, None))
    if keeps(node, 1):
        given += [pair_of(node, None, other) for at, other in enumerate(right) if at not in met]
    return given


class TemporalJoined(Timed):
    """Left rows wait until time has come to theirs; each gets the newest version of its key that is not after it.

    ``flink``: as PyFlink does, where rows are versions only if no newer one of their key came before them, and NULL joins NULL.
    """

    node: TemporalJoin

    def __init__(self, node: TemporalJoin, *, flink: bool = False) -> None:
        super().__init__(node)
        self._flink = flink
        self._waiting: list[Row] = []
        self._versions: list[Row] = []

    def time_columns(self, side: int) -> Sequence[str]:
        return (self.node.time[side],)

    joined_by = time_columns

    def on_row(self, side: int, row: Row) -> None:
        if row[self.node.time[side]] is None:
            self.dead.append(row)
            return
        if side and self._flink and any(self._is_newer(version, row) for version in self._versions):
            return
        (self._versions if side else self._waiting).append(row)

    def _is_newer(self, version: Row, row: Row) -> bool:
        time = self.node.time[1]
        return version[time] > row[time] and all(version[other] == row[other] for _, other in self.node.pairs)

    def on_time(self, now: datetime) -> None:
        # Flink's watermark is behind ours: rows of its time are due, ours come before it.
        left_time, right_time = self.node.time
        due = sorted((row for row in self._waiting if row[left_time] < now), key=lambda row: row[left_time])
        self._waiting = [row for row in self._waiting if row[left_time] >= now]
        for row in due:
            found = None
            for version in self._versions:
                same = all(row[one] == version[other] for one, other in self.node.pairs)
                known = self._flink or all(row[one] is not None for one, _ in self.node.pairs)
                valid = same and known and version[right_time] <= row[left_time]
                if valid and (found is None or version[right_time] >= found[right_time]):
                    found = version
            if found is not None or self.node.how == "left":
                self.give(pair_of(self.node, row, found), row[left_time] - MICROSECOND)

    def close(self) -> None:
        if self._waiting:
            self.on_time(max(row[self.node.time[0]] for row in self._waiting) + MICROSECOND)
