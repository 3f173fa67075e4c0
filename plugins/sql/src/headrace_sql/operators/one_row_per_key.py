"""``ON CONFLICT DO ERROR``: a row whose primary key another row has is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import CHANGE, WATERMARK, Batch, ChangeKind
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace.interfaces.windows import Duration, microseconds
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Flags
from headrace_stateful.keys.kept_by_key import KeptByKey
from headrace_stateful.keys.kept_rows import TICK, KeptRowsWithTicks
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.state_columns import kept_columns


class OneRowPerKey(KeptByKey):
    """Lets the first row of each key through, and another one only after that is taken back; others are rejected.

    ``ttl``: rows are forgotten so long (processing time) after they came.
    """

    name: ClassVar[str] = "one_row_per_key"
    maps_state = True

    def __init__(self, keys: Sequence[str], *, ttl: Duration | None = None) -> None:
        self.keys = tuple(keys)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return None if before is None else Changes(self.keys)

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, {}, self.keys, columns, adjustable={"ttl_us": self.ttl_us})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningOneRowPerKey(self, keyed_rows.known(schema))

    def describe(self) -> str:
        return ", ".join(self.keys)


class RunningOneRowPerKey(KeptRowsWithTicks):
    """The running operator: the row of each key."""

    def __init__(self, spec: OneRowPerKey, schema: Schema) -> None:
        super().__init__(RowLog(dict(schema), spec.keys, (TICK,)), spec.ttl_us)
        self._spec = spec
        self._columns = list(schema)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame, log = batch.frame, self._log
        user = frame.select(self._columns)
        rows, signs = changelog.netted(user, self._columns, changelog.signs(frame))
        back, more = rows[signs < 0], rows[signs > 0]
        # A row that was rejected is not there to be taken back.
        gone = log.find_equal(user[back]) if back.size else np.zeros(0, dtype=np.int64)
        log.remove(gone[gone >= 0])
        back = back[gone >= 0]
        new = self._new(user[more]) if more.size else np.zeros(0, dtype=bool)
        if more.size and not new.all():
            twice = frame[more[~new]]
            yield RejectedRows(twice, [f"another row has the same {', '.join(self._spec.keys)}"] * twice.height)
        more = more[new]
        if more.size:
            log.append(user[more], **{TICK: np.full(more.size, self._now_us)})
        log.tidy()
        if back.size or more.size:
            given = frame[np.concatenate([back, more])]
            if CHANGE in frame.columns:
                kinds = np.repeat([ChangeKind.DELETE, ChangeKind.INSERT], [back.size, more.size])
                given = given.with_columns(pl.Series(CHANGE, kinds, dtype=pl.Int8))
            if WATERMARK in frame.columns:
                given = given.with_columns(pl.col(WATERMARK).cum_max())
            yield batch.with_frame(given)

    def _new(self, rows: pl.DataFrame) -> Flags:
        """Return which rows are the only ones of their keys, or the first of those in the batch."""
        taken, _ = self._log.find(rows, self._spec.keys)
        new: Flags = rows.select(pl.struct(self._spec.keys).is_first_distinct()).to_series().to_numpy().copy()
        new[taken] = False
        return new
