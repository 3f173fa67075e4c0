"""The operator of MATCH_RECOGNIZE: rows of each key in the order of their times, and the matches that are under way.

A row that comes next is tried for the variable at hand (once more) and for those that may follow. Greedy variables take every row that
they can, as in Flink: those that may follow get what is left of them. How rows are taken: conditions on one row alone are evaluated in
columns (``match_frames``), rows are followed by a function written for the pattern (``match_walker``), and of each key
only the matches that begin at the first row kept are followed (``match_keys``).
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Context, localcontext
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import (
    INDEX,
    OFFSET,
    WATERMARK,
    Batch,
    EndOfInput,
    Queue,
    SystemMessage,
    Tick,
    Watermark,
    watermark_times,
)
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.frozen_state import FrozenState, StateContent
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.shares import Reached, Renumbering, joined, numbers, renumbered, rows_of, snapshots
from headrace_stateful.keys.state_bytes import pack, pack_into, unpack
from headrace_stateful.keys.state_columns import kept_columns
from headrace_stateful.keys.ticks import ttl_tick_seconds

from headrace_sql.operators import match_measures, match_walker
from headrace_sql.operators.match_automaton import PatternPart, of_parts, of_program
from headrace_sql.operators.match_deadlines import Deadlines
from headrace_sql.operators.match_frames import Key, RowMaker
from headrace_sql.operators.match_groups import Program
from headrace_sql.operators.match_keys import END, Decided, Held, Matcher, Reject
from headrace_sql.operators.match_rows import MARK, NEVER, SEQUENCE, TIME
from headrace_sql.operators.match_source import leaves
from headrace_sql.operators.match_values import FAILURES, Node
from headrace_sql.operators.match_walker import Row


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
            raise PlanError("MATCH_RECOGNIZE needs rows that are only added, and its input changes")
        return None

    def columns(self) -> list[str]:
        """Return the columns that conditions and measures read."""
        nodes = (*self.definitions.values(), *self.measures.values())
        return list(dict.fromkeys(leaf[2] for node in nodes for leaf in leaves(node) if leaf[2] is not None))

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


class RunningMatch(FrozenOperator):
    """The running operator. State: rows that wait for the watermark, and per key the rows that matches under way still need."""

    def __init__(self, spec: MatchRecognize, schema: Schema) -> None:
        self._spec = spec
        self._columns = spec.kept()
        kinds = {name: schema[name] for name in self._columns}
        extra = {SEQUENCE: pl.Int64(), TIME: pl.Int64(), MARK: pl.Int64()}
        self._waiting = pl.DataFrame(schema={**kinds, **extra})
        automaton = of_parts(spec.pattern) if spec.program is None else of_program(spec.program)
        columns = [name for name in self._columns if name not in spec.keys or name in spec.columns()]
        numbered = match_measures.numbered(spec.definitions, spec.measures, columns, kinds)
        walker = match_walker.walker(automaton, spec.definitions, columns, kinds, spec.within_us)
        self._matcher = Matcher(automaton, walker, spec.skip, spec.within_us)
        self._maker = RowMaker(spec.keys, columns, kinds, numbered, automaton, spec.definitions, walker)
        self._measures = match_measures.Measures(
            spec.measures, spec.types, automaton.variables, columns, kinds, numbered
        )
        #: Of each key its rows and the match under way; a row alone when it is the first and no other one was taken.
        self._held: dict[Key, Held | Row] = {}
        self._deadlines = Deadlines()
        #: By key the time of the first match that is complete and not given yet; the watermark that was passed on.
        self._complete: dict[Key, int] = {}
        self._told = NEVER
        self._sequence = 0
        self._watermark = NEVER
        self._now_us = 0
        self._late = 0
        self._changed = False
        #: Rows and matches for which an expression fails, to be told: (key, row, reason).
        self._failed: list[tuple[Key, Row, Exception]] = []
        self._last_offset = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        if frame.height and OFFSET in frame.columns:
            self._last_offset = int(frame[OFFSET][-1])
        if self._spec.on is None:
            yield from self._at_once(batch)
            return
        timeless = frame[self._spec.on].is_null()
        if timeless.any():
            reason = f"no time in column {self._spec.on!r}: the row has no place in the order"
            yield RejectedRows(frame.filter(timeless), [reason] * int(timeless.sum()))
            frame = frame.filter(~timeless)
        rows = frame.select(self._columns).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(SEQUENCE),
            pl.col(self._spec.on).dt.epoch("us").alias(TIME), pl.Series(MARK, watermark_times(frame)),
        )  # fmt: skip
        self._sequence += frame.height
        self._changed = True
        # A row before the watermark is late: rows with later times have been matched already.
        on_time = rows.filter(pl.col(TIME) >= pl.col(MARK))
        self._late += rows.height - on_time.height
        self._waiting = pl.concat([self._waiting, on_time])

    def _at_once(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        """Take rows by the clock. What is given has the watermark of the rows that were taken."""
        frame = batch.frame
        rows = frame.select(self._columns).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(SEQUENCE),
            pl.lit(self._now_us, dtype=pl.Int64).alias(TIME), pl.Series(MARK, watermark_times(frame)),
        )  # fmt: skip
        self._sequence += frame.height
        for given in self._matched(batch.queue, rows, self._now_us):
            if isinstance(given, RejectedRows) or WATERMARK not in frame.columns:
                yield given
            else:
                mark = pl.lit(frame[WATERMARK][-1], dtype=pl.Int64)
                yield given.with_frame(given.frame.with_columns(mark.alias(WATERMARK)))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        if self._spec.on is None:
            if isinstance(message, Tick):
                self._now_us = max(self._now_us, message.time_us)
            if isinstance(message, Tick | EndOfInput):
                ends_us = self._now_us if isinstance(message, Tick) else END
                if self._deadlines.is_due(ends_us) or (self._spec.program and ends_us == END):
                    yield from self._matched(Queue("clock"), self._waiting.clear(), ends_us)
            return
        if isinstance(message, Watermark):
            yield from self._reached(message.queue, message.time_us)
            # Of a match that is complete and waits for one that began before it the time is known: it is not to be late behind.
            self._told = max(self._told, min([message.time_us, *(time - 1 for time in self._complete.values())]))
            if self._told < message.time_us:
                yield Watermark(message.queue, self._told)
        elif isinstance(message, EndOfInput):
            if self._waiting.height:
                last: Any = self._waiting[TIME].max()
                yield from self._reached(Queue("end"), max(int(last) + 1, self._watermark))
            if self._deadlines or self._spec.program:  # no further row can complete partial matches
                yield from self._matched(Queue("end"), self._waiting.clear(), END)

    def _reached(self, queue: Queue, time_us: int) -> Iterable[Batch | RejectedRows]:
        if time_us <= self._watermark:
            return
        self._watermark = time_us
        self._changed = True
        due = pl.col(TIME) < time_us
        rows = self._waiting.filter(due).sort(TIME, *self._spec.order, SEQUENCE)
        self._waiting = self._waiting.filter(~due)
        yield from self._matched(queue, rows, time_us)

    def _matched(self, queue: Queue, rows: pl.DataFrame, time_us: int) -> Iterable[Batch | RejectedRows]:
        """Take rows in their order, and leave out matches under way that are too old at a time; return the results that this decides."""
        given = self._decided(queue, rows, time_us)
        if self._failed:
            yield self._rejected()
        if given is not None:
            yield given

    def _rejected(self) -> RejectedRows:
        """Return what an expression failed for: a row of DEFINE, the last row of a match of MEASURES."""
        failed, self._failed = self._failed, []
        frame = self._kept([[row] for _, row, _ in failed], [key for key, _, _ in failed])
        place = pl.lit(self._last_offset, dtype=pl.Int64).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX)
        frame = frame.select(self._columns).with_columns(*place)
        return RejectedRows(frame, [str(error) for *_, error in failed], [type(error).__name__ for *_, error in failed])

    def _decided(self, queue: Queue, rows: pl.DataFrame, time_us: int) -> Batch | None:
        self._changed = True
        with _no_collections(), localcontext(_EXACT):
            found = self._taken(rows)
            found.sort(key=_place)  # in the order of the rows that decided them
            found += self._ended() if self._spec.program and time_us == END else self._expired(time_us)
            if not found:
                return None
            found, frame = self._results(found)
            if not found:
                return None
        if self._spec.on is None:
            return Batch(queue, frame)
        # Results of one step of the watermark: an earlier one of them does not make a later one late for the next stage.
        marks = np.array([last[match_walker.TIME] - 1 for _, _, _, last in found], dtype=np.int64)
        least = np.minimum.accumulate(marks[::-1])[::-1]
        return Batch(queue, frame.with_columns(pl.Series(WATERMARK, least, dtype=pl.Int64)))

    def _taken(self, rows: pl.DataFrame) -> list[_Found]:
        """Take rows of a step; return the results that they decide."""
        found: list[_Found] = []
        held, tells, within_us = self._held, self._maker.tells_beginnings, self._spec.within_us
        for part in self._maker.parts(rows, held):
            key, new = part.key, part.rows
            known = held.get(key)
            if known is None:
                if tells and len(new) == 1:  # the most frequent case: the row begins a match, and that is all
                    held[key] = new[0]
                    if within_us is not None:
                        self._deadlines.note(new[0][match_walker.TIME] + within_us, key)
                        if self._spec.program:
                            self._note_complete(key, Held(new))
                    continue
                known = Held(new)
            elif isinstance(known, tuple):
                known = self._with_deadline(Held([known, *new]))
            else:
                known.rows += new
            before = len(known.rows) - len(new)
            for place, first, match, taken in self._matcher.decided(known, self._reject(key)):
                at = min(max(place - before, 0), len(new) - 1)
                self._result(found, part.places[at], key, taken, first, match)
            self._settle(key, known)
        self._deadlines.seal()
        return found

    def _with_deadline(self, held: Held) -> Held:
        if self._spec.within_us is not None:
            held.noted_us = self._matcher.deadline_us(held)
        return held

    def _reject(self, key: Key) -> Reject:
        return lambda row, error: self._failed.append((key, row, error))

    def _result(
        self, found: list[_Found], place: int, key: Key, rows: list[Row], first: int, match: match_walker.Match
    ) -> None:
        """Add the result of a match, if its measures do not fail."""
        last = rows[first + match[1] - 1]
        try:
            found.append((place, key, self._measures.of(rows, first, match), last))
        except FAILURES as error:
            self._failed.append((key, last, error))

    def _ended(self) -> list[_Found]:
        """Return what patterns with groups have found by the end of the input: that is a match."""
        self._deadlines = Deadlines()
        return [each for key in list(self._held) for each in self._over(key, END)]

    def _expired(self, time_us: int) -> list[_Found]:
        """Return the results that are decided when partial matches exceed WITHIN, at the present event time."""
        found: list[_Found] = []
        for deadline_us, key in self._deadlines.due(time_us):
            held = self._held.get(key)
            if held is None:
                continue
            noted_us = held[match_walker.TIME] + self._spec.within_us if isinstance(held, tuple) else held.noted_us
            if noted_us == deadline_us:
                found += self._over(key, time_us)
        self._deadlines.seal()
        return found

    def _over(self, key: Key, time_us: int) -> list[_Found]:
        """Return the results of a key when no more rows before a time can come."""
        held = self._held[key]
        if isinstance(held, tuple):
            if not self._spec.program:
                del self._held[key]
                return []
            held = Held([held])
        decided: Decided = self._matcher.decided(held, self._reject(key), time_us)
        held.noted_us = None
        self._settle(key, held)
        found: list[_Found] = []
        for _, first, match, rows in decided:
            self._result(found, 0, key, rows, first, match)
        return found

    def _settle(self, key: Key, held: Held) -> None:
        """Forget a key without matches under way; note when the oldest of another ends by WITHIN."""
        if not held.rows:
            self._held.pop(key, None)
            self._complete.pop(key, None)
            return
        self._held[key] = held
        if self._spec.within_us is not None:
            if held.noted_us is None:
                held.noted_us = self._matcher.deadline_us(held)
                self._deadlines.note(held.noted_us, key)
            self._note_complete(key, held)

    def _note_complete(self, key: Key, held: Held) -> None:
        if self._spec.on is None:
            return
        waits_us = self._matcher.waits_us(held)
        if waits_us is None:
            self._complete.pop(key, None)
        else:
            self._complete[key] = waits_us

    def _results(self, found: list[_Found]) -> tuple[list[_Found], pl.DataFrame]:
        """Return the matches whose measures do not fail, and their results."""
        made = {name: self._waiting.schema[name] for name in self._spec.keys}
        columns = [
            pl.Series(name, [key[place] for _, key, _, _ in found], dtype=kind)
            for place, (name, kind) in enumerate(made.items())
        ]
        measured, failed = self._measures.columns([values for _, _, values, _ in found])
        frame = pl.DataFrame([*columns, *measured.values()])
        if not failed:
            return found, frame
        self._failed += [(found[place][1], found[place][3], error) for place, error in failed.items()]
        kept = [place for place in range(len(found)) if place not in failed]
        return [found[place] for place in kept], frame[kept]

    def late_rows(self) -> int:
        return self._late

    def frozen(self, *, whole: bool) -> FrozenState:
        if not whole and not self._changed:
            return FrozenState.of(b"")
        self._changed = False
        waiting, keys = self._waiting, list(self._held)
        # Lists of rows are only appended to: to know how long they are is enough.
        lists = [held if isinstance(held, tuple) else held.rows for held in self._held.values()]
        counts = [1 if isinstance(held, tuple) else len(held.rows) for held in self._held.values()]
        marks = {"sequence": self._sequence, "watermark": self._watermark, "now": self._now_us}

        def write(content: StateContent) -> None:
            rows = [
                [each] if isinstance(each, tuple) else each[:count] for each, count in zip(lists, counts, strict=True)
            ]
            # In parts, between which other threads can run.
            begins = range(0, max(1, len(keys)), _PART_KEYS)
            kept = pl.concat([self._kept(rows[at : at + _PART_KEYS], keys[at : at + _PART_KEYS]) for at in begins])
            # Each row may begin a match behind the one that is followed.
            starts = [[row[match_walker.SEQUENCE] for row in each] for each in rows]
            pack_into(content, "snapshot", {"waiting": waiting, "kept": kept}, {**marks, "starts": starts})

        return FrozenState.written(write, waiting.height + len(keys))

    def _kept(self, rows: list[list[Row]], keys_of_rows: list[Key]) -> pl.DataFrame:
        """Return rows with their keys, key by key. They are taken again when the state is applied, and lead to the same matches."""
        made = self._maker.frame(list(itertools.chain.from_iterable(rows)), self._waiting.schema)
        if self._spec.keys:
            kinds = {name: self._waiting.schema[name] for name in self._spec.keys}
            keys = pl.DataFrame(keys_of_rows, schema=kinds, orient="row")
            counts = [len(each) for each in rows]
            made = made.with_columns(keys[np.repeat(np.arange(len(rows)), counts)].get_columns())
        return made.with_columns(pl.lit(None, dtype=pl.Int64).alias(MARK)).select(self._waiting.columns)

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._waiting = frames["waiting"]
        self._sequence, self._watermark = int(values["sequence"]), int(values["watermark"])
        self._now_us = max(self._now_us, int(values.get("now", 0)))  # states of before do not have it
        self._held, self._deadlines, self._complete = {}, Deadlines(), {}
        with localcontext(_EXACT):
            self._taken(frames["kept"])  # decides nothing: the first match of each key was under way
        self._changed = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, order, parts, starts, now_us = Reached(), Renumbering(), [], list[list[int]](), 0
        for frames, values in snapshots(states):
            waiting, kept = frames["waiting"], frames["kept"]
            reached.add(int(values["watermark"]), waiting[TIME])
            now_us = max(now_us, int(values.get("now", 0)))
            waiting, kept = (rows_of(frame, share.holds(frame)) for frame in (waiting, kept))
            new = order.of(np.sort(np.concatenate([numbers(waiting, SEQUENCE), numbers(kept, SEQUENCE)])))
            parts.append([renumbered(frame, SEQUENCE, new.to(numbers(frame, SEQUENCE))) for frame in (waiting, kept)])
            # A match under way has its first row among the rows that are kept; keys stand in the order of theirs.
            theirs = [new.to(np.array(each, dtype=np.int64)) for each in values["starts"]]
            starts += [each.tolist() for each in theirs if len(each) and each[0] >= 0]
        made = {name: joined([part[place] for part in parts]) for place, name in enumerate(("waiting", "kept"))}
        values = {"sequence": order.next, "watermark": reached.time_us(), "now": now_us, "starts": starts}
        return pack("snapshot", made, values)

    def state_rows(self) -> int:
        held = sum(1 if isinstance(each, tuple) else len(each.rows) for each in self._held.values())
        return self._waiting.height + held


#: Of so many keys the rows are put together at once for a checkpoint.
_PART_KEYS = 2048
#: Decimals of 38 digits are added and multiplied without rounding; Python's own context has 28 digits.
_EXACT = Context(prec=80)
#: (place of the row that decided it, key, values, its last row) of a match.
_Found = tuple[int, Key, tuple[Any, ...], Row]


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep Python's collector of cycles from looking at the tuples of a step again and again: they are in no cycle."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _place(found: _Found) -> int:
    return found[0]


__all__ = ["MatchRecognize", "PatternPart", "RunningMatch"]
