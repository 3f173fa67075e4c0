"""Aggregates per key and window: ``key_by("user").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, per_schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes, Combiner, Derivation, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.interfaces.windows import Emit, Window

from headrace_stateful.aggregates.aggregates import AggregatePlan, compile_aggregates
from headrace_stateful.aggregates.changing_groups import changing_groups
from headrace_stateful.keys.state_columns import StateInColumns, emit_setting, kept_columns, window_setting
from headrace_stateful.keys.ticks import CLOCK_TICK_SECONDS
from headrace_stateful.windows.window_combiner import combiner_of
from headrace_stateful.windows.window_shape import (
    WINDOW_END,
    WINDOW_START,
    WindowShape,
    check_windows,
    gives_changes,
    results_schema,
)


class WindowSpec(StateInColumns):
    """What the operators over windows have in common."""

    outputs = ("", "late")
    #: Whether rows can be retracted from the state.
    can_take_back = False

    def __init__(self, keys: Sequence[str], window: Window, emit: Emit | None) -> None:
        self.keys = tuple(keys)
        self.window = window
        self.emit = emit or Emit()
        #: Whether rows are taken back; found when the plan is checked.
        self.takes_back = False

    @abstractmethod
    def plan(self, schema: Schema) -> AggregatePlan:
        """Return the compiled aggregates. Raises JobError when they do not fit the columns."""

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        if output == "late":
            return schema
        return self._shape(schema).output

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        # What is wanted of late rows goes by the names of the input's columns.
        own = () if self.window.on is None else (self.window.on,)
        return {*self.keys, *own, *self.plan(schema).columns, *(name for name in wanted if name in schema)}

    @property
    def tick_seconds(self) -> float | None:
        return CLOCK_TICK_SECONDS if self.window.on is None else None

    def combiner(self, schema: Schema | None) -> Combiner | None:
        return combiner_of(self._shape(schema))

    def open(self, schema: Schema | None) -> StatefulOperator:
        shape = self._shape(schema)
        if self.window.kind == "session":
            if gives_changes(self.emit):
                from headrace_stateful.windows.session_changes import SessionChanges

                return SessionChanges(shape)
            from headrace_stateful.windows.session_windows import SessionWindows

            return SessionWindows(shape)
        from headrace_stateful.windows.aligned_windows import AlignedWindows

        return AlignedWindows(shape)

    @property
    def adapts_state(self) -> bool:  # type: ignore[override]
        # Sessions that give changes keep rows, numbered through; so may windows over rows that change.
        return not self.takes_back and not (self.window.kind == "session" and gives_changes(self.emit))

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = check_windows(schema, self.keys, self.window)
        plan = self.plan(columns)
        held = plan.held(inputs=not self.adapts_state)
        settings = {"window": window_setting(self.window), "emit": emit_setting(self.emit), **self.own_settings()}
        if self.takes_back:
            settings["takes rows back"] = True
        return StateDefinition(self.name, settings, self.keys, kept_columns(columns, self.keys), held)

    @property
    def maps_state(self) -> bool:  # type: ignore[override]
        # Sessions that give changes are kept as lists in Python.
        return not (self.window.kind == "session" and gives_changes(self.emit))

    def own_settings(self) -> dict[str, Any]:
        """Return what else must stay the same so that the state can be used."""
        return {}

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        columns = check_windows(schema, self.keys, self.window)
        plan = self.plan(columns)
        return {**columns, **plan.partial_schema, **plan.input_schema}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        columns = check_windows(schema, self.keys, self.window)
        if output:
            return Derivation({name: quoted(name) for name in columns})
        own = {name: quoted(name) for name in (*self.keys, WINDOW_START, WINDOW_END)}
        return Derivation({**own, **self.plan(columns).texts})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None and not self.can_take_back:
            raise PlanError(
                f"{self.name} takes rows that are only added, not results that change",
                hint="aggregate with agg(…), or reduce rows before they change",
            )
        if before is not None and gives_changes(self.emit):
            raise PlanError(
                "over rows that change, windows return each result once: early results and updates for late rows are not supported",
                hint="leave out emit(…), or aggregate without a window",
            )
        self.takes_back = before is not None
        if not gives_changes(self.emit):
            return None
        return Changes((*self.keys, WINDOW_START, WINDOW_END))

    def _shape(self, schema: Schema | None) -> WindowShape:
        known = check_windows(schema, self.keys, self.window)
        plan = self.plan(known)
        output = results_schema(known, self.keys, self.window, plan.schema, changes=gives_changes(self.emit))
        return WindowShape(self.keys, self.window, self.emit, known, plan, output)


class WindowAggregate(WindowSpec):
    """Gives keys, ``window_start``, ``window_end`` and the aggregates of each window and key.

    Without ``emit`` the result of a window is given once, when the watermark has reached its end. With ``before`` or ``until`` results
    are a changelog with the column ``window_result``: ``early``, ``final`` or ``update``; a result takes the place of the one before of the
    same key and window. A row that comes when all its windows are closed goes to the output ``late``.

    Rows may change: a retracted row leaves the windows of its time, unless they are closed. A window returns nothing for a key
    of which no row is left. A session does not become shorter. Late rows are returned only if they add something.
    """

    name = "window_aggregate"
    takes_functions = True
    can_take_back = True

    def __init__(
        self,
        keys: Sequence[str],
        window: Window,
        aggregates: Mapping[str, str],
        *,
        emit: Emit | None = None,
        functions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(keys, window, emit)
        self.aggregates = dict(aggregates)
        self.functions = functions

    def describe(self) -> str:
        aggregates = ", ".join(f"{name}={text}" for name, text in self.aggregates.items())
        return f"{self.window}: {aggregates}"

    def plan(self, schema: Schema) -> AggregatePlan:
        return self._taking_back(schema) if self.takes_back else self._adding(schema)

    @per_schema
    def _adding(self, schema: Schema) -> AggregatePlan:
        return compile_aggregates(self.aggregates, schema, keys=self.keys, functions=self.functions)

    @per_schema
    def _taking_back(self, schema: Schema) -> AggregatePlan:
        made = compile_aggregates(self.aggregates, schema, keys=self.keys, functions=self.functions, retracts=True)
        return changing_groups(made)
