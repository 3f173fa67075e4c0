"""``key_by("k").reduce(function)``: the rows of each key combined two by two by a Python function of two dicts.

The function is called once per row with the value so far and the row, and returns the new value: a dict of the same columns. The
first row of a key is its first value. A call that raises, or returns what does not fit the columns, sends its row to the dead
letters and leaves the value as it was. The key's columns are always those of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, FunctionError, PlanError
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace.interfaces.windows import Duration, microseconds
from headrace.runtime.waiting import until_answered

from headrace_stateful.joins.join_shape import Part, assembled
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import equal_rows
from headrace_stateful.keys.kept_by_key import KeptByKey, spilled_columns
from headrace_stateful.keys.slot_operator import TICK, SlotOperator
from headrace_stateful.keys.state_columns import kept_columns
from headrace_stateful.keys.typed_rows import RowTypes

Reducer = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


class Reduce(KeptByKey):
    """A changelog of one value per key. ``schema``: the columns that are combined (default: all), besides those of the key."""

    name = "reduce"
    maps_state = True

    def __init__(
        self,
        keys: Sequence[str],
        function: Reducer,
        *,
        schema: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> None:
        if not callable(function):
            raise FunctionError(f"reduce needs a function of two rows, not {function!r}")
        self.keys = tuple(keys)
        self.function = function
        self.schema = None if schema is None else Schema.of(schema)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys)
        if self.schema is None:
            return columns
        keyed_rows.check_columns(columns, list(self.schema))
        for name, kind in self.schema.items():
            if columns[name] != kind:
                raise PlanError(
                    f"column {name!r} is {columns[name]}, but the reduced value of a key has the type {kind}",
                    hint="the first row of a key is its first value: convert the column to that type before this verb",
                )
        return Schema({**{name: columns[name] for name in self.keys}, **self.schema})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError(
                "reduce cannot retract rows, but the rows of this stream change",
                hint="use agg(), whose results follow changes, or results that are final",
            )
        return Changes(self.keys)

    def definition(self, schema: Schema | None) -> StateDefinition:
        output = self.output_schema(schema)
        assert output is not None
        settings = {"function": function_name(self.function)}
        return StateDefinition(self.name, settings, self.keys, kept_columns(output), adjustable={"ttl_us": self.ttl_us})

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        return self.output_schema(schema) or {}

    def stays_in_memory(self, schema: Schema | None) -> str | None:
        return spilled_columns(self, self.output_schema(schema) or {})

    def open(self, schema: Schema | None) -> StatefulOperator:
        output = self.output_schema(schema)
        assert output is not None
        return RunningReduce(self.keys, output, self.function, self.ttl_us)

    def describe(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


def function_name(function: Any) -> str:
    """Return how a function is called: all that is known of it in a definition."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class RunningReduce(SlotOperator):
    """The running operator."""

    def __init__(self, keys: tuple[str, ...], output: Schema, function: Reducer, ttl_us: int | None) -> None:
        self._keys = keys
        self._types = dict(output)
        self._row_types = RowTypes(output)
        self._value_types = {name: kind for name, kind in output.items() if name not in keys}
        self._function = function
        super().__init__(keyed_rows.key_types(output, keys), self._value_types, ttl_us)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        keys = keyed_rows.keys_of(frame, self._keys)
        slots, new_rows = self._table.find_or_insert(keys)
        changed, last, at = self._groups.of(slots)
        is_new = np.zeros(changed.size, dtype=bool)
        is_new[at[new_rows]] = True
        old = pl.concat([self._table.keys(changed[~is_new]), self._table.take(changed[~is_new])], how="horizontal")
        old = old.select(list(self._types))
        values: dict[int, dict[str, Any]] = dict(zip(changed[~is_new].tolist(), old.to_dicts(), strict=True))
        failures = self._reduced(frame.select(list(self._types)).to_dicts(), slots.tolist(), values)
        new = self._row_types.frame([values[slot] for slot in changed.tolist()])
        tick = pl.repeat(self._now_us, changed.size, dtype=pl.Int64, eager=True).alias(TICK)
        self._table.put(changed, new.select(list(self._value_types)).with_columns(tick))
        was = np.flatnonzero(~is_new)
        differs = np.ones(changed.size, dtype=bool)
        differs[was] = ~equal_rows(old, new[was] if was.size else new.clear(), list(self._types))
        before, after = np.flatnonzero(differs[was]), np.flatnonzero(differs)
        marks = watermark_times(frame)[last]
        kinds = np.where(is_new[after], ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)
        parts = [
            Part(old[before], was[before] * 2, marks[was[before]], np.full(before.size, ChangeKind.UPDATE_BEFORE)),
            Part(new[after], after * 2 + 1, marks[after], kinds),
        ]
        result = assembled(parts, with_watermark=WATERMARK in frame.columns, with_change=True)
        if result is not None:
            yield batch.with_frame(result)
        if failures:
            rows = list(failures)
            errors = list(failures.values())
            yield RejectedRows(frame[rows], [str(each) for each in errors], [type(each).__name__ for each in errors])

    def _combined(self, value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return self._row_types.checked(self._function(dict(value), dict(row)))

    def _reduced(
        self, rows: list[dict[str, Any]], slots: list[int], values: dict[int, dict[str, Any]]
    ) -> dict[int, Exception]:
        """Combine rows with the values of their slots, in order; return the rows that failed."""
        failures: dict[int, Exception] = {}
        for place, (row, slot) in enumerate(zip(rows, slots, strict=True)):
            value = values.get(slot)
            if value is None:
                values[slot] = row
                continue
            try:
                made = until_answered(partial(self._combined, value, row))
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
                failures[place] = error
                continue
            values[slot] = {name: value[name] if name in self._keys else made[name] for name in self._types}
        return failures
