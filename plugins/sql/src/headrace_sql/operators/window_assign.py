"""Windows of rows without an aggregation: each row with the start and end of every window that holds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from headrace.flow.messages import Batch
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows, renumber
from headrace_stateful.keys.watermark import event_times_us
from headrace_stateful.windows.window_shape import NEVER


@dataclass(frozen=True)
class TableWindow:
    """A window function around a table, which waits for the aggregation or whatever reads its window columns."""

    kind: Literal["tumbling", "sliding", "session", "cumulative"]
    size_us: int
    every_us: int
    offset_us: int
    #: Physical event-time column; None: processing time.
    on: str | None
    partition: tuple[str, ...] = ()


class WindowAssign(OperatorSpec):
    """Adds ``names``: the start, end and last moment of a window. A row of several windows comes once for each."""

    name: ClassVar[str] = "window_assign"

    def __init__(self, window: TableWindow, names: tuple[str, str, str]) -> None:
        self.window = window
        self.names = names

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        return Schema({**schema, **dict.fromkeys(self.names, self._kind(schema))})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {str(self.window.on), *(name for name in wanted if name in schema)}

    def open(self, schema: Schema | None) -> Operator:
        assert schema is not None
        return _RunningAssign(self, self._kind(schema))

    def _kind(self, schema: Schema) -> pl.Datetime:
        """Return the type of bounds: microseconds, whatever unit the time column has."""
        on = schema[str(self.window.on)]
        assert isinstance(on, pl.Datetime)
        return pl.Datetime("us", on.time_zone)

    def describe(self) -> str:
        return f"{self.window.kind} of {self.window.size_us / 1_000_000:g} s on {self.window.on}"


class _RunningAssign(Operator):
    def __init__(self, spec: WindowAssign, kind: pl.Datetime) -> None:
        self._spec = spec
        self._kind = kind

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        window = self._spec.window
        times = event_times_us(batch.frame[str(window.on)])
        rows = np.flatnonzero(times != NEVER)
        if len(rows) < len(times):
            missing = batch.frame[np.flatnonzero(times == NEVER)]
            yield RejectedRows(
                missing, [f"no time in column {window.on!r}: the row belongs to no window"] * missing.height
            )
        rows, starts, ends = _windows(window, rows, times[rows])
        made = batch.frame[rows].with_columns(
            pl.Series(name, values).cast(self._kind)
            for name, values in zip(self._spec.names, (starts, ends, ends - 1_000), strict=True)
        )
        if made.height:
            yield batch.with_frame(renumber(made))


def _windows(window: TableWindow, rows: Any, moments: Any) -> tuple[Any, Any, Any]:
    """Return (row, start, end) of every window of every row, by row, then by end."""
    size, every = window.size_us, window.every_us
    if window.kind == "tumbling":
        starts = moments - (moments - window.offset_us) % size
        return rows, starts, starts + size
    count = -(-size // every)
    steps = np.arange(count)
    if window.kind == "sliding":
        last = moments - (moments - window.offset_us) % every
        starts = (last[:, None] - (count - 1 - steps)[None, :] * every).ravel()
        ends, owners = starts + size, np.repeat(np.arange(len(moments)), count)
        holds = ends > moments[owners]
    else:
        first = moments - (moments - window.offset_us) % size
        ends = (first[:, None] + (steps + 1)[None, :] * every).ravel()
        owners = np.repeat(np.arange(len(moments)), count)
        starts, holds = first[owners], ends > moments[owners]
    return rows[owners[holds]], starts[holds], ends[holds]
