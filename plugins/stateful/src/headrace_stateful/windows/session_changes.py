"""Session windows with early results, or ones that take late rows: a changelog.

A row can begin a session, extend one or join two. If these sessions were shown before, their results are taken back
when the new result is given. So sessions are kept one by one, as lists of their rows, and gone through row by row; only
the aggregates are made by column, for all results of a batch at once. The state is written down as a whole each time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.windows import Emit

from headrace_stateful.keys.shares import (
    Reached,
    Renumbering,
    joined,
    numbers,
    renumbered,
    rows_of,
    snapshots,
    together,
)
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.windows.partial_log import END
from headrace_stateful.windows.window_operator import Arrived, WindowOperator
from headrace_stateful.windows.window_shape import INSTANT, NEVER, START, WINDOW_RESULT, Times, WindowShape

_NUMBER = "__hr_number"
_EVENT = "__hr_event"
_SESSION = "__hr_session"
_NAN = object()


@dataclass(slots=True, eq=False)
class _Shown:
    """A result: of which rows, when, and once it is made its columns (None: it failed)."""

    start: int
    end: int
    rows: tuple[int, ...]
    result: str
    stamp: int
    replaces: list[_Shown]
    values: tuple[Any, ...] | None = None


@dataclass(slots=True, eq=False)
class _Session:
    """Rows by their numbers, in the order in which they came."""

    key: Any
    start: int
    end: int
    rows: list[int]
    is_new: bool = True
    shown: list[_Shown] = field(default_factory=list)
    #: The instant that is waited for; NEVER: the session is no more.
    due: int = NEVER
    #: The time at which it is in the queue: ``due`` or before.
    queued: int = NEVER


class SessionChanges(WindowOperator):
    """The running operator; see the module. Early results are given at whole multiples of ``before`` since the epoch."""

    advances_by_rows: ClassVar[bool] = True  # type: ignore[misc]

    def __init__(self, shape: WindowShape) -> None:
        super().__init__(shape)
        self._keys = list(shape.keys)
        self._gap = shape.window.size_us
        kept = {**shape.key_schema, **shape.plan.input_schema, _NUMBER: pl.Int64()}
        self._rows = pl.DataFrame(schema=kept)
        self._next_number = 0
        self._by_key: dict[Any, list[_Session]] = {}
        self._waiting: list[tuple[int, int, _Session]] = []
        self._pushed = 0
        self._events: list[_Shown] = []

    # ------------------------------------------------------------------------------------------------- rows come

    def accept(self, arrived: Arrived) -> tuple[list[pl.DataFrame], Times | None]:
        count = arrived.values.height
        numbers = range(self._next_number, self._next_number + count)
        self._next_number += count
        named = arrived.values.with_columns(pl.Series(_NUMBER, numbers, dtype=pl.Int64))
        self._rows = pl.concat([self._rows, named.select(self._rows.columns)])
        keys = arrived.values.select(self._keys).rows() if self._keys else [()] * count
        late: list[int] = []
        walk = zip(keys, arrived.times.tolist(), arrived.watermarks.tolist(), strict=True)
        for place, (key, time, watermark) in enumerate(walk):
            self._go_on(watermark)
            if not self._take(tuple(map(_plain, key)), time, numbers[place], watermark):
                late.append(place)
        return self._results(), np.array(late, dtype=np.int64)

    def _take(self, key: Any, time: int, number: int, watermark: int) -> bool:
        """Put a row into a session; return whether it was in time for one."""
        found = self._by_key.get(key, [])
        start, end = time, time + self._gap
        touched = [each for each in found if time <= each.end and each.start <= end]
        for each in touched:
            start, end = min(start, each.start), max(end, each.end)
        if end + self.shape.emit.until_us <= self.reached_us:
            return False
        if len(touched) == 1:
            joined = touched[0]
            joined.start, joined.end, joined.is_new = start, end, True
            joined.rows.append(number)
        else:
            rows = sorted([*(row for each in touched for row in each.rows), number])
            joined = _Session(key, start, end, rows, shown=[old for each in touched for old in each.shown])
            for each in touched:
                each.due = NEVER
            self._by_key[key] = [*(each for each in found if each not in touched), joined]
        emit = self.shape.emit
        if end > self.reached_us and emit.before_us == 0:
            self._show(joined, "early", watermark)
        elif end <= self.reached_us and emit.after_us == 0:
            self._show(joined, "update", watermark)
        self._wait(joined)
        return True

    def _wait(self, session: _Session) -> None:
        session.due = next_instant(self.shape.emit, session.start, session.end, self.reached_us, is_new=session.is_new)
        if session.queued == NEVER or session.due < session.queued:
            self._queue(session)

    def _queue(self, session: _Session) -> None:
        session.queued = session.due
        self._pushed += 1
        heapq.heappush(self._waiting, (session.due, self._pushed, session))

    # --------------------------------------------------------------------------------------------- results go out

    def advance(self, time_us: int) -> list[pl.DataFrame]:
        self._go_on(time_us)
        return self._results()

    def close_all(self) -> list[pl.DataFrame]:
        ends = [each.end for found in self._by_key.values() for each in found]
        if not ends:
            return []
        for found in self._by_key.values():
            for each in found:
                # No early results any more.
                each.is_new = each.is_new and each.end <= self.reached_us
                self._wait(each)
        time_us = max(ends) + self.shape.emit.until_us
        self._go_on(time_us)
        self.closed_us = max(self.closed_us, time_us)
        return self._results()

    def _go_on(self, time_us: int) -> None:
        """Return the results that are due until then, in order of time, and remove sessions that have ended."""
        if time_us <= self.reached_us:
            return
        while self._waiting and self._waiting[0][0] <= time_us:
            instant, _, session = heapq.heappop(self._waiting)
            if session.due == NEVER or session.queued != instant:
                continue  # it has become another one, or is in the queue again with an earlier time
            if session.due != instant:
                self._queue(session)
                continue
            session.queued = NEVER
            self.touched = True
            last = session.end + self.shape.emit.until_us
            if instant == session.end:
                self._show(session, "final", instant - 1)
            elif session.is_new:
                self._show(session, "early" if instant < session.end else "update", instant - 1)
            self.reached_us = max(self.reached_us, instant)
            if instant < last:
                self._wait(session)
            else:
                self._drop(session)
        self.reached_us = time_us

    def _drop(self, session: _Session) -> None:
        session.due = NEVER
        left = [each for each in self._by_key[session.key] if each is not session]
        if left:
            self._by_key[session.key] = left
        else:
            del self._by_key[session.key]

    def _show(self, session: _Session, result: str, stamp: int) -> None:
        made = _Shown(session.start, session.end, tuple(session.rows), result, stamp, session.shown)
        session.shown = [made]
        session.is_new = False
        self._events.append(made)

    def _results(self) -> list[pl.DataFrame]:
        events, self._events = self._events, []
        made: list[pl.DataFrame] = []
        if events:
            self._compute(events)
            rows = [row for place, event in enumerate(events) for row in _changes(event, place)]
            columns = self._columns(rows, events)
            if columns is not None:
                made.append(columns)
        self._forget_rows()
        return made

    def _compute(self, events: Sequence[_Shown]) -> None:
        """Make the results of all events, by column."""
        numbers = np.array([row for event in events for row in event.rows], dtype=np.int64)
        owners = np.repeat(np.arange(len(events)), [len(event.rows) for event in events])
        places = np.searchsorted(self._rows[_NUMBER].to_numpy(), numbers)
        members = self._rows[places].with_columns(pl.Series(_EVENT, owners))
        partials = self.shape.plan.partial(members, [_EVENT], others=[pl.col(self._keys).first()] if self._keys else [])
        order = partials[_EVENT].to_list()
        groups = partials.select(*self._keys, _EVENT)
        results = self.finished(groups.with_columns(pl.Series(_EVENT, order)), partials)
        for *values, event in results.select(*self._keys, *self.shape.plan.schema, _EVENT).iter_rows():
            events[event].values = tuple(values)

    def _columns(self, rows: Sequence[tuple[Any, ...]], events: Sequence[_Shown]) -> pl.DataFrame | None:
        """Return (change kind, stamp, shown) as columns."""
        if not rows:
            return None
        types = {**self.shape.key_schema, **self.shape.plan.schema}
        values = pl.DataFrame([shown.values for _, _, shown in rows], schema=types, orient="row")
        stamps = [NEVER if stamp == NEVER else stamp + 1 for _, stamp, _ in rows]
        return values.with_columns(
            pl.Series(START, [shown.start for _, _, shown in rows], dtype=pl.Int64),
            pl.Series(END, [shown.end for _, _, shown in rows], dtype=pl.Int64),
            pl.Series(INSTANT, stamps, dtype=pl.Int64),
            pl.Series(WINDOW_RESULT, [shown.result for _, _, shown in rows], dtype=pl.String),
            pl.Series(CHANGE, [kind for kind, _, _ in rows], dtype=pl.Int8),
        )

    def _forget_rows(self) -> None:
        """Remove rows that are in no session, if most rows are not."""
        kept = sum(len(each.rows) for found in self._by_key.values() for each in found)
        if self._rows.height <= 2 * kept + 1024:
            return
        self._tidy()

    def _tidy(self) -> None:
        numbers = sorted(row for found in self._by_key.values() for each in found for row in each.rows)
        places = np.searchsorted(self._rows[_NUMBER].to_numpy(), np.array(numbers, dtype=np.int64))
        self._rows = self._rows[places] if numbers else self._rows.clear()

    # --------------------------------------------------------------------------------------------------- state

    def delta(self) -> bytes:
        return self.snapshot() if self.touched else b""

    def snapshot(self) -> bytes:
        self.touched = False
        self._tidy()
        found = [each for sessions in self._by_key.values() for each in sessions]
        sessions = pl.DataFrame(
            {
                START: [each.start for each in found], END: [each.end for each in found],
                "rows": [each.rows for each in found], "is_new": [each.is_new for each in found],
            },
            schema={START: pl.Int64, END: pl.Int64, "rows": pl.List(pl.Int64), "is_new": pl.Boolean},
        )  # fmt: skip
        shown = [(place, old) for place, each in enumerate(found) for old in each.shown if old.values is not None]
        columns = self._columns([(0, 0, old) for _, old in shown], [])
        frames = {"rows": self._rows, "sessions": sessions}
        if columns is not None:
            frames["shown"] = columns.with_columns(pl.Series(_SESSION, [place for place, _ in shown]))
        marks = {"reached_us": self.reached_us, "closed_us": self.closed_us, "next": self._next_number}
        return pack("snapshot", frames, marks)

    def apply(self, state: bytes) -> None:
        if not state:
            return
        kind, frames, values = unpack(state)
        if kind != "snapshot":
            raise CheckpointError(f"the state of a window operator is of an unknown kind {kind!r}")
        self.reached_us, self.closed_us = values["reached_us"], values["closed_us"]
        self._next_number = values["next"]
        self._rows = frames["rows"]
        self._by_key, self._waiting, self._events = {}, [], []
        keys = (
            dict(zip(self._rows[_NUMBER].to_list(), self._rows.select(self._keys).rows(), strict=True))
            if (self._keys)
            else {}
        )
        found = []
        for start, end, rows, is_new in frames["sessions"].iter_rows():
            key = tuple(map(_plain, keys.get(rows[0], ())))
            found.append(_Session(key, start, end, rows, is_new))
            self._by_key.setdefault(key, []).append(found[-1])
        if "shown" in frames:
            shown = frames["shown"]
            results = shown.select(*self._keys, *self.shape.plan.schema).rows()
            marks = shown.select(_SESSION, START, END, WINDOW_RESULT).rows()
            for (place, start, end, result), row in zip(marks, results, strict=True):
                found[place].shown.append(_Shown(start, end, (), result, NEVER, [], row))
        for each in found:
            self._wait(each)
        self.touched = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, closed, order, place = Reached(), Reached(), Renumbering(), 0
        parts = []
        for frames, values in snapshots(states):
            rows, sessions = frames["rows"], frames["sessions"]
            reached.add(values["reached_us"], at_any_time=bool(sessions.height))
            closed.add(values["closed_us"])
            rows = rows_of(rows, share.holds(rows))
            new = order.of(numbers(rows, _NUMBER))
            own = new.to(sessions["rows"].list.first().to_numpy().astype(np.int64)) >= 0
            places = Renumbering()
            places.next = place
            moved = places.of(np.flatnonzero(own))
            place = places.next
            sessions = rows_of(sessions, own)
            members = [new.to(np.array(each, dtype=np.int64)).tolist() for each in sessions["rows"].to_list()]
            part = {
                "rows": renumbered(rows, _NUMBER, new.to(numbers(rows, _NUMBER))),
                "sessions": sessions.with_columns(pl.Series("rows", members, dtype=pl.List(pl.Int64))),
            }
            if "shown" in frames:
                shown = renumbered(frames["shown"], _SESSION, moved.to(numbers(frames["shown"], _SESSION)))
                part["shown"] = shown.filter(pl.col(_SESSION) >= 0)
            parts.append(part)
        made = {name: joined([part[name] for part in parts]) for name in ("rows", "sessions")}
        marks = {"reached_us": reached.time_us(), "closed_us": closed.time_us(), "next": order.next}
        return pack("snapshot", {**together(parts), **made}, marks)

    def state_rows(self) -> int:
        return sum(len(each.rows) for found in self._by_key.values() for each in found)


def next_instant(emit: Emit, start: int, end: int, reached_us: int, *, is_new: bool) -> int:
    """Return when a session is due next after ``reached_us``: an early result, its end, an update, or when its time is up."""
    last = end + emit.until_us
    if end > reached_us:
        if emit.before_us and is_new:
            return min((max(reached_us, start) // emit.before_us + 1) * emit.before_us, end)
        return end
    if emit.after_us and is_new:
        return min(end + ((reached_us - end) // emit.after_us + 1) * emit.after_us, last)
    return last


def _changes(event: _Shown, place: int) -> list[tuple[int, int, _Shown]]:
    """Return what an event does to the table: (change kind, stamp, shown)."""
    made: list[tuple[int, int, _Shown]] = []
    kind = ChangeKind.INSERT
    for old in event.replaces:
        if old.values is None:
            continue
        same = (old.start, old.end) == (event.start, event.end) and event.values is not None
        made.append((ChangeKind.UPDATE_BEFORE if same else ChangeKind.DELETE, event.stamp, old))
        kind = ChangeKind.UPDATE_AFTER if same else kind
    # The row before comes right before the one after.
    made.sort(key=lambda change: change[0] == ChangeKind.UPDATE_BEFORE)
    if event.values is not None:
        made.append((kind, event.stamp, event))
    event.replaces = []
    return made


def _plain(value: Any) -> Any:
    """Return a key's value such that equal keys are equal in Python."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value if value.__hash__ is not None else repr(value)
