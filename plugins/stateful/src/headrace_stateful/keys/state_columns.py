"""Verbs whose state is in columns. Stored states with other columns are converted to the present ones: renamed,
dropped, added empty, cast to wider types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.state_definition import Kept, StateDefinition, kept, quoted
from headrace.interfaces.windows import Emit, Window

from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.slot_parts import pack_part, unpack_part
from headrace_stateful.keys.state_bytes import pack, unpack

#: Partials and inputs of aggregates are called ``__hr_p0``, ``__hr_a1``: of which kind a column is, these letters say.
_KIND_LENGTH = len("__hr_p")
_SIDES = ("left", "right")


class StateInColumns(StatefulSpec):
    """A verb whose state stays usable when columns are added or widened."""

    adapts_state = True

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        """Return the columns that the state may have, with the types of now. Verbs that keep others than those of the rows override it."""
        return keyed_rows.known(schema)

    def adapted(
        self, stored: StateDefinition, now: StateDefinition, schema: Schema | None, state: bytes, *, part: bool = False
    ) -> bytes:
        return brought_over(stored, now, self.columns_in_state(schema), state, part=part)


def kept_columns(schema: Mapping[str, pl.DataType], names: Sequence[str] | None = None) -> dict[str, Kept]:
    """Return columns of a state that are called as in the rows."""
    return {name: kept(name, schema[name]) for name in (schema if names is None else names)}


def window_setting(window: Window) -> dict[str, Any]:
    """Return a window as JSON values."""
    on = "processing time" if window.on is None else quoted(window.on)
    lengths = {"size_us": window.size_us, "every_us": window.every_us, "offset_us": window.offset_us}
    return {"kind": window.kind, **lengths, "on": on}


def emit_setting(emit: Emit) -> dict[str, Any]:
    """Return when a window gives results, as JSON values."""
    return {"before_us": emit.before_us, "after_us": emit.after_us, "until_us": emit.until_us}


def brought_over(
    stored: StateDefinition, now: StateDefinition, types: Mapping[str, pl.DataType], state: bytes, *, part: bool
) -> bytes:
    """Return a state converted to the present definition; ``types``: the types of its columns, by their names in the state.

    ``part``: the bytes are a range of keys, as ``SlotTable.parts`` gives them. Of joins, names of ``types`` begin with the side.
    """
    if not state:
        return state
    try:
        if part:
            return pack_part({name: _fitted(name, f, stored, now, types) for name, f in unpack_part(state).items()})
        kind, frames, values = unpack(state)
        return pack(kind, {name: _fitted(name, f, stored, now, types) for name, f in frames.items()}, values)
    except pl.exceptions.PolarsError as error:
        raise CheckpointError(f"the state of {now.verb} cannot be converted to its present columns: {error}") from error


def _fitted(
    name: str, frame: pl.DataFrame, stored: StateDefinition, now: StateDefinition, types: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    side = name.partition(".")[0]
    side = side if side in _SIDES else ""
    before, after = _of_side({**stored.columns, **stored.held}, side), _of_side({**now.columns, **now.held}, side)
    targets = {each.column: after.get(text) for text, each in before.items()}
    made: list[pl.Expr] = []
    for column in frame.columns:
        if column not in targets:
            made.append(pl.col(column))
        elif (target := targets[column]) is not None:
            made.append(pl.col(column).cast(_type(types, side, target.column)).alias(target.column))
    kinds = {column[:_KIND_LENGTH] for column in frame.columns if column.startswith(("__hr_p", "__hr_a"))}
    for text, each in after.items():
        if text not in before and each.column[:_KIND_LENGTH] in kinds:
            made.append(pl.lit(None, dtype=_type(types, side, each.column)).alias(each.column))
    return frame.select(made)


def _of_side(columns: Mapping[str, Kept], side: str) -> dict[str, Kept]:
    if not side:
        return dict(columns)
    return {text: each for text, each in columns.items() if text.startswith(f"{side} ")}


def _type(types: Mapping[str, pl.DataType], side: str, column: str) -> pl.DataType:
    return types[f"{side}.{column}" if side else column]


def side_types(left: Schema, right: Schema) -> dict[str, pl.DataType]:
    """Return the columns of two sides under names that tell them apart."""
    sides = zip(_SIDES, (left, right), strict=True)
    return {f"{side}.{name}": kind for side, schema in sides for name, kind in schema.items()}


def kept_sides(left: Schema, right: Schema) -> dict[str, Kept]:
    """Return the columns of both sides of a join as columns of its state."""
    return {name: kept(name.partition(".")[2], kind) for name, kind in side_types(left, right).items()}
