"""Temporal joins: each left row with the version of a right row that was valid at its time.

A left row waits until the watermark has reached its time. It gets, of the right rows with its key, the one with the greatest time that
is not after its own (of equal times the later arrival), of those that had come when the watermark reached its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition
from headrace_columnar.evaluation import evaluate
from headrace_columnar.expressions import compile_predicate
from headrace_columnar.normal_form import conditions
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.shares import Reached, Renumbering, joined, numbers, renumbered, rows_of, snapshots
from headrace_stateful.keys.state_bytes import frozen_frames, pack, unpack
from headrace_stateful.keys.state_columns import kept_sides

NEVER = -(2**63)
_SEQ, _TS, _AT, _FROM, _RANK = "__tj_seq", "__tj_time", "__tj_mark", "__tj_from", "__tj_rank"
_VALID, _MOMENT = "__tj_valid", "__tj_moment"


class TemporalJoin(StatefulSpec):
    """A join of a stream with the versions of another; its input has the sides ``left`` and ``right``."""

    name: ClassVar[str] = "temporal_join"

    def __init__(
        self, left: Schema, right: Schema, keys: Sequence[tuple[str, str]], times: tuple[str, str], how: str,
        condition: str | None = None, *, functions: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.left = left
        self.right = right
        self.keys = tuple(keys)
        self.times = times
        self.how = how
        self.condition = condition
        self.functions = functions
        if condition is not None and how == "left":
            raise PlanError("LEFT JOIN … FOR SYSTEM_TIME AS OF supports only equalities", hint="filter in WHERE")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return Schema({**self.left, **self.right})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("a temporal join needs rows that are only added, and its input changes")
        return None

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningTemporalJoin(self)

    def definition(self, schema: Schema | None) -> StateDefinition:
        settings = {
            "how": self.how, "times": list(self.times),
            "where": None if self.condition is None else sorted(conditions(self.condition)),
        }  # fmt: skip
        return StateDefinition(self.name, settings, (), kept_sides(self.left, self.right))

    def describe(self) -> str:
        pairs = ", ".join(f"{left} = {right}" for left, right in self.keys)
        return f"{self.how} on {pairs}, as of {self.times[0]}"


class RunningTemporalJoin(FrozenOperator):
    """The running operator: left rows that wait, and versions that may still be asked for."""

    def __init__(self, spec: TemporalJoin) -> None:
        self._spec = spec
        extra = {_SEQ: pl.Int64(), _TS: pl.Int64(), _AT: pl.Int64()}
        self._waiting = pl.DataFrame(schema={**spec.left, **extra})
        self._versions = pl.DataFrame(schema={**spec.right, **extra})
        self._sequence = 0
        self._watermark = NEVER
        self._changed = False
        self._predicate = None
        if spec.condition is not None:
            self._predicate = compile_predicate(spec.condition, Schema({**spec.left, **spec.right}), spec.functions)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        side = int(batch.output == "right")
        schema, time = (self._spec.left, self._spec.right)[side], self._spec.times[side]
        frame = batch.frame
        rows = frame.select(list(schema)).with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(_SEQ),
            pl.col(time).dt.epoch("us").alias(_TS), pl.Series(_AT, watermark_times(frame)),
        ).filter(pl.col(_TS).is_not_null())  # fmt: skip
        self._sequence += frame.height
        self._changed = True
        if side:
            self._versions = pl.concat([self._versions, rows])
        else:
            self._waiting = pl.concat([self._waiting, rows])
        if rows.height < frame.height:
            missing = frame.filter(frame[time].is_null())
            reason = f"no time in column {time!r}: there is no version of that time"
            yield RejectedRows(missing, [reason] * missing.height)

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Watermark):
            yield from self._reached(message.queue, message.time_us)
        elif isinstance(message, EndOfInput) and self._waiting.height:
            last: Any = self._waiting[_TS].max()
            yield from self._reached(Queue("end"), max(int(last) + 1, self._watermark))

    def _reached(self, queue: Queue, time_us: int) -> Iterable[Batch | RejectedRows]:
        # Left rows that came behind the watermark are due, though it may not move any more.
        if time_us <= self._watermark and not self._waiting.height:
            return
        self._watermark = time_us = max(time_us, self._watermark)
        self._changed = True
        due = pl.col(_TS) < time_us
        rows = self._waiting.filter(due)
        self._waiting = self._waiting.filter(~due)
        if rows.height:
            yield from self._joined(queue, rows)
        self._forget(time_us)

    def _joined(self, queue: Queue, rows: pl.DataFrame) -> Iterable[Batch | RejectedRows]:
        left_keys = [left for left, _ in self._spec.keys]
        names = {right: f"__key_{index}" for index, (_, right) in enumerate(self._spec.keys)}
        versions = self._effective().with_columns([pl.col(right).alias(name) for right, name in names.items()])
        versions = versions.drop(_SEQ, _AT).rename({_TS: _VALID}).sort(_FROM)
        # A late left row finds only the kept version: the one that the watermark has reached.
        moment = pl.max_horizontal(pl.col(_TS), pl.when(pl.col(_AT) > NEVER).then(pl.col(_AT) - 1)).alias(_MOMENT)
        pairs = (
            rows.with_columns(moment)
            .sort(_MOMENT)
            .join_asof(
                versions, left_on=_MOMENT, right_on=_FROM, by_left=left_keys, by_right=list(names.values()), strategy="backward",
                check_sortedness=False,
            )
        )  # fmt: skip
        valid = pl.col(_VALID).is_not_null() & (pl.col(_VALID) <= pl.col(_TS))
        pairs = pairs.with_columns([pl.when(valid).then(pl.col(name)).alias(name) for name in self._spec.right])
        if self._spec.how == "inner":
            pairs = pairs.filter(valid)
        pairs = pairs.with_columns(pl.max_horizontal(_TS, _AT).alias("__due")).sort("__due", _TS, _SEQ)
        if self._predicate is not None and pairs.height:
            result, failures = evaluate(self._predicate, pairs)
            if failures:
                places = [row for row, _ in failures]
                yield RejectedRows(
                    pairs[places].select(list(self._spec.left)),
                    [str(e) for _, e in failures],
                    [type(e).__name__ for _, e in failures],
                )
            pairs = pairs.filter(result)
        if pairs.height:
            marks = pl.max_horizontal(pl.col(_TS) - 1, pl.col(_AT)).cum_max().alias(WATERMARK)
            yield Batch(queue, pairs.select(marks, *self._spec.left, *self._spec.right))

    def _effective(self) -> pl.DataFrame:
        """Return versions with the time from which left rows see them: a late one only after the watermark that it came behind."""
        keys = [right for _, right in self._spec.keys]
        rows = self._versions.with_columns(pl.max_horizontal(pl.col(_TS), pl.col(_AT)).alias(_FROM))
        rows = rows.drop_nulls(keys).sort(_TS, _SEQ).with_row_index(_RANK).sort(_FROM, _RANK)
        # From then on the newest of those seen so far is the valid one.
        newest = rows.with_columns(pl.col(_RANK).cum_max().over(keys).alias("__newest"))
        newest = newest.filter(pl.col("__newest") == pl.col(_RANK))
        return newest.unique([*keys, _FROM], keep="last", maintain_order=True).drop(_RANK, "__newest")

    def _forget(self, time_us: int) -> None:
        """Forget versions that have been replaced before the watermark: later left rows do not see them."""
        if self._versions.height < 2:
            return
        keys = [right for _, right in self._spec.keys]
        old = pl.col(_TS) < time_us
        order = self._versions.sort(_TS, _SEQ)
        last = order.filter(old).group_by(keys, maintain_order=True).last().select(_SEQ)
        keep = order.filter(~old | pl.col(_SEQ).is_in(last[_SEQ].implode()))
        if keep.height < self._versions.height:
            self._versions = keep.sort(_SEQ)

    def frozen(self, *, whole: bool) -> FrozenState:
        if not whole and not self._changed:
            return FrozenState.of(b"")
        self._changed = False
        values = {"sequence": self._sequence, "watermark": self._watermark}
        return frozen_frames({"waiting": self._waiting, "versions": self._versions}, values, whole=True)

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._waiting, self._versions = frames["waiting"], frames["versions"]
        self._sequence, self._watermark = int(values["sequence"]), int(values["watermark"])
        self._changed = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, order, parts = Reached(), Renumbering(), []
        for frames, values in snapshots(states):
            reached.add(int(values["watermark"]), frames["waiting"][_TS])
            own = {
                name: rows_of(frames[name], share.holds(frames[name], side=side))
                for side, name in enumerate(("waiting", "versions"))
            }
            new = order.of(np.sort(np.concatenate([numbers(frame, _SEQ) for frame in own.values()])))
            parts.append({name: renumbered(frame, _SEQ, new.to(numbers(frame, _SEQ))) for name, frame in own.items()})
        made = {name: joined([part[name] for part in parts]) for name in ("waiting", "versions")}
        return pack("snapshot", made, {"sequence": order.next, "watermark": reached.time_us()})

    def state_rows(self) -> int:
        return self._waiting.height + self._versions.height
