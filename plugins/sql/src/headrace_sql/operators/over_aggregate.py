"""Aggregates over the rows before each row: ``SUM(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)``.

In event time a row waits until the watermark has reached its time; rows of one key are then taken in the order of their times, those
of equal times as they came. A row that comes when one of its key with the same or a later time has been given is late: it is dropped
and counted, and goes to the output ``late``. Where all frames are RANGE with a length, a key is forgotten when the watermark is one and a
half frames behind its last row, as in Flink: a row that comes late then begins anew.

In processing time a row is given at once, with the rows that came before it. RANGE with a length goes by the clock when the rows were
taken in: rows that were taken in together have the same time, and so belong to each other's frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.shares import Reached, Renumbering, joined, numbers, renumbered, rows_of, snapshots
from headrace_stateful.keys.state_bytes import frozen_frames, pack, unpack
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns
from headrace_stateful.keys.ticks import ttl_tick_seconds

from headrace_sql.operators.over_functions import GROUP, ORDER, OverCall, over

NEVER = -(2**63)
_END = 2**62
_SEQ, _TS, _GROUP, _AT = "__over_seq", ORDER, GROUP, "__over_at"
#: What the watermark has to pass for a row to be given: its time, and where the watermark was when the row came behind it.
_DUE = pl.max_horizontal(_TS, _AT)


class OverAggregate(StateInColumns):
    """Adds the results of OVER aggregates to each row. ``on``: the event-time column; None: processing time.

    ``further`` holds (column, descending) of what orders rows of equal event time; NULL is the least value.
    """

    name: ClassVar[str] = "over_aggregate"
    outputs: Sequence[str] = ("", "late")

    def __init__(
        self, keys: Sequence[str], on: str | None, calls: Mapping[str, OverCall], *, further: Sequence[tuple[str, bool]] = ()
    ) -> None:  # fmt: skip
        self.keys = tuple(keys)
        self.further = tuple(further)
        self.on = on
        # In processing time no two rows need have different times: what RANGE takes in without a bound are the rows before.
        by_rows = {name: replace(call, kind="ROWS") for name, call in calls.items() if call.preceding is None}
        self.calls = {**calls, **(by_rows if on is None else {})}

    @property
    def clock_length_us(self) -> int | None:
        """How far back frames reach by processing time; None if no frame uses processing time."""
        if self.on is not None:
            return None
        return max((call.preceding or 0 for call in self.calls.values() if call.kind == "RANGE"), default=None)

    @property
    def forgets_after_us(self) -> int | None:
        """How far the watermark is behind the last row of a key when it is forgotten; None: never."""
        if self.on is None or any(call.kind != "RANGE" or call.preceding is None for call in self.calls.values()):
            return None
        # Flink's timers come between one frame and one and a half, and a millisecond later.
        return max(call.preceding or 0 for call in self.calls.values()) * 3 // 2 + 1000

    @property
    def tick_seconds(self) -> float | None:
        return ttl_tick_seconds(self.clock_length_us)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        if output == "late":
            return schema
        return Schema({**schema, **{name: call.result_type(schema) for name, call in self.calls.items()}})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("OVER needs rows that are only added, and its input changes")
        return None

    def open(self, schema: Schema | None) -> StatefulOperator:
        assert schema is not None
        return RunningOver(self, schema)

    def definition(self, schema: Schema | None) -> StateDefinition:
        assert schema is not None
        calls = [call.setting() for call in self.calls.values()]
        on = "processing time" if self.on is None else quoted(self.on)
        settings: dict[str, Any] = {"calls": sorted(calls, key=repr), "on": on}
        if self.further:
            settings["further"] = [f"{quoted(name)}{' desc' if down else ''}" for name, down in self.further]
        return StateDefinition(self.name, settings, self.keys, kept_columns(schema))

    def describe(self) -> str:
        calls = ", ".join(f"{name}={call.function}({call.argument or '*'})" for name, call in self.calls.items())
        return f"per {', '.join(self.keys) or 'all'} by {self.on or 'processing time'}: {calls}"


class RunningOver(FrozenOperator):
    """The running operator: rows that wait, and the rows of each key that later frames still reach."""

    def __init__(self, spec: OverAggregate, schema: Schema) -> None:
        self._spec = spec
        self._schema = dict(schema)
        columns = {**self._schema, _SEQ: pl.Int64(), _TS: pl.Int64(), _AT: pl.Int64()}
        self._waiting = pl.DataFrame(schema=columns)
        self._history = pl.DataFrame(schema=columns)
        self._last = pl.DataFrame(schema={**{name: self._schema[name] for name in spec.keys}, _TS: pl.Int64()})
        self._sequence = 0
        self._watermark = NEVER
        self._clock_length_us = spec.clock_length_us
        self._now_us = 0
        self._late = 0
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        marks = watermark_times(frame)
        sequence = np.arange(self._sequence, self._sequence + frame.height)
        self._sequence += frame.height
        self._changed = True
        if self._spec.on is not None:
            times = frame[self._spec.on].dt.epoch("us").fill_null(NEVER).to_numpy()
        elif self._clock_length_us is not None:
            times = np.full(frame.height, self._now_us)
        else:
            times = sequence
        rows = frame.select(list(self._schema)).with_columns(
            pl.Series(_SEQ, sequence, dtype=pl.Int64),
            pl.Series(_TS, times, dtype=pl.Int64),
            pl.Series(_AT, marks),
        )
        if self._spec.on is None:
            yield from self._fired(batch, rows, in_order=True)
            return
        timeless = rows[_TS].to_numpy() == NEVER
        if timeless.any():
            reason = f"no time in column {self._spec.on!r}: the row has no place in the order"
            yield RejectedRows(frame.filter(pl.Series(timeless)), [reason] * int(timeless.sum()))
            frame, rows = frame.filter(pl.Series(~timeless)), rows.filter(pl.Series(~timeless))
        yield from self._taken(batch, frame, rows)

    def _taken(self, batch: Batch, frame: pl.DataFrame, rows: pl.DataFrame) -> Iterable[Batch]:
        """Take in rows of event time; what they say of the watermark holds before each of them."""
        # A row that begins anew finds nothing of what its key had. Without late rows of the key in this batch no result tells the
        # difference; those of later batches do.
        begins, at_the_end = self._divided(self._begins(rows), rows)
        places = set(begins["place"].to_list())
        for begin, end in pairwise(sorted({0, *places, rows.height})):
            if begin in places:
                yield from self._reached(batch.queue, rows.item(begin, _AT), batch)
                self._forget_keys()
            own = rows[begin:end]
            late = self._late_rows(own)
            if late.any():
                self._late += int(late.sum())
                yield batch.with_frame(frame[begin:end].filter(pl.Series(late)), "late")
                own = own.filter(pl.Series(~late))
            self._waiting = pl.concat([self._waiting, own])
        if rows.height:
            yield from self._reached(batch.queue, rows.item(rows.height - 1, _AT), batch)
            self._forget_before(at_the_end)
            self._forget_keys()

    def _divided(self, begins: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divide rows that begin anew into those of keys of which there are late rows, and those of others."""
        if not begins.height:
            return begins, begins
        late, keys = rows.filter(pl.col(_TS) < pl.col(_AT)), list(self._spec.keys)
        if not keys:
            return (begins, begins.clear()) if late.height else (begins.clear(), begins)
        at_once = begins.join(late, on=keys, how="semi", nulls_equal=True)
        return at_once, begins.join(late, on=keys, how="anti", nulls_equal=True)

    def _begins(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose key is forgotten when they come: its columns, where the watermark is then, and the row's place."""
        forgets_us, keys = self._spec.forgets_after_us, list(self._spec.keys)
        columns, before = [*keys, _TS, _AT, "place"], pl.lit(-1, dtype=pl.Int64)
        own = rows.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64)).select(columns)
        if forgets_us is None or not rows.height:
            return own.clear()
        known = pl.concat(
            [
                self._last.with_columns(pl.col(_TS).alias(_AT), place=before).select(columns),
                self._waiting.with_columns(place=before).select(columns),
                own,
            ]
        )
        stale = known.filter(pl.col(_TS) + forgets_us < rows.item(rows.height - 1, _AT))
        if not stale.height:
            return own.clear()
        if keys:
            known = known.join(
                stale.select(keys).unique(), on=keys, how="semi", nulls_equal=True, maintain_order="left"
            )
        latest, due = (each.shift(1).cum_max() for each in (pl.col(_TS), _DUE))
        begins = (latest + forgets_us < pl.col(_AT)) & (due < pl.col(_AT))
        known = known.with_columns(begins=begins.over(keys) if keys else begins)
        return known.filter("begins", pl.col("place") >= 0).select(columns)

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick) and self._clock_length_us is not None:
            self._now_us = max(self._now_us, message.time_us)
            self._forget(self._now_us - self._clock_length_us)
        elif isinstance(message, Watermark) and self._spec.on is not None:
            yield from self._reached(message.queue, message.time_us, None)
            self._forget_keys()
        elif isinstance(message, EndOfInput) and self._spec.on is not None and self._waiting.height:
            last: Any = self._waiting.select(_DUE.max()).item()
            yield from self._reached(Queue("end"), max(int(last) + 1, self._watermark), None)

    def _late_rows(self, rows: pl.DataFrame) -> Any:
        """Return which rows come after a row of their key with the same or a later time has been given."""
        if any(call.preceding is None for call in self._spec.calls.values()):
            return rows[_TS].to_numpy() < rows[_AT].to_numpy()
        behind = np.flatnonzero(rows[_TS].to_numpy() < rows[_AT].to_numpy())
        late = np.zeros(rows.height, dtype=bool)
        if not behind.size:
            return late
        known = pl.concat([self._waiting, rows]).select([*self._spec.keys, _SEQ, _TS, _AT])
        for place in behind.tolist():
            row = rows.row(place, named=True)
            same = _same_key(self._spec.keys, row)
            given: Any = self._last.filter(same)[_TS].max() if self._last.height else None
            lost = rows.filter(pl.Series(late))[_SEQ] if late.any() else None
            waiting = known.filter(same & (pl.col(_SEQ) < row[_SEQ]) & (row[_AT] > _DUE))
            if lost is not None:
                waiting = waiting.filter(~pl.col(_SEQ).is_in(lost.implode()))
            newest: Any = waiting[_TS].max()
            latest = max((each for each in (given, newest) if each is not None), default=None)
            late[place] = latest is not None and latest >= row[_TS]
        return late

    def _reached(self, queue: Queue, time_us: int, batch: Batch | None) -> Iterable[Batch]:
        if time_us > self._watermark:
            self._watermark = time_us
            self._changed = True
        due = self._watermark > _DUE
        rows = self._waiting.filter(due)
        if rows.height:
            self._waiting = self._waiting.filter(~due)
            yield from self._fired(batch or Batch(queue, rows), rows, in_order=False)

    def _forget_before(self, begins: pl.DataFrame) -> None:
        """Forget what keys had before the rows with which they began anew, though those may wait."""
        forgets_us, keys = self._spec.forgets_after_us, list(self._spec.keys)
        if forgets_us is None or not begins.height:
            return
        if not keys:
            if self._last.select((pl.col(_TS) + forgets_us < begins[_AT].max()).all()).item():
                self._last, self._history, self._changed = self._last.clear(), self._history.clear(), True
            return
        began = begins.group_by(keys).agg(pl.col(_AT).max())
        gone = self._last.join(began, on=keys, how="inner", nulls_equal=True)
        self._drop(gone.filter(pl.col(_TS) + forgets_us < pl.col(_AT)).select(keys))

    def _forget_keys(self) -> None:
        """Forget the keys whose last row is so far behind the watermark that no frame reaches it."""
        forgets_us, keys = self._spec.forgets_after_us, list(self._spec.keys)
        if forgets_us is None or not self._last.height:
            return
        gone = self._last.filter(pl.col(_TS) + forgets_us < self._watermark)
        if gone.height and keys:
            self._drop(gone.select(keys).join(self._waiting, on=keys, how="anti", nulls_equal=True))
        elif gone.height and not self._waiting.height:
            self._last, self._history, self._changed = self._last.clear(), self._history.clear(), True

    def _drop(self, gone: pl.DataFrame) -> None:
        if gone.height:
            keys, self._changed = list(self._spec.keys), True
            self._last = self._last.join(gone, on=keys, how="anti", nulls_equal=True, maintain_order="left")
            self._history = self._history.join(gone, on=keys, how="anti", nulls_equal=True, maintain_order="left")

    def _fired(self, batch: Batch, rows: pl.DataFrame, *, in_order: bool) -> Iterable[Batch]:
        if not rows.height:
            return
        self._changed = True
        if not in_order:
            names, down = [name for name, _ in self._spec.further], [down for _, down in self._spec.further]
            order = [False, False, *down, False]
            rows = rows.sort(_DUE, _TS, *names, _SEQ, descending=order, nulls_last=order)
        keys = self._spec.keys
        whole = pl.concat([self._history.with_columns(new=False), rows.with_columns(new=True)])
        grouped = _grouped(whole, keys).with_row_index("__place").sort(_GROUP, "new", "__place")
        results = [
            over(call, grouped).alias(name).cast(call.result_type(self._schema))
            for name, call in self._spec.calls.items()
        ]
        table = grouped.with_columns(results).filter("new").sort("__place")
        self._keep(grouped)
        columns = [*self._schema, *self._spec.calls]
        given = table.select(columns)
        if self._spec.on is not None:
            last = rows.group_by(keys).agg(pl.col(_TS).max()) if keys else rows.select(pl.col(_TS).max())
            both = pl.concat([self._last, last.select(self._last.columns)])
            self._last = both.group_by(keys).agg(pl.col(_TS).max()) if keys else both.select(pl.col(_TS).max())
            marks = table[_TS] - 1
            given = given.with_columns(pl.max_horizontal(marks, table[_AT]).cum_max().alias(WATERMARK))
            given = given.with_columns(pl.when(pl.col(WATERMARK) > NEVER + 1).then(pl.col(WATERMARK)).alias(WATERMARK))
        elif WATERMARK in batch.frame.columns:
            given = given.with_columns(batch.frame[WATERMARK])
        yield batch.with_frame(given)

    def _keep(self, grouped: pl.DataFrame) -> None:
        """Keep the rows that frames of later rows reach."""
        calls = self._spec.calls.values()
        columns = list(self._history.columns)
        if any(call.preceding is None for call in calls):
            self._history = grouped.sort("__place").select(columns)
            return
        rows_kept = max(
            [call.distance if call.function == "LAG" else call.preceding or 0 for call in calls if call.kind == "ROWS"],
            default=0,
        )
        length = max([call.preceding or 0 for call in calls if call.kind == "RANGE"], default=-1)
        back = pl.len().over(_GROUP) - pl.int_range(pl.len()).over(_GROUP)
        keep = back <= rows_kept
        if length >= 0:
            keep = keep | (pl.col(_TS) >= pl.col(_TS).max().over(_GROUP) - length)
        self._history = grouped.filter(keep).sort("__place").select(columns)

    def _forget(self, before_us: int) -> None:
        """Drop the rows that frames by the clock reach no more, of keys for which nothing comes too."""
        if any(call.kind == "ROWS" for call in self._spec.calls.values()):
            return  # these reach back by number
        kept = self._history.filter(pl.col(_TS) >= before_us)
        if kept.height < self._history.height:
            self._history, self._changed = kept, True

    def late_rows(self) -> int:
        return self._late

    def frozen(self, *, whole: bool) -> FrozenState:
        if not whole and not self._changed:
            return FrozenState.of(b"")
        self._changed = False
        values = {"sequence": self._sequence, "watermark": self._watermark}
        return frozen_frames(
            {"waiting": self._waiting, "history": self._history, "last": self._last}, values, whole=True
        )

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._waiting, self._history, self._last = frames["waiting"], frames["history"], frames["last"]
        self._sequence, self._watermark = int(values["sequence"]), int(values["watermark"])
        self._changed = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, order, parts = Reached(), Renumbering(), []
        for frames, values in snapshots(states):
            reached.add(int(values["watermark"]), frames["waiting"][_TS])
            own = {name: rows_of(frame, share.holds(frame)) for name, frame in frames.items()}
            new = order.of(np.sort(np.concatenate([numbers(own[name], _SEQ) for name in ("waiting", "history")])))
            for name in ("waiting", "history"):
                own[name] = renumbered(own[name], _SEQ, new.to(numbers(own[name], _SEQ)))
                if self._spec.on is None and self._clock_length_us is None:  # then the order of arrival is the time
                    own[name] = own[name].with_columns(pl.col(_SEQ).alias(_TS))
            parts.append(own)
        made = {name: joined([part[name] for part in parts]) for name in ("waiting", "history", "last")}
        return pack("snapshot", made, {"sequence": order.next, "watermark": reached.time_us()})

    def state_rows(self) -> int:
        return self._waiting.height + self._history.height


def _same_key(keys: Sequence[str], row: Mapping[str, Any]) -> pl.Expr:
    if not keys:
        return pl.lit(True)
    return pl.all_horizontal([pl.col(name).eq_missing(pl.lit(row[name])) for name in keys])


def _grouped(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add a number per key."""
    if not keys:
        return rows.with_columns(pl.lit(0, dtype=pl.UInt32).alias(_GROUP))
    groups = rows.select(keys).unique(maintain_order=True).with_row_index(_GROUP)
    return rows.join(groups, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
