"""What moves: operators that are given one row after the other, and told how far event time is.

Each operator has a mark per upstream queue and side: the watermark that this queue has reached. Its own time is the least of them,
of queues that are not silent; the greatest where all are. It never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.differential.streams.interpreter.values import evaluate, is_true, key_of
from tests.differential.streams.plan import Distinct, FlatMap, Node, Row, Select, Source, Split, Where

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
#: A queue: (table, number), or the operator that rows come from.
Root = Any


@dataclass(eq=False)
class Operator:
    """One verb at work. ``consumers``: (operator, side) that get what comes out."""

    node: Node
    consumers: list[tuple[Operator, int]] = field(default_factory=list)
    #: Rows that come out, in order.
    given: list[Row] = field(default_factory=list)

    def take(self, side: int, root: Root, row: Row) -> None:
        """A row comes."""
        raise NotImplementedError

    def mark(self, side: int, root: Root, time: datetime) -> None:
        """An upstream queue has reached a time."""
        raise NotImplementedError

    def silent(self, side: int, root: Root) -> None:
        """Nothing has come of an upstream queue for long."""
        raise NotImplementedError

    def roots(self, side: int, root: Root) -> None:
        """An upstream queue is there, though nothing has come of it."""
        raise NotImplementedError

    def close(self) -> None:
        """The input has ended."""

    def pass_on(self, root: Root, row: Row) -> None:
        self.given.append(row)
        for consumer, side in self.consumers:
            consumer.take(side, root, dict(row))

    def pass_mark(self, root: Root, time: datetime) -> None:
        for consumer, side in self.consumers:
            consumer.mark(side, root, time)

    def pass_silent(self, root: Root) -> None:
        for consumer, side in self.consumers:
            consumer.silent(side, root)

    def pass_root(self, root: Root) -> None:
        for consumer, side in self.consumers:
            consumer.roots(side, root)


class Passing(Operator):
    """Verbs without memory: each row gives rows at once, and time goes through."""

    def take(self, side: int, root: Root, row: Row) -> None:
        for each in rows_of(self.node, row):
            self.pass_on(root, each)

    def mark(self, side: int, root: Root, time: datetime) -> None:
        self.pass_mark(root, time)

    def silent(self, side: int, root: Root) -> None:
        self.pass_silent(root)

    def roots(self, side: int, root: Root) -> None:
        self.pass_root(root)


def rows_of(node: Node, row: Row) -> Sequence[Row]:
    """Return what a verb without memory makes of a row."""
    if isinstance(node, Where):
        return [row] if is_true(node.condition, row) else []
    if isinstance(node, Select):
        return [{name: evaluate(expression, row) for name, expression in node.expressions.items()}]
    if isinstance(node, Split):
        taken = next((at for at, each in enumerate(node.conditions) if is_true(each, row)), len(node.conditions))
        return [row] if taken == node.branch else []
    if isinstance(node, FlatMap):
        value = row[node.column]
        return [{**row, "copy": number} for number in range(1 if value is None else abs(value) % 3)]
    return [row]  # a union


class Reading(Operator):
    """A table: the watermark of a queue is its greatest time less the delay; in Flink's SQL one millisecond more."""

    def __init__(self, node: Source, more: timedelta) -> None:
        super().__init__(node)
        self._delay = node.table.delay - more
        self._greatest: dict[int, datetime] = {}

    def arrive(self, queue: int, row: Row) -> None:
        root = (self.node, queue)
        self.pass_on(root, row)
        if row["ts"] is not None:
            self._greatest[queue] = max(self._greatest.get(queue, row["ts"]), row["ts"])
            self.pass_mark(root, self._greatest[queue] - self._delay)


class Timed(Operator):
    """Verbs that remember: they know how far time is, ``now`` (None: not known)."""

    #: By how much later than what came in the time of what goes out is.
    lag = timedelta()

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.now: datetime | None = None
        self.late: list[Row] = []
        self.dead: list[Row] = []
        self.late_operator: Passing | None = None
        #: Whether a row has come of which the result depends on which of several ways from one queue is quicker.
        self.fragile = False
        #: Whether a row that another verb has made was too late for a window of several.
        self.behind = False
        self._marks: dict[tuple[int, Root], datetime | None] = {}
        self._silent: set[tuple[int, Root]] = set()
        #: The queues of tables that rows come from, per upstream queue and side.
        self._begins: dict[tuple[int, Root], set[Any]] = {}

    @property
    def begins(self) -> set[Any]:
        return {each for found in self._begins.values() for each in found}

    def roots(self, side: int, root: Root) -> None:
        self._marks.setdefault((side, root), None)
        self._begins[side, root] = root.begins if isinstance(root, Timed) else {root}
        self.pass_root(self)  # each time: what follows must know of all queues that its rows may come from

    def mark(self, side: int, root: Root, time: datetime) -> None:
        before = self._marks[side, root]
        self._marks[side, root] = time if before is None else max(before, time)
        self._silent.discard((side, root))
        self._advance()

    def silent(self, side: int, root: Root) -> None:
        self._silent.add((side, root))
        self._advance()

    def _advance(self) -> None:
        live = [mark for at, mark in self._marks.items() if at not in self._silent]
        known = [mark for mark in (live or self._marks.values()) if mark is not None]
        if not known or (live and len(known) < len(live)):
            return
        time = min(known) if live else max(known)
        if self.now is None or time > self.now:
            self.now = time
            self.on_time(time)
            self.pass_mark(self, time - self.lag)

    def take(self, side: int, root: Root, row: Row) -> None:
        self._silent.discard((side, root))
        reached = self._marks[side, root]
        if reached is not None and self._ways_meet():
            self.fragile |= any(row[name] is not None and row[name] < reached for name in self.time_columns(side))
        self.on_row(side, row)

    @property
    def behind_others(self) -> bool:
        """Whether rows come from a verb that remembers."""
        return any(isinstance(root, Timed) for _, root in self._marks)

    def _ways_meet(self) -> bool:
        """Whether rows of one queue come here on several ways."""
        return sum(map(len, self._begins.values())) > len(self.begins)

    def time_columns(self, side: int) -> Sequence[str]:
        """The columns whose times the verb compares with the watermark."""
        return ()

    def on_row(self, side: int, row: Row) -> None:
        raise NotImplementedError

    def on_time(self, now: datetime) -> None:
        """Time has come to ``now``."""

    def give(self, row: Row, before: datetime | None) -> None:
        """Give a row; ``before`` is the time at which it is given: behind the operator time has come that far."""
        if before is not None:
            self.pass_mark(self, before - self.lag)
        self.pass_on(self, row)

    def too_late(self, row: Row) -> None:
        self.late.append(row)

    def passed(self, time: datetime) -> bool:
        """Whether the watermark has come to a time."""
        return self.now is not None and self.now >= time


class FirstOfKey(Timed):
    """``distinct``: the first row of each key."""

    node: Distinct

    def __init__(self, node: Distinct) -> None:
        super().__init__(node)
        self._seen: set[Any] = set()

    def on_row(self, side: int, row: Row) -> None:
        key = key_of(row, self.node.keys)
        if key not in self._seen:
            self._seen.add(key)
            self.give(row, self.now)
