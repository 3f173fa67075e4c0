"""What operators with one key per row have in common: their key columns, packing of their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError, did_you_mean
from headrace.interfaces.frozen_state import FrozenState, StateContent

from headrace_stateful.joins.join_shape import nullable
from headrace_stateful.keys.columns import Places, grown
from headrace_stateful.keys.state_bytes import pack_into

#: The key where there is none: all rows have it.
ALL = "__hr_all"


def known(schema: Schema | None) -> Schema:
    """Return the schema. Raises PlanError when the columns are known only row by row."""
    if schema is None:
        raise PlanError(
            "the columns are not known when the job is built", hint="give the map() before it an option schema={...}"
        )
    return schema


def check_columns(schema: Schema, columns: Sequence[str]) -> None:
    """Raise PlanError for the first column that is not there."""
    for name in columns:
        if name not in schema:
            raise PlanError(f"unknown column {name!r}", hint=did_you_mean(name, list(schema), known="columns"))


def key_types(schema: Schema, keys: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the columns of the key; if there are none, a column that is the same for all rows."""
    return {name: schema[name] for name in keys} or {ALL: pl.Int8()}


def keys_of(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the key columns of rows, as ``key_types`` says."""
    if keys:
        return frame.select(keys)
    return pl.DataFrame({ALL: pl.repeat(0, frame.height, dtype=pl.Int8, eager=True)})


def prefixed(name: str, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return frames of a part of the state under the part's name."""
    return {f"{name}.{each}": frame for each, frame in frames.items()}


def frozen_parts(
    parts: Mapping[str, tuple[Callable[[], Mapping[str, pl.DataFrame]], int]],
    values: Mapping[str, Any] | None = None,
    *,
    whole: bool,
    drop: Callable[[], None] | None = None,
) -> FrozenState:
    """Return what packs a snapshot (``whole``) or a delta of several parts later.

    ``parts``: by name, what the part's table or log gave for ``frozen``. The values must not change until then. ``drop``: called if
    nobody needs the bytes.
    """

    def write(content: StateContent) -> None:
        frames: dict[str, pl.DataFrame] = {}
        for name, (make, _) in parts.items():
            frames |= prefixed(name, make())
        pack_into(content, "snapshot" if whole else "delta", frames, values)

    rows = sum(count for _, count in parts.values())
    return FrozenState.written(write, rows) if drop is None else FrozenState.written(write, rows, drop)


def part(name: str, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return the frames of a part of the state: what ``prefixed`` was given."""
    prefix = f"{name}."
    return {each.removeprefix(prefix): frame for each, frame in frames.items() if each.startswith(prefix)}


def with_watermarks(frame: pl.DataFrame, source: pl.DataFrame, rows: Places) -> pl.DataFrame:
    """Put on results the watermarks of the rows of ``source`` that they come from, if it has any."""
    if WATERMARK not in source.columns:
        return frame
    marks = watermark_times(source)[rows]
    return frame.with_columns(nullable(WATERMARK, marks))


class SlotGroups:
    """Divides rows by slot without sorting: by an array with a place for every slot."""

    def __init__(self) -> None:
        self._place: Places = np.zeros(0, dtype=np.int64)

    def of(self, slots: Places) -> tuple[Places, Places, Places]:
        """Return the different slots in the order of their last row, that row, and for each row which of these slots it has."""
        self._place = place = grown(self._place, int(slots.max()) + 1)
        places = np.arange(slots.size)
        place[slots] = places  # of several, the last written stays
        last = np.flatnonzero(place[slots] == places)
        different = slots[last]
        place[different] = np.arange(different.size)
        return different, last, place[slots]
