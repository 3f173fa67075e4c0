"""``normalize_changes(["id"])``: changes that may come twice or lack their old rows, as a whole changelog.

The last row of each key is kept. An insert or update of a key that is there becomes an update with its old row before it, of a key
that is not there an insert. A delete (or an update-before that no new row follows in its entry) gives the kept row as deleted, and
nothing if the key is not there. An update to an equal row is left out, unless there is a time-to-live: then it tells operators behind
that the key is still in use. These are the rules of Flink's operator ChangelogNormalize.
"""

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
from headrace_stateful.keys.columns import Flags, Places, equal_rows
from headrace_stateful.keys.kept_by_key import KeptByKey, spilled_columns
from headrace_stateful.keys.slot_operator import TICK, SlotOperator
from headrace_stateful.keys.state_columns import kept_columns


class NormalizeChanges(KeptByKey):
    """A changelog with old rows, of changes by key. ``ttl``: a key is forgotten so long (processing time) after its last change."""

    name = "normalize_changes"
    maps_state = True
    takes_upserts = True

    def __init__(self, keys: Sequence[str], *, ttl: Duration | None = None) -> None:
        self.keys = tuple(keys)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys)
        return columns

    def changes(self, before: Changes | None) -> Changes | None:
        if before is None:
            raise PlanError(
                "normalize_changes needs rows that change, but these are only added",
                hint="deduplicate() keeps the last row of a key",
            )
        return Changes(self.keys)

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, {}, self.keys, columns, adjustable={"ttl_us": self.ttl_us})

    def stays_in_memory(self, schema: Schema | None) -> str | None:
        return spilled_columns(self, keyed_rows.known(schema))

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningNormalizeChanges(self.keys, keyed_rows.known(schema), self.ttl_us)

    def describe(self) -> str:
        return ", ".join(self.keys)


class RunningNormalizeChanges(SlotOperator):
    """The running operator: one row per key, its values in columns."""

    def __init__(self, keys: tuple[str, ...], schema: Schema, ttl_us: int | None) -> None:
        self._keys = keys
        self._columns = list(schema)
        self._values = [name for name in schema if name not in keys]
        super().__init__(keyed_rows.key_types(schema, keys), {name: schema[name] for name in self._values}, ttl_us)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        slots, new_rows = self._table.find_or_insert(keyed_rows.keys_of(frame, self._keys))
        changed, last, at = self._groups.of(slots)
        was = np.ones(changed.size, dtype=bool)
        was[at[new_rows]] = False
        stays = changelog.signs(frame)[last] > 0
        kept = np.flatnonzero(was)
        old = pl.concat([self._table.keys(changed[kept]), self._table.take(changed[kept])], how="horizontal")
        old = old.select(self._columns)
        new = frame[last].select(self._columns)
        differs = np.ones(changed.size, dtype=bool)
        if self._ttl_us is None:
            differs[kept] = ~(stays[kept] & equal_rows(old, new[kept], self._columns))
        self._store(changed, new, stays)
        marks = watermark_times(frame)[last]
        gone = np.flatnonzero(differs[kept])
        gone_kinds = np.where(stays[kept[gone]], ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE)
        come = np.flatnonzero(stays & differs)
        come_kinds = np.where(was[come], ChangeKind.UPDATE_AFTER, ChangeKind.INSERT)
        parts = [
            Part(old[gone], kept[gone] * 2, marks[kept[gone]], gone_kinds),
            Part(new[come], come * 2 + 1, marks[come], come_kinds),
        ]
        result = assembled(parts, with_watermark=WATERMARK in frame.columns, with_change=True)
        if result is not None:
            yield batch.with_frame(result)

    def _store(self, slots: Places, rows: pl.DataFrame, stays: Flags) -> None:
        staying = np.flatnonzero(stays)
        ticks = pl.repeat(self._now_us, staying.size, dtype=pl.Int64, eager=True).alias(TICK)
        self._table.put(slots[staying], rows[staying].select(self._values).with_columns(ticks))
        self._table.remove(slots[~stays])
