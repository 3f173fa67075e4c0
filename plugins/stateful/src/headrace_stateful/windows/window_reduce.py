"""Rows of each key and window combined two by two by a Python function: ``…window(…).reduce(function)``.

The rows of a window are kept as they are until it gives a result: the function is called on them from the first to the last, in
the order in which they came, whatever has been stored in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, FunctionError, PlanError, did_you_mean
from headrace.interfaces.windows import Emit, Window
from headrace.runtime.waiting import until_answered
from headrace_columnar.evaluation import RowFailure

from headrace_stateful.aggregates.aggregate_partials import PartialColumn
from headrace_stateful.aggregates.aggregates import AggregatePlan
from headrace_stateful.aggregates.reduce import function_name
from headrace_stateful.keys.typed_rows import RowTypes
from headrace_stateful.windows.window_aggregate import WindowSpec

_ROW = "__hr_a0"
_ROWS = "__hr_p0"

Reducer = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


class WindowReduce(WindowSpec):
    """Gives keys, ``window_start``, ``window_end`` and the other columns as the function leaves them; see ``WindowAggregate``.

    The function is called with the value so far and the next row, both dicts, and returns the new value, of the same columns; the
    first row is the first value. ``schema`` names the columns that matter (default: all); the key's are always there and stay the
    key's. A row for which the function raises goes to the dead letters and leaves the value as it was; with ``emit`` that may be told
    more than once.
    """

    name = "window_reduce"

    def __init__(
        self,
        keys: Sequence[str],
        window: Window,
        function: Reducer,
        *,
        schema: Mapping[str, Any] | None = None,
        emit: Emit | None = None,
    ) -> None:
        super().__init__(keys, window, emit)
        if not callable(function):
            raise FunctionError(f"reduce needs a function of two rows, not {function!r}")
        self.function = function
        self.schema = None if schema is None else Schema.of(schema)

    def describe(self) -> str:
        return f"{self.window}: {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def own_settings(self) -> dict[str, Any]:
        return {"function": function_name(self.function)}

    def plan(self, schema: Schema) -> AggregatePlan:
        wanted = schema if self.schema is None else self.schema
        for name, kind in wanted.items():
            if name not in schema:
                raise PlanError(f"unknown column {name!r}", hint=did_you_mean(name, list(schema), known="columns"))
            if schema[name] != kind:
                raise PlanError(
                    f"column {name!r} is {schema[name]}, but the reduced value of a window has the type {kind}",
                    hint="the first row of a window is its first value: convert the column to that type before this verb",
                )
        keys = {name: schema[name] for name in self.keys}
        return ReducePlan(Schema({**keys, **wanted}), self.keys, self.function)


class ReducePlan(AggregatePlan):
    """Keeps rows, and reduces them when asked for results."""

    def __init__(self, types: Schema, keys: Sequence[str], function: Reducer) -> None:
        kind = pl.Struct(dict(types))
        row = pl.col(_ROW)
        kept = PartialColumn(_ROWS, "concat", pl.List(kind), row, row.alias(_ROWS), is_lifted=False)
        super().__init__({}, [kept], [], [], {}, {_ROWS: "rows of the window", _ROW: "rows"})
        self._types = RowTypes(types)
        self._keys = frozenset(keys)
        self._function = function
        self._failed: list[tuple[pl.DataFrame, list[str]]] = []
        self.columns = frozenset(types)
        self.input_schema = {_ROW: kind}
        self.schema = Schema({name: data_type for name, data_type in types.items() if name not in self._keys})
        self.order_sensitive = True

    def inputs(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        return frame.select(pl.struct(list(self._types.types)).alias(_ROW)), []

    def finish(self, partials: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        values = [self._reduced(rows) for rows in partials[_ROWS].to_list()]
        return self._types.frame(values).select(list(self.schema)), []

    def _combined(self, value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return self._types.checked(self._function(dict(value), dict(row)))

    def _reduced(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        value = rows[0]
        for row in rows[1:]:
            try:
                made = until_answered(partial(self._combined, value, row))
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
                self._failed.append((self._types.frame([row]), [f"{type(error).__name__}: {error}"]))
                continue
            value = {name: value[name] if name in self._keys else made[name] for name in self._types.types}
        return value

    def take_failed(self) -> list[tuple[pl.DataFrame, list[str]]]:
        taken, self._failed = self._failed, []
        return taken
