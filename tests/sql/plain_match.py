"""MATCH_RECOGNIZE as plainly as it can be said: row by row, with every match under way, each with all of its rows.

This is what the matcher of ``headrace_sql`` is compared to. It knows no state that is kept, no columns and no source text.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError
from headrace_sql.operators.match_groups import WAYS_MAX, Program
from headrace_sql.operators.match_operator import MatchRecognize
from headrace_sql.operators.match_values import BINARY, Node, called, divided

NEVER, _END = -(2**63), 2**62
_SEQ, _TS, _MARK, _NUMBER = "__mr_seq", "__mr_time", "__mr_mark", "__mr_number"
#: (variable, row), one behind the other.
Taken = tuple[tuple[str, dict[str, Any]], ...]


@dataclass
class _Run:
    """A match under way: ``rows`` are (place in the pattern, row), ``start`` the number of its first row in its key."""

    start: int
    place: int
    count: int
    rows: tuple[tuple[int, dict[str, Any]], ...]


class PlainMatch:
    """The running operator, in the way of the one that it is compared to."""

    def __init__(self, spec: MatchRecognize, schema: Schema) -> None:
        self._spec = spec
        self._columns = spec.kept()
        kinds = {name: schema[name] for name in self._columns}
        extra = {_SEQ: pl.Int64(), _TS: pl.Int64(), _MARK: pl.Int64()}
        self._waiting = pl.DataFrame(schema={**kinds, **extra})
        self._schema = {**{name: schema[name] for name in spec.keys}, **spec.types}
        self._partitions: dict[tuple[Any, ...], _Partition | GroupPartition] = {}
        #: (event time at which a match under way ends by WITHIN, running number, key): at most one for each partition.
        self._deadlines: list[tuple[int, int, tuple[Any, ...]]] = []
        self._number = 0
        self._sequence = 0
        self._watermark = NEVER
        #: By key the time of the first match that is complete and not given yet; the watermark that was passed on.
        self._held: dict[tuple[Any, ...], int] = {}
        self._told = NEVER
        self._now_us = 0

    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        if self._spec.on is None:
            yield from self._at_once(batch)
            return
        rows = frame.select(self._columns).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(_SEQ),
            pl.col(self._spec.on).dt.epoch("us").alias(_TS), pl.Series(_MARK, watermark_times(frame)),
        )  # fmt: skip
        self._sequence += frame.height
        # A row that the watermark has passed when it comes is late: what stands behind it in time has been matched.
        on_time = rows.filter(pl.col(_TS) >= pl.col(_MARK))
        self._waiting = pl.concat([self._waiting, on_time])

    def _at_once(self, batch: Batch) -> Iterable[Batch]:
        """Take rows by the clock. What is given has the watermark of the rows that were taken."""
        frame = batch.frame
        rows = frame.select(self._columns).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(_SEQ),
            pl.lit(self._now_us, dtype=pl.Int64).alias(_TS), pl.Series(_MARK, watermark_times(frame)),
        )  # fmt: skip
        self._sequence += frame.height
        for given in self._matched(batch.queue, rows, self._now_us):
            if WATERMARK not in frame.columns:
                yield given
            else:
                mark = pl.lit(frame[WATERMARK][-1], dtype=pl.Int64)
                yield given.with_frame(given.frame.with_columns(mark.alias(WATERMARK)))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | Watermark]:
        if self._spec.on is None:
            if isinstance(message, Tick):
                self._now_us = max(self._now_us, message.time_us)
            if isinstance(message, Tick | EndOfInput):
                ends_us = self._now_us if isinstance(message, Tick) else _END
                if (self._deadlines and self._deadlines[0][0] <= ends_us) or (self._spec.program and ends_us == _END):
                    yield from self._matched(Queue("clock"), self._waiting.clear(), ends_us)
            return
        if isinstance(message, Watermark):
            yield from self._reached(message.queue, message.time_us)
            # Of a match that is complete and waits for one that began before it the time is known: it is not to be late behind.
            self._told = max(self._told, min([message.time_us, *(time - 1 for time in self._held.values())]))
            if self._told < message.time_us:
                yield Watermark(message.queue, self._told)
        elif isinstance(message, EndOfInput):
            if self._waiting.height:
                last: Any = self._waiting[_TS].max()
                yield from self._reached(Queue("end"), max(int(last) + 1, self._watermark))
            if self._deadlines or self._spec.program:  # no row comes any more that could complete what is under way
                yield from self._matched(Queue("end"), self._waiting.clear(), _END)

    def _reached(self, queue: Queue, time_us: int) -> Iterable[Batch]:
        if time_us <= self._watermark:
            return
        self._watermark = time_us
        due = pl.col(_TS) < time_us
        rows = self._waiting.filter(due).sort(_TS, *self._spec.order, _SEQ)
        self._waiting = self._waiting.filter(~due)
        yield from self._matched(queue, rows, time_us)

    def _matched(self, queue: Queue, rows: pl.DataFrame, time_us: int) -> Iterable[Batch]:
        """Take rows in their order, and leave out matches under way that are too old at a time; give what is decided by that."""
        found: list[tuple[Any, ...]] = []
        marks: list[int] = []
        for row in rows.iter_rows(named=True):
            key = tuple(row[name] for name in self._spec.keys)
            partition = self._partitions.get(key)
            if partition is None:
                partition = self._partitions[key] = _partition(self._spec)
            for match in partition.take(row):
                found.append((*key, *match[1:]))
                marks.append(match[0] - 1)
            self._settle(key, partition)
        for key, partition in self._ended() if self._spec.program and time_us == _END else self._expired(time_us):
            for match in partition.expire(time_us):
                found.append((*key, *match[1:]))
                marks.append(match[0] - 1)
            self._settle(key, partition)
        if found:
            frame = pl.DataFrame([self._rounded(row) for row in found], schema=self._schema, orient="row")
            if self._spec.on is None:
                yield Batch(queue, frame)
                return
            # Results of one step of the watermark: none is late for what comes behind because another was given before it.
            least = np.minimum.accumulate(np.array(marks, dtype=np.int64)[::-1])[::-1]
            yield Batch(queue, frame.with_columns(pl.Series(WATERMARK, least, dtype=pl.Int64)))

    def _ended(self) -> Iterable[tuple[tuple[Any, ...], GroupPartition]]:
        """Return the partitions of patterns with groups at the end of the input: what they have found by then is a match."""
        self._deadlines = []
        return [(key, each) for key, each in self._partitions.items() if isinstance(each, GroupPartition)]

    def _expired(self, time_us: int) -> Iterable[tuple[tuple[Any, ...], _Partition | GroupPartition]]:
        """Return the partitions of which a match under way has begun too long ago, by WITHIN, once event time is so far."""
        while self._deadlines and self._deadlines[0][0] <= time_us:
            _, number, key = heapq.heappop(self._deadlines)
            partition = self._partitions.get(key)
            if partition is not None and partition.awaited == number:
                partition.awaited = None
                yield key, partition

    def _settle(self, key: tuple[Any, ...], partition: _Partition | GroupPartition) -> None:
        """Forget a partition without matches; note when the oldest match under way of another ends by WITHIN."""
        waits = self._spec.within_us is not None and partition.complete  # without WITHIN it may wait for ever
        if waits:
            self._held[key] = min(int(run.rows[-1][1][_TS]) for run in partition.complete)
        else:
            self._held.pop(key, None)
        if partition.is_idle:
            del self._partitions[key]
            return
        deadline = partition.deadline_us
        if deadline is not None and partition.awaited is None:
            self._number += 1
            partition.awaited = self._number
            heapq.heappush(self._deadlines, (deadline, self._number, key))

    def _rounded(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a result with decimals of the digits that their columns have."""
        return tuple(
            value.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
            if isinstance(value, Decimal) and isinstance(kind, pl.Decimal)
            else value
            for value, kind in zip(row, self._schema.values(), strict=True)
        )


def _partition(spec: MatchRecognize) -> _Partition | GroupPartition:
    if spec.program is None:
        return _Partition(spec)
    return GroupPartition(spec.program, spec.definitions, spec.measures, spec.skip, spec.within_us)


class _Partition:
    """The matches of one key: under way, and complete but waiting for one that began earlier."""

    def __init__(self, spec: MatchRecognize) -> None:
        self.spec = spec
        self.runs: list[_Run] = []
        self.complete: list[_Run] = []
        #: The number of the deadline that the operator has noted for it.
        self.awaited: int | None = None
        self._number = 0

    @property
    def is_idle(self) -> bool:
        return not self.runs and not self.complete

    @property
    def deadline_us(self) -> int | None:
        """The event time at which the oldest match under way ends by WITHIN; None without WITHIN, or when none is under way."""
        within = self.spec.within_us
        return None if within is None or not self.runs else min(run.rows[0][1][_TS] for run in self.runs) + within

    def expire(self, time_us: int) -> list[tuple[Any, ...]]:
        """Leave out matches under way that no row from a time on can complete; return the measures of those decided by that."""
        self._prune(time_us)
        return self._decided()

    def _prune(self, time_us: int) -> None:
        within = self.spec.within_us
        if within is not None:
            self.runs = [run for run in self.runs if time_us - run.rows[0][1][_TS] < within]

    def take(self, row: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Take the next row; return the last time and the measures of the matches that are decided by it."""
        self._number += 1
        row = {**row, _NUMBER: self._number}
        self._prune(row[_TS])
        made = self._decided()
        going: list[_Run] = []
        for run in [*self.runs, _Run(self._number, 0, 0, ())]:
            for after in self._advanced(run, row):
                (self.complete if self._is_complete(after) else going).append(after)
        self.runs = going
        return [*made, *self._decided()]

    def _advanced(self, run: _Run, row: dict[str, Any]) -> Iterable[_Run]:
        """Yield the matches that a row makes of one.

        A greedy variable takes every row that it can: what is behind it gets only rows that it cannot take.
        """
        pattern, place, count = self.spec.pattern, run.place, run.count
        part = pattern[place]
        stays = self._with(run, place, count + 1, row)
        if stays is not None and (part.most is None or count < part.most):
            yield stays
        taken = stays is not None and part.is_exclusive
        while not taken and count >= pattern[place].least and place + 1 < len(pattern):
            place, count = place + 1, 0
            goes = self._with(run, place, 1, row)
            if goes is not None:
                yield goes
            taken = goes is not None and pattern[place].is_exclusive

    def _with(self, run: _Run, place: int, count: int, row: dict[str, Any]) -> _Run | None:
        """Return a match with one row more, which stands for the variable at a place; None where it does not fit."""
        rows = (*run.rows, (place, row))
        return _Run(run.start, place, count, rows) if self._fits(place, rows) else None

    def _fits(self, place: int, rows: tuple[tuple[int, dict[str, Any]], ...]) -> bool:
        definition = self.spec.definitions.get(self.spec.pattern[place].variable)
        return definition is None or evaluated(definition, self._view(rows)) is True

    def _view(self, rows: Sequence[tuple[int, dict[str, Any]]]) -> dict[str | None, list[dict[str, Any]]]:
        view: dict[str | None, list[dict[str, Any]]] = {part.variable: [] for part in self.spec.pattern}
        view[None] = [row for _, row in rows]
        for place, row in rows:
            view[self.spec.pattern[place].variable].append(row)
        return view

    def _is_complete(self, run: _Run) -> bool:
        last = len(self.spec.pattern) - 1
        rest = self.spec.pattern[run.place + 1 :]
        if run.count < self.spec.pattern[run.place].least or any(part.least for part in rest):
            return False
        part = self.spec.pattern[run.place]
        return (
            run.place == last and (not part.greedy or run.count == part.most or part.most == part.least)
        ) or run.place < last

    def _decided(self) -> list[tuple[Any, ...]]:
        """Return the measures of complete matches before which no other that is under way has begun."""
        made = []
        while self.complete:
            run = min(self.complete, key=lambda each: each.start)
            if any(each.start < run.start for each in self.runs):
                break
            view = self._view(run.rows)
            values = (evaluated(node, view) for node in self.spec.measures.values())
            made.append((int(run.rows[-1][1][_TS]), *values))
            first_kept = max(run.start + 1, self._skipped_to(run, view))
            self.complete = [each for each in self.complete if each is not run and each.start >= first_kept]
            self.runs = [each for each in self.runs if each.start >= first_kept]
        return made

    def _skipped_to(self, run: _Run, view: Mapping[str | None, list[dict[str, Any]]]) -> int:
        """Return the number of the first row at which another match may begin."""
        how, variable = self.spec.skip
        rows = [row for _, row in run.rows]
        if how == "PAST LAST ROW":
            return int(rows[-1][_NUMBER]) + 1
        if how == "TO NEXT ROW" or not view.get(variable):
            return run.start + 1
        return int(view[variable][0 if how == "TO FIRST" else -1][_NUMBER])


@dataclass(frozen=True)
class _Way:
    """One way to match the rows so far: where it goes on, and what each row stands for."""

    at: int
    rows: Taken


@dataclass(frozen=True)
class _Held:
    """The row before which no result can have its time."""

    rows: Taken


class GroupPartition:
    """The rows of one key from the first at which a match may begin, and the ways to match them."""

    def __init__(
        self, program: Program, definitions: Mapping[str, Node], measures: Mapping[str, Node], skip: tuple[str, str],
        within_us: int | None,
    ) -> None:  # fmt: skip
        self._code = program.code
        self._variables = program.variables
        self._definitions = definitions
        self._measures = measures
        self._skip = skip
        self._within_us = within_us
        self._rows: list[dict[str, Any]] = []
        #: The ways that are better than the match found so far, in the order of preference.
        self.runs: list[_Way] = []
        self._best: Taken | None = None
        self._number = 0
        self.awaited: int | None = None

    @property
    def is_idle(self) -> bool:
        return not self._rows

    @property
    def complete(self) -> list[_Held]:
        return [_Held((("", self._rows[0]),))] if self._rows else []

    @property
    def deadline_us(self) -> int | None:
        return None if self._within_us is None or not self._rows else int(self._rows[0][_TS]) + self._within_us

    def take(self, row: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Take the next row; return the last time and the measures of the matches that are decided by it."""
        made = self._expire(int(row[_TS]))
        self._number += 1
        self._rows.append({**row, _NUMBER: self._number})
        return [*made, *self._followed(len(self._rows) - 1)]

    def expire(self, time_us: int) -> list[tuple[Any, ...]]:
        """Decide what no row from a time on can belong to; at the end of the input, everything."""
        return self._expire(time_us, ends=time_us >= 2**62)

    def _expire(self, time_us: int, *, ends: bool = False) -> list[tuple[Any, ...]]:
        made: list[tuple[Any, ...]] = []
        while self._rows and (
            ends or (self._within_us is not None and time_us - self._rows[0][_TS] >= self._within_us)
        ):
            made += self._settled()
        return made

    def _followed(self, place: int) -> list[tuple[Any, ...]]:
        """Take held rows from a place on; return the measures of the matches that are decided."""
        made: list[tuple[Any, ...]] = []
        while place < len(self._rows):
            row = self._rows[place]
            ways = self._closure(0, ()) if place == 0 else self.runs
            self.runs = self._advanced(ways, row)
            place += 1
            if not self.runs:
                made += self._one_settled()
                place = 0
        return made

    def _settled(self) -> list[tuple[Any, ...]]:
        """Decide the match that begins at the first row held, and follow the rows behind it again."""
        made = self._one_settled()
        return [*made, *self._followed(0)]

    def _one_settled(self) -> list[tuple[Any, ...]]:
        best, self._best, self.runs = self._best, None, []
        if best is None:
            del self._rows[0]
            return []
        view = self._view(best)
        made = (int(best[-1][1][_TS]), *(evaluated(node, view) for node in self._measures.values()))
        begins = max(int(self._rows[0][_NUMBER]) + 1, self._skipped_to(best, view))
        self._rows = [row for row in self._rows if row[_NUMBER] >= begins]
        return [made]

    def _skipped_to(self, rows: Taken, view: Mapping[str | None, Sequence[dict[str, Any]]]) -> int:
        how, variable = self._skip
        if how == "PAST LAST ROW":
            return int(rows[-1][1][_NUMBER]) + 1
        if how == "TO NEXT ROW" or not view.get(variable):
            return 0
        return int(view[variable][0 if how == "TO FIRST" else -1][_NUMBER])

    def _advanced(self, ways: Sequence[_Way], row: dict[str, Any]) -> list[_Way]:
        """Return the ways that go on with a row; a match ends those that are less preferred."""
        going: list[_Way] = []
        for way in ways:
            variable = self._code[way.at][1]
            rows = (*way.rows, (variable, row))
            if not self._fits(variable, rows):
                continue
            for after in self._closure(way.at + 1, rows):
                if self._code[after.at][0] == "match":
                    self._best = rows
                    return going
                going.append(after)
            if len(going) > WAYS_MAX:
                raise DataError("too many ways", hint="add WITHIN")
        return going

    def _closure(self, at: int, rows: Taken) -> list[_Way]:
        """Return the places that want a row, or are the end, from a place on, in the order of preference."""
        found: list[_Way] = []
        seen: set[int] = set()
        waiting = [at]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue  # once more around a group without a row
            seen.add(place)
            step = self._code[place]
            if step[0] == "jump":
                waiting.append(step[1])
            elif step[0] == "split":
                waiting += [step[2], step[1]]
            else:
                found.append(_Way(place, rows))
        return found

    def _fits(self, variable: str, rows: Taken) -> bool:
        definition = self._definitions.get(variable)
        return definition is None or evaluated(definition, self._view(rows)) is True

    def _view(self, rows: Taken) -> dict[str | None, list[dict[str, Any]]]:
        view: dict[str | None, list[dict[str, Any]]] = {variable: [] for variable in self._variables}
        view[None] = [row for _, row in rows]
        for variable, row in rows:
            view[variable].append(row)
        return view


def evaluated(node: Node, view: Mapping[str | None, list[dict[str, Any]]]) -> Any:
    """Return the value of a node, with SQL's logic of NULL."""
    kind = node[0]
    if kind == "value":
        return node[1]
    if kind == "interval":
        return timedelta(microseconds=node[1])
    if kind == "null":
        return evaluated(node[1], view) is None
    if kind == "not":
        value = evaluated(node[1], view)
        return None if value is None else not value
    if kind in ("and", "or"):
        left = evaluated(node[1], view)
        if left is (kind == "or"):
            return left
        right = evaluated(node[2], view)
        if right is (kind == "or"):
            return right
        return None if left is None or right is None else kind == "and"
    if kind in _AGGREGATED:
        return _aggregated(kind, node, view)
    if kind == "case":
        for at in range(1, len(node) - 1, 2):
            if evaluated(node[at], view) is True:
                return evaluated(node[at + 1], view)
        return evaluated(node[-1], view)
    if kind == "call":
        _, text, kinds, *parts = node
        return called(text, kinds, [evaluated(part, view) for part in parts])
    left, right = evaluated(node[1], view), evaluated(node[2], view)
    return None if left is None or right is None else BINARY[kind](left, right)


_AGGREGATED = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST")


def _aggregated(kind: str, node: Node, view: Mapping[str | None, list[dict[str, Any]]]) -> Any:
    _, variable, column, distance = node
    rows = view.get(variable, [])
    if kind == "COUNT":
        return len(rows) if column is None else sum(1 for row in rows if row[column] is not None)
    if kind in ("FIRST", "LAST"):
        at = distance if kind == "FIRST" else len(rows) - 1 - distance
        return rows[at][column] if 0 <= at < len(rows) else None
    values = [row[column] for row in rows if row[column] is not None]
    if not values:
        return None
    if kind in ("MIN", "MAX"):
        return min(values) if kind == "MIN" else max(values)
    total = sum(values[1:], values[0])
    return total if kind == "SUM" else divided(total, len(values)) if isinstance(total, int) else total / len(values)
