"""Top-N and deduplication within windows: the first rows of each window, given once, when the window closes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.shares import Reached, Renumbering, in_new_order, joined, rows_of, snapshots
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns

NEVER = -(2**63)
_SEQ, _END, _RANK, _FIRST = "__wt_seq", "__wt_end", "__wt_rank", "__wt_first"
#: Rows beyond the first N are thrown away when so many have come since.
_PRUNE_ROWS = 4096


class WindowTopN(StateInColumns):
    """The first ``n`` rows per window and key. Of equal rows the earlier one is first, or with ``latest`` the later one.

    ``keys`` are the columns of the partition, the window's start and end among them, ``end`` the window's end. ``order`` holds
    (column, descending); NULL is the least value. ``rank`` names a column for the place of each row, from 1.
    """

    name: ClassVar[str] = "window_top_n"

    def __init__(
        self, keys: Sequence[str], end: str, n: int, order: Sequence[tuple[str, bool]], *, rank: str | None = None,
        latest: bool = False, by_time: bool = False,
    ) -> None:  # fmt: skip
        self.keys = tuple(keys)
        self.end = end
        self.n = n
        self.order = tuple(order)
        self.rank = rank
        self.latest = latest
        #: ``end`` is the time of the rows themselves: what each moment gives, for what goes on in the order of time.
        self.by_time = by_time

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        added = {} if self.rank is None else {self.rank: pl.Int64()}
        return Schema({**columns, **added}, json_columns=columns.json_columns)

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("a Top-N of windows needs rows that are only added, and its input changes")
        return None

    def open(self, schema: Schema | None) -> StatefulOperator:
        assert schema is not None
        return RunningWindowTopN(self, schema)

    def definition(self, schema: Schema | None) -> StateDefinition:
        assert schema is not None
        settings = {
            "n": self.n, "end": quoted(self.end), "numbered": self.rank is not None, "latest": self.latest, "by_time": self.by_time,
            "order": [f"{quoted(name)}{' desc' if down else ''}" for name, down in self.order],
        }  # fmt: skip
        return StateDefinition(self.name, settings, self.keys, kept_columns(schema))

    def describe(self) -> str:
        order = ", ".join(f"{name}{' desc' if down else ''}" for name, down in self.order)
        return f"{self.n} by {order} per {', '.join(self.keys)}"


class RunningWindowTopN(StatefulOperator):
    """The running operator: of each window that is open, the rows that may be among the first."""

    def __init__(self, spec: WindowTopN, schema: Schema) -> None:
        self._spec = spec
        self._columns = list(schema)
        self._rows = pl.DataFrame(schema={**schema, _SEQ: pl.Int64(), _END: pl.Int64()})
        self._sequence = 0
        self._watermark = NEVER
        self._pruned = 0
        self._late = 0
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        timeless = frame[self._spec.end].is_null()
        if timeless.any():
            missing = frame.filter(timeless)
            reason = f"no time in column {self._spec.end!r}: the row has no place in the order"
            yield RejectedRows(missing, [reason] * missing.height)
            frame = frame.filter(~timeless)
        marks = pl.lit(NEVER, dtype=pl.Int64)
        if WATERMARK in frame.columns:
            marks = pl.max_horizontal(pl.col(WATERMARK).fill_null(NEVER), pl.lit(self._watermark))
        rows = frame.with_columns(
            pl.int_range(self._sequence, self._sequence + frame.height, dtype=pl.Int64).alias(_SEQ),
            pl.col(self._spec.end).dt.epoch("us").alias(_END), marks.alias("__wt_mark"),
        )  # fmt: skip
        self._sequence += frame.height
        if self._spec.by_time:
            # A row is due when the watermark has passed its millisecond. In Flink it is late when the watermark was beyond it
            # before it came; one of the watermark's own time is given with the next watermark.
            rows = rows.with_columns(pl.col(_END) + 1_000).filter(pl.col(_END) >= pl.col("__wt_mark"))
            rows = rows.with_columns(pl.max_horizontal(pl.col(_END), pl.col("__wt_mark") + 1).alias(_END))
        open_still = rows.filter(pl.col(_END) > pl.col("__wt_mark"))
        self._late += frame.height - open_still.height
        self._rows = pl.concat([self._rows, open_still.select(self._rows.columns)])
        self._changed = True
        if self._rows.height > 2 * self._pruned + _PRUNE_ROWS:
            self._rows = self._first(self._rows).drop(_RANK).sort(_SEQ)
            self._pruned = self._rows.height

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Watermark):
            yield from self._closed(message.queue, message.time_us)
        elif isinstance(message, EndOfInput) and self._rows.height:
            last: Any = self._rows[_END].max()
            yield from self._closed(Queue("end"), max(int(last), self._watermark))

    def _closed(self, queue: Queue, time_us: int) -> Iterable[Batch | RejectedRows]:
        if time_us <= self._watermark and self._rows.height == 0:
            return
        self._watermark = max(time_us, self._watermark)
        self._changed = True
        due = pl.col(_END) <= self._watermark
        rows = self._rows.filter(due)
        if rows.height == 0:
            return
        self._rows = self._rows.filter(~due)
        first = self._first(rows).with_columns(pl.col(_SEQ).min().over(self._spec.keys).alias(_FIRST))
        first = first.sort(_END, self._spec.end, _FIRST, _RANK).with_columns((pl.col(_END) - 1_001).alias(WATERMARK))
        if self._spec.rank is not None:
            first = first.with_columns(pl.col(_RANK).alias(self._spec.rank))
        added = [] if self._spec.rank is None else [self._spec.rank]
        yield Batch(queue, first.select(WATERMARK, *self._columns, *added))

    def _first(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the first rows of each window and key, with their places."""
        spec = self._spec
        down = [descending for _, descending in spec.order]
        ordered = rows.sort(
            [*(name for name, _ in spec.order), _SEQ], descending=[*down, spec.latest], nulls_last=[*down, False]
        )
        place = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(spec.keys).alias(_RANK)
        return ordered.with_columns(place).filter(pl.col(_RANK) <= spec.n)

    def delta(self) -> bytes:
        return self.snapshot() if self._changed else b""

    def snapshot(self) -> bytes:
        self._changed = False
        values = {"sequence": self._sequence, "watermark": self._watermark, "late": self._late}
        return pack("snapshot", {"rows": self._rows}, values)

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._rows = frames["rows"]
        self._pruned = self._rows.height
        self._sequence, self._watermark = int(values["sequence"]), int(values["watermark"])
        self._late = int(values["late"])
        self._changed = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        reached, order, parts, late = Reached(), Renumbering(), [], 0
        for frames, values in snapshots(states):
            reached.add(int(values["watermark"]), frames["rows"][_END])
            rows = rows_of(frames["rows"], share.holds(frames["rows"]))
            parts.append(in_new_order(rows, _SEQ, order))
            late += int(values["late"]) if share.number == 0 else 0
        values = {"sequence": order.next, "watermark": reached.time_us(), "late": late}
        return pack("snapshot", {"rows": joined(parts)}, values)

    def late_rows(self) -> int:
        return self._late

    def state_rows(self) -> int:
        return self._rows.height
