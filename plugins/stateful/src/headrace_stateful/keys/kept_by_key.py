"""What verbs have in common that remember something per key."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from headrace.interfaces.operator import StatefulSpec

from headrace_stateful.keys.row_bytes import unsuited
from headrace_stateful.keys.state_columns import StateInColumns
from headrace_stateful.keys.ticks import ttl_tick_seconds


def spilled_columns(spec: StatefulSpec, schema: Mapping[str, pl.DataType]) -> str | None:
    """Return why rows of these columns cannot be on disk, for ``stays_in_memory``; None: they can."""
    column = unsuited(schema)
    return None if column is None else f"{spec.name} keeps lists or nested values for a key, in the column {column}"


class KeptByKey(StateInColumns):
    """A verb that keeps something per key, and whose state stays usable when the time to live changes.

    ``ttl_us``: how long the state of a key is kept (processing time); None: forever.
    """

    ttl_us: int | None = None

    @property
    def tick_seconds(self) -> float | None:
        return ttl_tick_seconds(self.ttl_us)
