"""ORDER BY of columns that are no time: the rows are given in their order when the input ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import CHANGE, Batch, ChangeKind, EndOfInput, Queue, SystemMessage
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns

_TIMES, _PLACE = "__hr_times", "__hr_place"
#: So many more rows than there were after the last time, and rows that were taken back are thrown out.
_ROWS_BEFORE_SETTLING = 100_000


class RowsAtEnd(StateInColumns):
    """All rows, sorted, at the end of the input. ``by``: (column, descending); NULL is the least value, equal rows stand as they came.

    Of rows that change, the final rows are returned. An input without an end returns none.
    """

    name: ClassVar[str] = "rows_at_end"
    keys: Sequence[str] = ()

    def __init__(self, by: Sequence[tuple[str, bool]]) -> None:
        self.by = tuple(by)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return None

    def open(self, schema: Schema | None) -> StatefulOperator:
        assert schema is not None
        return _RunningRowsAtEnd(self, schema)

    def definition(self, schema: Schema | None) -> StateDefinition:
        assert schema is not None
        by = [f"{quoted(name)}{' desc' if down else ''}" for name, down in self.by]
        return StateDefinition(self.name, {"by": by}, (), kept_columns(schema))

    def describe(self) -> str:
        return "by " + ", ".join(f"{name}{' desc' if down else ''}" for name, down in self.by)


class _RunningRowsAtEnd(StatefulOperator):
    """The running operator. State: the rows, each with how many times it is there; of one that was taken back, fewer."""

    def __init__(self, spec: RowsAtEnd, schema: Schema) -> None:
        self._spec = spec
        self._names = list(schema)
        self._empty = pl.DataFrame(schema={**schema, _TIMES: pl.Int64()})
        self._rows, self._settled_rows = self._empty, 0
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch]:
        frame, times = batch.frame, pl.lit(1, dtype=pl.Int64)
        if CHANGE in frame.columns:
            is_old = pl.col(CHANGE).is_in([ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE])
            times = pl.when(is_old).then(pl.lit(-1, dtype=pl.Int64)).otherwise(times)
        self._rows = pl.concat([self._rows, frame.select(*self._names, times.alias(_TIMES))])
        self._changed = True
        if self._rows.height > 2 * self._settled_rows + _ROWS_BEFORE_SETTLING:
            self._settle()
        return ()

    def _settle(self) -> None:
        if (self._rows[_TIMES] < 0).any():
            again = self._rows.with_row_index(_PLACE).group_by(self._names, maintain_order=True)
            rows = again.agg(pl.col(_TIMES).sum(), pl.col(_PLACE).last()).filter(pl.col(_TIMES) != 0)
            self._rows = rows.sort(_PLACE).select(self._empty.columns)
        self._settled_rows = self._rows.height

    def on_system(self, message: SystemMessage) -> Iterable[Batch]:
        if not isinstance(message, EndOfInput) or not self._rows.height:
            return
        self._settle()
        down: Any = [each for _, each in self._spec.by]
        by = [name for name, _ in self._spec.by]
        rows = self._rows.filter(pl.col(_TIMES) > 0)
        rows = rows.sort(by, descending=down, nulls_last=down, maintain_order=True)
        self._rows, self._settled_rows, self._changed = self._empty, 0, True
        if rows.height:
            yield Batch(Queue("end"), rows.select(pl.col(self._names).repeat_by(_TIMES).explode()))

    def delta(self) -> bytes:
        return self.snapshot() if self._changed else b""

    def snapshot(self) -> bytes:
        self._changed = False
        return pack("snapshot", {"rows": self._rows}, {})

    def apply(self, state: bytes) -> None:
        self._rows = unpack(state)[1]["rows"]
        self._settled_rows, self._changed = self._rows.height, False

    def state_rows(self) -> int:
        return self._rows.height
