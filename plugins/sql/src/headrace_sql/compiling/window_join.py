"""Joins of rows in the same window: equalities of the windows' starts and ends on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.interfaces.windows import Window
from headrace_stateful.windows.window_shape import WINDOW_END, WINDOW_START
from sqlglot import exp

from headrace_sql.binding.scope import Column, Relation, Time, hidden_suffix, is_updating, unused_name
from headrace_sql.binding.trees import all_of, physical, text_of, with_names
from headrace_sql.compiling.sides import Sides

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream


_MILLISECOND_US = 1_000


def window_join(sides: Sides) -> tuple[Column, Column] | None:
    """Return the columns of the windows' ends on both sides where rows of the same window are joined; else None."""
    if is_updating(sides.left) or is_updating(sides.right):
        return None
    found = {}
    for left, right in sides.keys:
        mine, other = _window_column(sides.left, left), _window_column(sides.right, right)
        if mine is not None and other is not None and mine.window == other.window:
            found[mine.window] = (mine, other)
    return found["end"] if {"start", "end"} <= set(found) else None


def _window_column(side: Relation, name: str) -> Column | None:
    return next((c for c in side.columns if c.physical == name and c.window in ("start", "end")), None)


def in_windows(sides: Sides, ends: tuple[Column, Column], how: str, conditions: Sequence[exp.Expr]) -> Relation:
    """Return the join: the rows of a window are joined when it closes, and forgotten then. Translated ``conditions`` must all hold.

    All rows of a window have the same last millisecond, which is a separate window for the operator. Late rows are dropped.
    """
    moments: list[str] = []
    streams: list[Stream] = []
    renamed: dict[str, str] = {}
    for side, end in ((sides.left, ends[0]), (sides.right, ends[1])):
        # The operator adds columns of these names itself.
        own = {
            name: unused_name(f"__own_{name}", sides.both.schema)
            for name in (WINDOW_START, WINDOW_END)
            if name in side.schema
        }
        renamed |= own
        moment = unused_name(f"__moment_{len(moments)}", side.schema)
        stream = side.stream.with_columns(**{moment: f"{text_of(physical(end.physical))} - INTERVAL '1' MILLISECOND"})
        streams.append(stream.rename(own) if own else stream)
        moments.append(moment)
    keys = [tuple(renamed.get(name, name) for name in pair) for pair in sides.keys]
    window = Window("tumbling", _MILLISECOND_US, _MILLISECOND_US, moments[0])
    stream = streams[0].join(
        streams[1],
        keys,
        how=how,
        where=all_of([with_names(each, renamed) for each in conditions]),
        suffix=hidden_suffix(streams[0].schema, streams[1].schema),
        window=window,
        time=(moments[0], moments[1]),
    )
    if how in ("semi", "anti"):  # only the rows of the left side come out
        own_names = {name: text_of(physical(renamed.get(name, name))) for name in sides.left.schema}
        return Relation(stream.select(**own_names), tuple(_after_window(c) for c in sides.left.columns))
    columns = tuple(replace(_after_window(c), physical=renamed.get(c.physical, c.physical)) for c in sides.both.columns)
    kept = dict.fromkeys(c.physical for c in columns if c.time != "processing")
    return Relation(stream.select(*(text_of(physical(name)) for name in kept)), columns)


def _after_window(column: Column) -> Column:
    return replace(column, time=_time_after(column))


def _time_after(column: Column) -> Time | None:
    """Times of rows lie behind the watermark when their window closes; the window's own time is just reached."""
    return column.time if column.window == "time" or column.time == "processing" else None
