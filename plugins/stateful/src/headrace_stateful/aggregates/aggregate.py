"""Running aggregates per key: ``key_by("k").agg(n="count(*)", total="sum(v)")``.

Each key has one row of partial results. A batch is aggregated by itself and merged with what is there; keys whose results differ
after it give a change. Rows that are taken back are subtracted where that is possible (counts, sums, averages); else the key's rows
are kept too, and its results are computed again from the remaining ones. A key without rows is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, SystemMessage, Tick, watermark_times
from headrace.flow.schema import Schema, per_schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import Changes, Derivation, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.interfaces.windows import Duration, microseconds
from headrace_columnar.evaluation import RowFailure

from headrace_stateful.aggregates.aggregates import SIGN, AggregatePlan, compile_aggregates
from headrace_stateful.aggregates.distinct_values import DistinctValues
from headrace_stateful.joins.join_shape import Part, assembled
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Flags, Places, equal_rows
from headrace_stateful.keys.kept_by_key import KeptByKey, spilled_columns
from headrace_stateful.keys.parted_table import PartedTable
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.shares import log_share, numbers, renumbered, snapshots, table_share
from headrace_stateful.keys.slots import SlotTable
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import kept_columns

_SLOT = "__hr_slot"
_GROUP = "__hr_group"
_ROWS = "__hr_rows"
_TICK = "__hr_tick"


class Aggregate(KeptByKey):
    """``agg``: results per key, as a changelog. A key from which nothing has come for ``ttl`` (processing time) is forgotten."""

    name = "aggregate"
    maps_state = True
    takes_functions = True

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, str],
        *,
        ttl: Duration | None = None,
        functions: Mapping[str, Any] | None = None,
        integer_average: bool = False,
    ) -> None:
        self.keys = tuple(keys)
        self.aggregates = dict(aggregates)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")
        self.functions = functions
        self.integer_average = integer_average
        #: Whether rows are taken back; found when the plan is checked.
        self.takes_back = False

    def plan(self, schema: Schema) -> AggregatePlan:
        """Return the aggregates, compiled against the columns of the rows."""
        return self._taking_back(schema) if self.takes_back else self._adding(schema)

    @per_schema
    def _taking_back(self, schema: Schema) -> AggregatePlan:
        return self._compiled(schema, retracts=True)

    @per_schema
    def _adding(self, schema: Schema) -> AggregatePlan:
        return self._compiled(schema, retracts=False)

    def _compiled(self, schema: Schema, *, retracts: bool) -> AggregatePlan:
        return compile_aggregates(
            self.aggregates, schema, keys=self.keys, functions=self.functions, retracts=retracts,
            integer_average=self.integer_average,
        )  # fmt: skip

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys)
        for name in self.aggregates:
            if name in self.keys:
                raise PlanError(
                    f"two columns of the result are called {name!r}",
                    hint="give the aggregate another name than the key",
                )
        return Schema({**{name: columns[name] for name in self.keys}, **self.plan(columns).schema})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return {*self.keys, *self.plan(schema).columns}

    def changes(self, before: Changes | None) -> Changes | None:
        self.takes_back = before is not None
        return Changes(self.keys)

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = keyed_rows.known(schema)
        plan = self.plan(columns)
        return StateDefinition(
            self.name, {"takes rows back": self.takes_back}, self.keys, kept_columns(columns, self.keys),
            plan.held(inputs=self.takes_back and not plan.takes_back_by_sign), {"ttl_us": self.ttl_us},
        )  # fmt: skip

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        columns = keyed_rows.known(schema)
        plan = self.plan(columns)
        return {**columns, **plan.partial_schema, **plan.input_schema}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        columns = {name: quoted(name) for name in self.keys}
        return Derivation({**columns, **self.plan(keyed_rows.known(schema)).texts})

    def stays_in_memory(self, schema: Schema | None) -> str | None:
        columns = keyed_rows.known(schema)
        plan = self.plan(columns)
        if self.takes_back and not plan.takes_back_by_sign:
            return "an aggregate such as min or max over rows that are taken back keeps these rows in memory"
        return spilled_columns(self, {**keyed_rows.key_types(columns, self.keys), **plan.partial_schema})

    def open(self, schema: Schema | None) -> StatefulOperator:
        columns = keyed_rows.known(schema)
        return RunningAggregate(self.keys, columns, self.plan(columns), takes_back=self.takes_back, ttl_us=self.ttl_us)

    def describe(self) -> str:
        results = ", ".join(f"{name}={text}" for name, text in self.aggregates.items())
        return f"{results} by {', '.join(self.keys) or 'nothing'}"


class RunningAggregate(PartedTable):
    """The running operator."""

    def __init__(
        self, keys: tuple[str, ...], schema: Schema, plan: AggregatePlan, *, takes_back: bool, ttl_us: int | None
    ) -> None:
        self._keys = keys
        self._plan = plan
        self._signed = takes_back and plan.takes_back_by_sign
        self._ttl_us = ttl_us
        values: dict[str, pl.DataType] = {**plan.partial_schema, _ROWS: pl.Int64(), _TICK: pl.Int64()}
        self._table = SlotTable(keyed_rows.key_types(schema, keys), values)
        self._log: RowLog | None = None
        if takes_back and not plan.takes_back_by_sign:
            self._log = RowLog({**plan.input_schema, _SLOT: pl.Int64()}, (_SLOT,))
        self._groups = keyed_rows.SlotGroups()
        self._different = DistinctValues(plan, _GROUP)
        self._now_us = 0

    def use_mapped(self, memory: MappedMemory) -> None:
        super().use_mapped(memory)
        if self._log is not None:
            self._log.use_mapped(memory)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        inputs, failures = self._plan.inputs(frame)
        if failures:
            yield _rejected(frame, failures)
            good = np.ones(frame.height, dtype=bool)
            good[[row for row, _ in failures]] = False
            frame, inputs = frame.filter(pl.Series(good)), inputs.filter(pl.Series(good))
            if frame.height == 0:
                return
        slots, new_rows = self._table.find_or_insert(keyed_rows.keys_of(frame, self._keys))
        changed, last, at = self._groups.of(slots)
        is_new = np.zeros(changed.size, dtype=bool)
        is_new[at[new_rows]] = True
        old = self._table.take(changed[~is_new])
        rows = inputs.with_columns(pl.Series(_SLOT, slots), pl.Series(_GROUP, at))
        merged, counts = self._merged(rows, changelog.signs(frame), changed, is_new, old)
        stays = counts > 0
        merged = merged if stays.all() else merged.filter(pl.Series(stays[merged[_GROUP].to_numpy()]))
        groups = merged[_GROUP].to_numpy()
        marks = [pl.Series(_ROWS, counts[groups]), pl.repeat(self._now_us, merged.height, dtype=pl.Int64, eager=True)]
        self._table.put(changed[groups], merged.with_columns(marks[0], marks[1].alias(_TICK)))
        parts, wrong = self._changes(changed, last, is_new, old, merged, watermark_times(frame))
        self._remove(changed[~stays])
        result = assembled(parts, with_watermark=WATERMARK in frame.columns, with_change=True)
        if result is not None:
            yield batch.with_frame(result)
        if wrong:
            yield _rejected(frame, wrong)

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            if self._ttl_us is not None:
                self._forget(self._table.slots_to_forget(_TICK, self._now_us - self._ttl_us + 1))
        return ()

    def _merged(
        self, rows: pl.DataFrame, signs: Places, changed: Places, is_new: Flags, old: pl.DataFrame
    ) -> tuple[pl.DataFrame, Places]:
        """Return the partials of the changed slots after the batch, in any order, and the number of rows of each slot, in theirs.

        ``rows`` says for each row its slot and which of the changed slots that is (its group). Where a slot has no row left, its partials
        mean nothing.
        """
        counts = np.zeros(changed.size, dtype=np.int64)
        counts[~is_new] = old[_ROWS].to_numpy()
        before = old.select(list(self._plan.partial_schema)).with_columns(pl.Series(_GROUP, np.flatnonzero(~is_new)))
        if self._log is not None:
            made = self._from_values(self._log, rows, signs, changed, counts, before)
        else:
            counts += np.bincount(rows[_GROUP].to_numpy(), weights=signs, minlength=changed.size).astype(np.int64)
            if self._signed:
                rows = rows.with_columns(pl.Series(SIGN, signs.astype(np.int8)))
            new = self._plan.partial(rows, [_GROUP], signed=self._signed)
            made = self._different.merge(before, new, changed) if before.height else new
        return made, counts  # not put in order: lists of many values would be copied

    def _from_values(
        self, log: RowLog, rows: pl.DataFrame, signs: Places, changed: Places, counts: Places, before: pl.DataFrame
    ) -> pl.DataFrame:
        """Return partials computed from the kept rows: again for each slot from which a row was retracted."""
        back, more = rows.filter(pl.Series(signs < 0)), rows.filter(pl.Series(signs > 0))
        # What is taken back is the oldest of equal rows, so that it does not matter that rows are added first.
        log.append(more)
        gone = log.find_equal(back.drop(_GROUP))
        log.remove(gone[gone >= 0])
        for part, by in ((back.filter(pl.Series(gone >= 0)), -1), (more, 1)):
            counts += by * np.bincount(part[_GROUP].to_numpy(), minlength=changed.size)
        anew = np.unique(back[_GROUP].to_numpy())
        at, left = log.find(pl.DataFrame({_SLOT: changed[anew]}), (_SLOT,))
        again = self._plan.partial(log.take(left).with_columns(pl.Series(_GROUP, anew[at])), [_GROUP])
        is_anew = pl.col(_GROUP).is_in(pl.Series(anew).implode())
        added = self._plan.partial(more.filter(~is_anew), [_GROUP])
        merged = self._plan.merge(pl.concat([before.filter(~is_anew).select(added.columns), added]), [_GROUP])
        nothing = np.setdiff1d(
            np.arange(changed.size), np.concatenate([merged[_GROUP].to_numpy(), again[_GROUP].to_numpy()])
        )
        log.tidy()
        return pl.concat([merged, again, pl.DataFrame({_GROUP: nothing})], how="diagonal")

    def _changes(
        self, changed: Places, last: Places, is_new: Flags, old: pl.DataFrame, merged: pl.DataFrame, watermarks: Places
    ) -> tuple[list[Part], list[RowFailure]]:  # fmt: skip
        """Return what changes, in the order of the last row of each key, and the rows for which a result failed."""
        keys = self._table.keys(changed)
        was, now = np.flatnonzero(~is_new), merged[_GROUP].to_numpy()
        before, lost = self._results(keys[was], old)
        after, failures = self._results(keys[now], merged)
        wrong = [(int(last[now[place]]), error) for place, error in failures]
        # A group whose result fails has no row, as a window whose result fails.
        was, before = _without(was, before, lost)
        now, after = _without(now, after, failures)
        if (now[1:] < now[:-1]).any():
            now, after = np.sort(now), after[np.argsort(now)]
        had, has = np.zeros(changed.size, dtype=bool), np.zeros(changed.size, dtype=bool)
        had[was], has[now] = True, True
        differs = np.ones(changed.size, dtype=bool)
        both = np.flatnonzero(had & has)
        if both.size:
            one = before if both.size == before.height else before[np.searchsorted(was, both)]
            other = after if both.size == after.height else after[np.searchsorted(now, both)]
            differs[both] = ~equal_rows(one, other, list(self._plan.schema))
        parts = []
        for rows, frame, update, alone, phase in (
            (was, before, ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE, 0),
            (now, after, ChangeKind.UPDATE_AFTER, ChangeKind.INSERT, 1),
        ):
            given = differs[rows]
            rows, frame = rows[given], frame.filter(pl.Series(given))
            kinds = np.where(had[rows] & has[rows], update, alone)
            parts.append(Part(frame, rows * 2 + phase, watermarks[last[rows]], kinds))
        return parts, wrong

    def _results(self, keys: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        named = keys.select(self._keys)
        values = partials.select(list(self._plan.partial_schema))
        results, failures = self._plan.finish(pl.concat([values, named], how="horizontal") if self._keys else values)
        return (pl.concat([named, results], how="horizontal") if self._keys else results), failures

    def _forget(self, slots: Places) -> None:
        if slots.size == 0:
            return
        if self._log is not None:
            _, places = self._log.find(pl.DataFrame({_SLOT: slots}), (_SLOT,))
            self._log.remove(places)
            self._log.tidy()
        self._remove(slots)

    def _remove(self, slots: Places) -> None:
        self._different.forget(slots)
        self._table.remove(slots)

    # ---------------------------------------------------------------------------------------------------- state

    @property
    def restores_behind(self) -> bool:
        return self._log is None  # rows that are kept are not divided by key

    def delta(self) -> bytes:
        frames = keyed_rows.prefixed("keys", self._table.delta())
        if self._log is not None:
            frames |= keyed_rows.prefixed("rows", self._log.delta())
        return pack("delta", frames) if frames else b""

    def snapshot(self) -> bytes:
        frames = keyed_rows.prefixed("keys", self._table.snapshot())
        if self._log is not None:
            frames |= keyed_rows.prefixed("rows", self._log.snapshot())
        return pack("snapshot", frames)

    def frozen(self, *, whole: bool) -> FrozenState:
        parts = {"keys": self._table.frozen(whole=whole)}
        if self._log is not None:
            parts["rows"] = self._log.frozen(whole=whole)
        if not whole and not any(rows for _, rows in parts.values()):
            return FrozenState.of(b"")
        return keyed_rows.frozen_parts(parts, whole=whole, drop=self._table.drop_frozen)

    def apply(self, state: bytes) -> None:
        _, frames, _ = unpack(state)
        self._different.clear()
        self._table.apply(keyed_rows.part("keys", frames))
        if self._log is not None:
            self._log.apply(keyed_rows.part("rows", frames))

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found = [frames for frames, _ in snapshots(states)]
        rows, slots = table_share([keyed_rows.part("keys", frames) for frames in found], share)
        made = {"keys.set": rows}
        if self._log is not None:
            logs = []
            for frames, new in zip(found, slots, strict=True):
                log = keyed_rows.part("rows", frames)["added"]
                logs.append(renumbered(log, _SLOT, new.to(numbers(log, _SLOT))))
            made["rows.added"] = log_share(logs, [numbers(log, _SLOT) >= 0 for log in logs])
        return pack("snapshot", made)

    def state_rows(self) -> int:
        return len(self._table)


def _without(groups: Places, results: pl.DataFrame, failures: list[RowFailure]) -> tuple[Places, pl.DataFrame]:
    """Leave out groups whose results failed."""
    if not failures:
        return groups, results
    kept = np.ones(groups.size, dtype=bool)
    kept[[place for place, _ in failures]] = False
    return groups[kept], results.filter(pl.Series(kept))


def _rejected(frame: pl.DataFrame, failures: list[RowFailure]) -> RejectedRows:
    rows = [row for row, _ in failures]
    return RejectedRows(
        frame[rows], [str(error) for _, error in failures], [type(error).__name__ for _, error in failures]
    )
