"""Windows: rows of a key are put aside, and when time has come to the end of their window they are aggregated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.differential.streams.interpreter.machine import MICROSECOND, Root, Timed
from tests.differential.streams.interpreter.values import aggregate, key_of
from tests.differential.streams.plan import Emit, Row, Window, Windowed, WindowTopN

EPOCH = datetime(1970, 1, 1)
_AT_ONCE = Emit(None, None, timedelta())


def windows_of(window: Window, time: datetime) -> list[tuple[datetime, datetime]]:
    """Return (start, end) of all windows that hold a time."""
    size, every = window.size, window.every
    found = []
    if window.kind == "tumbling":
        start = time - (time - EPOCH - window.offset) % size
        found.append((start, start + size))
    elif window.kind == "sliding":
        start = time - (time - EPOCH - window.offset) % every
        while start + size > time:
            found.append((start, start + size))
            start -= every
    else:
        start = time - (time - EPOCH - window.offset) % size
        end = start + every
        while end <= start + size:
            if end > time:
                found.append((start, end))
            end += every
    return sorted(found)


@dataclass
class Group:
    """The rows of a key in a window. ``result``: what its newest result is called."""

    key: tuple[Any, ...]
    start: datetime
    end: datetime
    rows: list[Row]
    result: str = "final"


class WindowAggregates(Timed):
    """Windows with aggregates. With ``emit`` only what is there in the end is made: the last result of each window."""

    node: Windowed

    def __init__(self, node: Windowed, *, sql: bool, ties_reversed: bool) -> None:
        super().__init__(node)
        self._ties_reversed = ties_reversed
        #: Whether sessions of several keys have ended at one moment: their results come in an order that nobody promises.
        self.tied = False
        self._sql = sql
        self._until = (node.emit or _AT_ONCE).until
        self._groups: list[Group] = []
        #: Of sessions whose results have been given: the key and the end.
        self._ended: list[tuple[Any, datetime]] = []
        #: Of rows in sessions: the number of each, in the order in which they came.
        self._numbers: dict[int, int] = {}
        self._next_number = itertools.count()

    def time_columns(self, side: int) -> Sequence[str]:
        return (self.node.window.on,)

    def pass_mark(self, root: Root, time: datetime) -> None:
        # Time goes on by milliseconds in Flink: within the last one of a window its result has not come yet.
        super().pass_mark(root, time - timedelta(microseconds=time.microsecond % 1000) if self._sql else time)

    def on_row(self, side: int, row: Row) -> None:
        time = row[self.node.window.on]
        if time is None:
            self.dead.append(row)
        elif self.node.window.kind == "session":
            self._into_session(time, row)
        else:
            of_time = windows_of(self.node.window, time)
            windows = [w for w in of_time if not self.passed(w[1] + self._until)]
            # With several shards time is that of the slowest: there the window may be open still, and the result a final one.
            self.behind |= self.behind_others and any(self.passed(end) for _, end in of_time)
            for start, end in windows:
                self._into_window(start, end, row)
            if not windows:
                self.too_late(row)

    def _into_window(self, start: datetime, end: datetime, row: Row) -> None:
        key = key_of(row, self.node.keys)
        group = next((each for each in self._groups if (each.key, each.start, each.end) == (key, start, end)), None)
        if group is None:
            group = Group(key, start, end, [])
            self._groups.append(group)
        group.rows.append(row)
        group.result = "update" if self.passed(end) else "final"

    def _into_session(self, time: datetime, row: Row) -> None:
        key = key_of(row, self.node.keys)
        end = time + self.node.window.size
        touched = [each for each in self._groups if each.key == key and each.start <= end and time <= each.end]
        # Whether it is late depends on what came before it of its key, and rows with results of one instant come in any order.
        self.fragile |= self.behind_others and self.passed(end)
        # So does whether a session that it touches has ended: how far time is between two results of one instant is nobody's promise.
        self.fragile |= self.behind_others and any(of == key and time <= ended for of, ended in self._ended)
        made = Group(
            key, min([time, *(each.start for each in touched)]), max([end, *(each.end for each in touched)]), []
        )
        if self.passed(made.end + self._until):
            self.too_late(row)
            return
        self._numbers[id(row)] = next(self._next_number)
        # In the order in which they came, whichever session they were in before.
        made.rows = sorted(
            [*(old for each in touched for old in each.rows), row], key=lambda each: self._numbers[id(each)]
        )
        made.result = "update" if self.passed(made.end) else "final"
        self._groups = [*(each for each in self._groups if each not in touched), made]

    def on_time(self, now: datetime) -> None:
        self._finish([each for each in self._groups if each.end + self._until <= now])

    def close(self) -> None:
        self._finish(list(self._groups))

    def _finish(self, groups: Sequence[Group]) -> None:
        if self.node.window.kind == "session":
            self.tied |= len({each.end for each in groups}) < len(groups)
            self._ended += [(each.key, each.end) for each in groups]
            groups = groups[::-1] if self._ties_reversed else groups
        for group in sorted(groups, key=lambda each: each.end):
            self._groups.remove(group)
            row = dict(zip(self.node.keys, group.key, strict=True))
            row["window_start"], row["window_end"] = group.start, group.end
            for name, what in self.node.aggregates.items():
                row[name] = aggregate(what, group.rows, sql=self._sql)
            if self.node.emit is not None:
                row["window_result"] = group.result
            if self._sql:
                row["window_time"] = group.end - timedelta(milliseconds=1)
            # A row of the time of the result may still come behind it. In Flink that is the last millisecond of the window.
            self.give(row, (row["window_time"] if self._sql else group.end) - MICROSECOND)


class WindowRanks(Timed):
    """The first rows of each window, when the window closes. Rows carry the bounds of their windows."""

    node: WindowTopN

    def __init__(self, node: WindowTopN) -> None:
        super().__init__(node)
        self._rows: list[Row] = []

    def on_row(self, side: int, row: Row) -> None:
        if self.passed(row["window_end"]):
            self.too_late(row)
        else:
            self._rows.append(row)

    def on_time(self, now: datetime) -> None:
        due = [row for row in self._rows if row["window_end"] <= now]
        self._rows = [row for row in self._rows if row["window_end"] > now]
        for end in sorted({row["window_end"] for row in due}):
            rows = [row for row in due if row["window_end"] == end]
            for row in first_rows(self.node, rows):
                # In SQL the rows' own time is a millisecond before the end: none of a window may come behind it.
                self.give(row, row.get("window_time", end) - MICROSECOND)

    def close(self) -> None:
        if self._rows:
            self.on_time(max(row["window_end"] for row in self._rows))


def first_rows(node: Any, rows: Sequence[Row]) -> list[Row]:
    """Return the first rows of each key in the order of a Top-N, with their places. NULL is the least value."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key_of(row, node.keys), []).append(row)
    given = []
    for group in groups.values():
        for column, descending in reversed(node.order):
            group.sort(key=lambda row: (row[column] is not None, row[column]), reverse=descending)
        for place, row in enumerate(group[: node.n], 1):
            given.append({**row, **({} if node.rank is None else {node.rank: place})})
    return given
