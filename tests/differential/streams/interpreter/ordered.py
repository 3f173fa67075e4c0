"""Verbs that take the rows of a key in the order of event time: OVER, the first row by time, and a function with state and timers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.differential.streams.interpreter.machine import MICROSECOND, MILLISECOND, Timed
from tests.differential.streams.interpreter.values import aggregate, key_of
from tests.differential.streams.plan import Aggregate, Counted, FirstByTime, Match, Over, OverCall, Row


class OverRows(Timed):
    """A row waits until time is beyond it; then it is given with aggregates of the rows of its key before it."""

    node: Over

    def __init__(self, node: Over) -> None:
        super().__init__(node)
        self._waiting: list[Row] = []
        #: Rows that have been given, per key, in order.
        self._history: dict[Any, list[Row]] = {}

    def on_row(self, side: int, row: Row) -> None:
        time = row[self.node.on]
        if time is None:
            self.dead.append(row)
        elif self._is_late(row, time):
            self.too_late(row)
        else:
            self._waiting.append(row)

    def _is_late(self, row: Row, time: datetime) -> bool:
        if any(call.rows is None and call.span is None for call in self.node.calls.values()):
            return self.now is not None and time < self.now
        given = self._history.get(key_of(row, self.node.keys), [])
        return any(other[self.node.on] >= time for other in given)

    def on_time(self, now: datetime) -> None:
        on = self.node.on
        due = sorted((row for row in self._waiting if row[on] < now), key=lambda row: row[on])
        self._waiting = [row for row in self._waiting if row[on] >= now]
        for row in due:
            self._history.setdefault(key_of(row, self.node.keys), []).append(row)
        for row in due:
            history = self._history[key_of(row, self.node.keys)]
            at = next(place for place, each in enumerate(history) if each is row)
            made = {name: self._result(call, history, at) for name, call in self.node.calls.items()}
            self.give({**row, **made}, row[on] - MICROSECOND)

    def close(self) -> None:
        if self._waiting:
            self.on_time(max(row[self.node.on] for row in self._waiting) + MICROSECOND)

    def _result(self, call: OverCall, history: list[Row], at: int) -> Any:
        on, row = self.node.on, history[at]
        peers = [place for place, each in enumerate(history) if each[on] == row[on]]
        if call.function == "row_number":
            return at + 1
        if call.function == "rank":
            return peers[0] + 1
        if call.function == "dense_rank":
            return len({each[on] for each in history if each[on] <= row[on]})
        assert call.function == "count" or call.column is not None
        if call.function == "lag":
            wanted = peers[-1] - call.distance
            return history[wanted][str(call.column)] if wanted >= 0 else None
        if call.by_rows:
            frame = history[0 if call.rows is None else max(0, at - call.rows) : at + 1]
        else:
            frame = history[: peers[-1] + 1]
            if call.span is not None:
                frame = [each for each in frame if each[on] >= row[on] - call.span]
        return aggregate(Aggregate(call.function, call.column, call.distinct), frame, sql=True)


class FirstInTime(Timed):
    """Of each key the row with the least time, given when time is beyond it; rows behind time are dropped."""

    node: FirstByTime

    def __init__(self, node: FirstByTime) -> None:
        super().__init__(node)
        self._waiting: dict[Any, Row] = {}
        self._done: set[Any] = set()

    def on_row(self, side: int, row: Row) -> None:
        time, key = row[self.node.on], key_of(row, self.node.keys)
        # One of the watermark's own millisecond is still taken, and given with the next watermark.
        if time is None:
            self.dead.append(row)
        elif self.now is not None and time + MILLISECOND < self.now:
            self.too_late(row)
        elif key not in self._done and (key not in self._waiting or time < self._waiting[key][self.node.on]):
            self._waiting[key] = row

    def on_time(self, now: datetime) -> None:
        for key, row in sorted(self._waiting.items(), key=lambda each: each[1][self.node.on]):
            if row[self.node.on] < now:
                del self._waiting[key]
                self._done.add(key)
                self.give(row, row[self.node.on] - MICROSECOND)

    def close(self) -> None:
        self.on_time(datetime.max)


class MatchedRows(Timed):
    """Rows that fit a pattern: looked for when all have come, as no row of such a plan is late."""

    node: Match

    def __init__(self, node: Match) -> None:
        super().__init__(node)
        self._rows: dict[Any, list[Row]] = {}

    def on_row(self, side: int, row: Row) -> None:
        if row[self.node.on] is None:
            self.dead.append(row)
            return
        self._rows.setdefault(key_of(row, self.node.keys), []).append(row)

    def close(self) -> None:
        for key, rows in self._rows.items():
            times = [row[self.node.on] for row in rows]
            # Rows of several queues with one time have no order.
            self.fragile |= len(self.begins) > 1 and len(set(times)) < len(times)
            rows.sort(key=lambda row: row[self.node.on])
            at = 0
            while at < len(rows):
                found = self._from(rows, at)
                if found is not None:
                    self.give({**dict(zip(self.node.keys, key, strict=True)), **self._measures(found)}, None)
                at += 1 if found is None or self.node.next_row else sum(map(len, found.values()))

    def _from(self, rows: list[Row], at: int) -> dict[str, list[Row]] | None:
        """Return the rows of each variable of the match that begins at a row, or None."""
        found: dict[str, list[Row]] = {}
        for variable, low, high in self.node.pattern:
            taken = found.setdefault(variable, [])
            while (
                at < len(rows)
                and (high is None or len(taken) < high)
                and rows[at][self.node.by] in self.node.values[variable]
            ):
                taken.append(rows[at])
                at += 1
            if len(taken) < low:
                return None
        times = [row[self.node.on] for taken in found.values() for row in taken]
        if self.node.within is not None and times[-1] - times[0] >= self.node.within:
            return None  # no row can be two variables, so no shorter match begins here
        return found

    def _measures(self, found: dict[str, list[Row]]) -> Row:
        made: Row = {}
        for name, (function, variable, column) in self.node.measures.items():
            values = [row[column] for row in found[variable]]
            if function == "count":
                made[name] = sum(value is not None for value in values)
            else:
                made[name] = None if not values else values[0 if function == "first" else -1]
        return made


class CountedRows(Timed):
    """The function of ``plan.Counted``, called row by row; its timers are called when time has come to them."""

    node: Counted

    def __init__(self, node: Counted) -> None:
        super().__init__(node)
        self._counts: dict[Any, int] = {}
        self._timers: set[tuple[datetime, Any]] = set()

    def on_row(self, side: int, row: Row) -> None:
        key, time = key_of(row, self.node.keys), row[self.node.on]
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if time is not None:
            self._timers.add((time + self.node.span, key))
        if count % 3 == 0:
            self._give_count(key, None, count)
        if time is not None:
            self._call(self.now)

    def on_time(self, now: datetime) -> None:
        self._call(now)

    def _call(self, now: datetime | None) -> None:
        due = [] if now is None else [each for each in self._timers if each[0] <= now]
        for time, key in sorted(due, key=lambda each: each[0]):
            self._timers.remove((time, key))
            self._give_count(key, time, self._counts[key])

    def close(self) -> None:
        self._call(datetime.max)

    def _give_count(self, key: Any, time: datetime | None, count: int) -> None:
        row = dict(zip(self.node.keys, key, strict=True))
        self.give({**row, "fired": time, "count": count}, self.now)
