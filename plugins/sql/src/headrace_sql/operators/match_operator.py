"""The operator of MATCH_RECOGNIZE: rows of each key in the order of their times, and the matches that are under way.

A match under way is a list of rows, each with the variable that it stands for. A row that comes next is tried for the variable at hand
(once more) and for those that may follow. Greedy variables take every row that they can, as in Flink: those that may follow get what is
left of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.keys.shares import Reached, Renumbering, joined, numbers, renumbered, rows_of, snapshots
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import kept_columns
from headrace_stateful.keys.ticks import ttl_tick_seconds

from headrace_sql.operators.match_groups import GroupPartition, Program
from headrace_sql.operators.match_rows import NEVER, NUMBER, SEQUENCE, TIME
from headrace_sql.operators.match_values import Node, evaluated

_END = 2**62
_SEQ, _TS, _MARK, _NUMBER = SEQUENCE, TIME, "__mr_mark", NUMBER


@dataclass(frozen=True)
class PatternPart:
    """One variable of the pattern and how many rows it may stand for; ``most`` None: any number."""

    variable: str
    least: int
    most: int | None
    greedy: bool = True

    @property
    def is_exclusive(self) -> bool:
        """Whether the variables behind it get only rows that this one cannot take: with ``*``, ``+``, ``{n,m}``, not with ``?``."""
        return self.greedy and self.least != self.most and (self.least, self.most) != (0, 1)


class MatchRecognize(StatefulSpec):
    """Gives one row per match: the key and the measures. ``on``: the event-time column; None: processing time.

    In processing time rows are taken at once, as they come; ``within_us`` goes by the clock when they were taken in.
    """

    name: ClassVar[str] = "match_recognize"

    def __init__(
        self, *, keys: tuple[str, ...], on: str | None, order: tuple[str, ...], pattern: tuple[PatternPart, ...],
        definitions: Mapping[str, Node],
        measures: Mapping[str, Node], types: Mapping[str, pl.DataType], skip: tuple[str, str], within_us: int | None,
        program: Program | None = None,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.on = on
        self.order = order
        self.pattern = pattern
        self.definitions = dict(definitions)
        self.measures = dict(measures)
        self.types = dict(types)
        self.skip = skip
        self.within_us = within_us
        #: Of a pattern with groups or alternatives; then ``pattern`` holds its variables.
        self.program = program

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        return Schema({**{name: schema[name] for name in self.keys}, **self.types})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("MATCH_RECOGNIZE takes rows that are only added, not results that change")
        return None

    def columns(self) -> list[str]:
        """Return the columns that conditions and measures read."""
        found: dict[str, None] = {}

        def walk(node: Node) -> None:
            if node[0].isupper() and len(node) == 4 and node[2] is not None:
                found[node[2]] = None
            for part in node[1:]:
                if isinstance(part, tuple):
                    walk(part)

        for node in (*self.definitions.values(), *self.measures.values()):
            walk(node)
        return list(found)

    def open(self, schema: Schema | None) -> StatefulOperator:
        assert schema is not None
        return RunningMatch(self, schema)

    def definition(self, schema: Schema | None) -> StateDefinition:
        assert schema is not None
        settings = {
            "on": "processing time" if self.on is None else quoted(self.on), "within_us": self.within_us,
            "order": [quoted(name) for name in self.order], "skip": list(self.skip),
            "pattern": [[part.variable, part.least, part.most, part.greedy] for part in self.pattern],
            "definitions": {name: repr(node) for name, node in sorted(self.definitions.items())},
            "measures": {name: repr(node) for name, node in sorted(self.measures.items())},
        }  # fmt: skip
        if self.program is not None:
            settings["groups"] = self.program.text
        return StateDefinition(self.name, settings, self.keys, kept_columns(schema, self.kept()))

    def kept(self) -> list[str]:
        """Return the columns of the rows that the state holds."""
        on = [] if self.on is None else [self.on]
        return list(dict.fromkeys([*self.keys, *on, *self.order, *self.columns()]))

    @property
    def tick_seconds(self) -> float | None:
        return ttl_tick_seconds(self.within_us) if self.on is None else None

    def describe(self) -> str:
        parts = [] if self.program is None else [self.program.text]
        for part in self.pattern if self.program is None else ():
            most = "" if part.most is None else part.most
            parts.append(
                part.variable if (part.least, part.most) == (1, 1) else f"{part.variable}{{{part.least},{most}}}"
            )
        skip = " ".join(self.skip).strip()
        return f"per {', '.join(self.keys) or 'all'} by {self.on or 'processing time'}: {' '.join(parts)}, skip {skip}"


@dataclass
class _Run:
    """A match under way: ``rows`` are (place in the pattern, row), ``start`` the number of its first row in its key."""

    start: int
    place: int
    count: int
    rows: tuple[tuple[int, dict[str, Any]], ...]


class RunningMatch(StatefulOperator):
    """The running operator. State: rows that wait for the watermark, and per key the rows that matches under way still need."""

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
        self._late = 0
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        if self._spec.on is None:
            yield from self._at_once(batch)
            return
        timeless = frame[self._spec.on].is_null()
        if timeless.any():
            reason = f"no time in column {self._spec.on!r}: the row has no place in the order"
            yield RejectedRows(frame.filter(timeless), [reason] * int(timeless.sum()))
            frame = frame.filter(~timeless)
        rows = frame.select(self._columns).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(_SEQ),
            pl.col(self._spec.on).dt.epoch("us").alias(_TS), pl.Series(_MARK, watermark_times(frame)),
        )  # fmt: skip
        self._sequence += frame.height
        self._changed = True
        # A row that the watermark has passed when it comes is late: what stands behind it in time has been matched.
        on_time = rows.filter(pl.col(_TS) >= pl.col(_MARK))
        self._late += rows.height - on_time.height
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

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
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
        self._changed = True
        due = pl.col(_TS) < time_us
        rows = self._waiting.filter(due).sort(_TS, *self._spec.order, _SEQ)
        self._waiting = self._waiting.filter(~due)
        yield from self._matched(queue, rows, time_us)

    def _matched(self, queue: Queue, rows: pl.DataFrame, time_us: int) -> Iterable[Batch]:
        """Take rows in their order, and leave out matches under way that are too old at a time; give what is decided by that."""
        self._changed = True
        found: list[tuple[Any, ...]] = []
        marks: list[int] = []
        for row in rows.iter_rows(named=True):
            key = tuple(row[name] for name in self._spec.keys)
            partition = self._partitions.get(key)
            if partition is None:
                partition = self._partitions[key] = _partition(self._spec)
            for match in partition.take(row):
                found.append((*key, *match))
                marks.append(partition.last_time_us - 1)
            self._settle(key, partition)
        for key, partition in self._ended() if self._spec.program and time_us == _END else self._expired(time_us):
            for match in partition.expire(time_us):
                found.append((*key, *match))
                marks.append(partition.last_time_us - 1)
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

    def late_rows(self) -> int:
        return self._late

    def delta(self) -> bytes:
        return self.snapshot() if self._changed else b""

    def snapshot(self) -> bytes:
        self._changed = False
        # Rows of matches under way are taken again when the state is applied: they lead to the same matches and deadlines.
        kept = [row for partition in self._partitions.values() for row in partition.history()]
        frames = {"waiting": self._waiting, "kept": pl.DataFrame(kept, schema=self._waiting.schema, orient="row")}
        starts = [partition.starts() for partition in self._partitions.values()]
        return pack("snapshot", frames, {"sequence": self._sequence, "watermark": self._watermark, "starts": starts})

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._waiting = frames["waiting"]
        self._sequence, self._watermark = int(values["sequence"]), int(values["watermark"])
        self._partitions = {}
        order = iter(values["starts"])
        for row in frames["kept"].iter_rows(named=True):
            key = tuple(row[name] for name in self._spec.keys)
            partition = self._partitions.get(key)
            if partition is None:
                partition = self._partitions[key] = _partition(self._spec, restored=frozenset(next(order)))
            partition.take(row)
        self._deadlines, self._held = [], {}
        for key, partition in self._partitions.items():
            partition.restored = None
            self._settle(key, partition)
        self._changed = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, order, parts, starts = Reached(), Renumbering(), [], list[list[int]]()
        for frames, values in snapshots(states):
            waiting, kept = frames["waiting"], frames["kept"]
            reached.add(int(values["watermark"]), waiting[_TS])
            waiting, kept = (rows_of(frame, share.holds(frame)) for frame in (waiting, kept))
            new = order.of(np.sort(np.concatenate([numbers(waiting, _SEQ), numbers(kept, _SEQ)])))
            parts.append([renumbered(frame, _SEQ, new.to(numbers(frame, _SEQ))) for frame in (waiting, kept)])
            # A match under way has its first row among the rows that are kept; keys stand in the order of theirs.
            theirs = [new.to(np.array(each, dtype=np.int64)) for each in values["starts"]]
            starts += [each.tolist() for each in theirs if len(each) and each[0] >= 0]
        made = {name: joined([part[place] for part in parts]) for place, name in enumerate(("waiting", "kept"))}
        values = {"sequence": order.next, "watermark": reached.time_us(), "starts": starts}
        return pack("snapshot", made, values)

    def state_rows(self) -> int:
        return self._waiting.height + sum(
            len(partition.runs) + len(partition.complete) for partition in self._partitions.values()
        )


def _partition(spec: MatchRecognize, *, restored: frozenset[int] | None = None) -> _Partition | GroupPartition:
    if spec.program is None:
        return _Partition(spec, restored=restored)
    return GroupPartition(spec.program, spec.definitions, spec.measures, spec.skip, spec.within_us)


class _Partition:
    """The matches of one key: under way, and complete but waiting for one that began earlier.

    ``restored``: the first rows (by their sequence) of the matches that a state held; others are not begun again.
    """

    def __init__(self, spec: MatchRecognize, *, restored: frozenset[int] | None = None) -> None:
        self.spec = spec
        self.runs: list[_Run] = []
        self.complete: list[_Run] = []
        self.restored = restored
        #: Time of the last row of the match that was given last.
        self.last_time_us = NEVER + 1
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

    def starts(self) -> list[int]:
        return sorted({int(run.rows[0][1][_SEQ]) for run in (*self.runs, *self.complete)})

    def history(self) -> list[dict[str, Any]]:
        """Return the rows that matches hold, in the order in which they were taken."""
        rows = {row[_NUMBER]: row for run in (*self.runs, *self.complete) for _, row in run.rows}
        return [{name: value for name, value in rows[number].items() if name != _NUMBER} for number in sorted(rows)]

    def take(self, row: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Take the next row; return the measures of the matches that are decided by it."""
        self._number += 1
        row = {**row, _NUMBER: self._number}
        self._prune(row[_TS])
        made = [] if self.restored is not None else self._decided()
        begins = self.restored is None or row[_SEQ] in self.restored
        going: list[_Run] = []
        for run in [*self.runs, *([_Run(self._number, 0, 0, ())] if begins else [])]:
            for after in self._advanced(run, row):
                (self.complete if self._is_complete(after) else going).append(after)
        self.runs = going
        return made if self.restored is not None else [*made, *self._decided()]

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
            made.append(tuple(evaluated(node, view) for node in self.spec.measures.values()))
            self.last_time_us = int(run.rows[-1][1][_TS])
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
