"""``CURRENT_WATERMARK(ts)``: the watermark before each row as a column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import Batch, SystemMessage, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.joins.join_shape import NEVER, moved, nullable
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.shares import Reached, snapshots
from headrace_stateful.keys.state_bytes import pack, unpack

#: Flink's watermark is the last moment of which nothing is expected any more, ours the first of which something is.
_MILLISECOND_US = 1_000


class CurrentWatermark(StatefulSpec):
    """Adds the column ``target``: the watermark as Flink has it, as a time of the type of ``on``; NULL where there is none.

    It runs behind a shuffle, because only a shard knows the watermark before a batch.
    """

    name: ClassVar[str] = "current_watermark"
    keys: Sequence[str] = ()

    def __init__(self, on: str, target: str) -> None:
        self.on = on
        self.target = target

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        return Schema({**columns, self.target: columns[self.on]}, json_columns=columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {self.on, *(name for name in wanted if name != self.target)}

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningCurrentWatermark(self, keyed_rows.known(schema)[self.on])

    def definition(self, schema: Schema | None) -> StateDefinition:
        return StateDefinition(self.name, {"on": quoted(self.on)})

    def describe(self) -> str:
        return self.on


class RunningCurrentWatermark(StatefulOperator):
    """The running operator. State: the time that has been reached."""

    def __init__(self, spec: CurrentWatermark, kind: pl.DataType) -> None:
        self._spec = spec
        self._kind = kind
        self._reached_us = NEVER
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch]:
        marks = np.maximum.accumulate(np.maximum(watermark_times(batch.frame), self._reached_us))
        self._reach(int(marks[-1]))
        column = nullable(self._spec.target, moved(marks, -_MILLISECOND_US)).cast(self._kind)
        yield batch.with_frame(batch.frame.with_columns(column))

    def on_system(self, message: SystemMessage) -> Iterable[Batch]:
        if isinstance(message, Watermark):
            self._reach(message.time_us)
        return ()

    def _reach(self, time_us: int) -> None:
        if time_us > self._reached_us:
            self._reached_us, self._changed = time_us, True

    def delta(self) -> bytes:
        return self.snapshot() if self._changed else b""

    def snapshot(self) -> bytes:
        self._changed = False
        return pack("snapshot", {}, {"reached": self._reached_us})

    def apply(self, state: bytes) -> None:
        self._reached_us, self._changed = int(unpack(state)[2]["reached"]), False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached = Reached()
        for _, values in snapshots(states):
            reached.add(int(values["reached"]))
        return pack("snapshot", {}, {"reached": reached.time_us()})

    def state_rows(self) -> int:
        return 0
