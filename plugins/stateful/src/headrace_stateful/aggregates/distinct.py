"""``key_by("k").distinct()``: the first row of each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace.interfaces.windows import Duration, microseconds

from headrace_stateful.joins.join_shape import Part, assembled
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Places
from headrace_stateful.keys.kept_by_key import KeptByKey, spilled_columns
from headrace_stateful.keys.slot_operator import TICK, SlotOperator
from headrace_stateful.keys.state_columns import kept_columns

_COUNT = "__hr_count"


class Distinct(KeptByKey):
    """The first row of each key, as it came: rows are only added. A key is forgotten ``ttl`` (processing time) after it came.

    Where rows are taken back the key must be the whole row: then equal rows are counted, and the row is deleted with the last of them.
    Another row of a key cannot take the place of the first: ``top_n(1, by=…)`` does that.
    """

    name = "distinct"
    maps_state = True

    def __init__(self, keys: Sequence[str], *, ttl: Duration | None = None) -> None:
        self.keys = tuple(keys)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")
        self._columns: frozenset[str] = frozenset()
        #: Whether rows are taken back; found when the plan is checked.
        self.takes_back = False

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys)
        self._columns = frozenset(columns)
        return columns

    def changes(self, before: Changes | None) -> Changes | None:
        self.takes_back = before is not None
        if before is None:
            return None
        if not self._columns <= set(self.keys):
            raise PlanError(
                "the first row of a key is not defined when rows can be retracted",
                hint="use all columns as the key (distinct() of the stream), or use top_n(1, by=…)",
            )
        return Changes(self.keys)

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = kept_columns(keyed_rows.known(schema), self.keys)
        settings = {"takes rows back": self.takes_back}
        return StateDefinition(self.name, settings, self.keys, columns, adjustable={"ttl_us": self.ttl_us})

    def stays_in_memory(self, schema: Schema | None) -> str | None:
        return spilled_columns(self, keyed_rows.key_types(keyed_rows.known(schema), self.keys))

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningDistinct(self.keys, keyed_rows.known(schema), takes_back=self.takes_back, ttl_us=self.ttl_us)

    def describe(self) -> str:
        return ", ".join(self.keys)


class RunningDistinct(SlotOperator):
    """The running operator: it remembers keys, not rows."""

    def __init__(self, keys: tuple[str, ...], schema: Schema, *, takes_back: bool, ttl_us: int | None) -> None:
        self._keys = keys
        self._columns = list(schema)
        self._takes_back = takes_back
        values: dict[str, pl.DataType] = {_COUNT: pl.Int64()} if takes_back else {}
        super().__init__(keyed_rows.key_types(schema, keys), values, ttl_us)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        slots, new_rows = self._table.find_or_insert(keyed_rows.keys_of(frame, self._keys))
        if self._takes_back:
            result = self._counted(frame, slots, new_rows)
            if result is not None:
                yield batch.with_frame(result)
            return
        if new_rows.size:
            self._table.put(slots[new_rows], pl.DataFrame({TICK: np.full(new_rows.size, self._now_us)}))
            header = [WATERMARK] if WATERMARK in frame.columns else []
            yield batch.with_frame(frame[new_rows].select(*header, *self._columns))

    def _counted(self, frame: pl.DataFrame, slots: Places, new_rows: Places) -> pl.DataFrame | None:
        changed, last, at = self._groups.of(slots)
        is_new = np.zeros(changed.size, dtype=bool)
        is_new[at[new_rows]] = True
        before = np.zeros(changed.size, dtype=np.int64)
        before[~is_new] = self._table.take(changed[~is_new])[_COUNT].to_numpy()
        signs = changelog.signs(frame)
        after = np.maximum(before + np.bincount(at, weights=signs, minlength=changed.size).astype(np.int64), 0)
        stays = after > 0
        ticks = np.full(np.count_nonzero(stays), self._now_us)
        self._table.put(changed[stays], pl.DataFrame({_COUNT: after[stays], TICK: ticks}))
        self._table.remove(changed[~stays])
        rows = np.flatnonzero((before > 0) != stays)
        kinds = np.where(stays[rows], ChangeKind.INSERT, ChangeKind.DELETE)
        part = Part(frame[last[rows]].select(self._columns), rows, watermark_times(frame)[last[rows]], kinds)
        return assembled([part], with_watermark=WATERMARK in frame.columns, with_change=True)
