"""What verbs have in common whose state is in columns, and those of them that remember something per key."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from headrace.flow.schema import Schema
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.state_definition import StateDefinition

from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.state_columns import brought_over
from headrace_stateful.keys.ticks import ttl_tick_seconds


class StateInColumns(StatefulSpec):
    """A verb whose state goes on when columns are added or widened."""

    adapts_state = True

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        """Return the columns that the state may have, with the types of now. Verbs that keep others than those of the rows override it."""
        return keyed_rows.known(schema)

    def adapted(
        self, stored: StateDefinition, now: StateDefinition, schema: Schema | None, state: bytes, *, part: bool = False
    ) -> bytes:
        return brought_over(stored, now, self.columns_in_state(schema), state, part=part)


class KeptByKey(StateInColumns):
    """A verb that remembers something per key, and whose state goes on when the time-to-live is another.

    ``ttl_us``: how long what came for a key is remembered (processing time); None: for ever.
    """

    ttl_us: int | None = None

    @property
    def tick_seconds(self) -> float | None:
        return ttl_tick_seconds(self.ttl_us)
