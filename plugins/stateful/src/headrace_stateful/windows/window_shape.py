"""What the operators of windows share: columns, which windows a row is in, and when a window gives results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, WATERMARK, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError, did_you_mean
from headrace.interfaces.windows import Emit, Window
from numpy.typing import NDArray

from headrace_stateful.aggregates.aggregates import AggregatePlan
from headrace_stateful.keys.keyed_rows import known
from headrace_stateful.windows.partial_log import END

Times = NDArray[np.int64]

NEVER = -(2**63)
FOREVER = 2**63 - 1
WINDOW_START = "window_start"
WINDOW_END = "window_end"
#: Says in a changelog which result a row is: ``early``, ``final`` or ``update``.
WINDOW_RESULT = "window_result"

#: The start of a session; other windows have theirs by their end.
START = "__hr_start"
#: When a result is given: the event time that makes it due. Column of results before they are put out.
INSTANT = "__hr_instant"


def check_windows(schema: Schema | None, keys: Sequence[str], window: Window) -> Schema:
    """Return the schema if keys and time column are in it. Raises PlanError."""
    schema = known(schema)
    for name in (*keys, *(() if window.on is None else (window.on,))):
        if name not in schema:
            raise PlanError(f"unknown column {name!r}", hint=did_you_mean(name, list(schema), known="columns"))
    if window.on is not None and not isinstance(schema[window.on], pl.Datetime):
        raise PlanError(
            f"column {window.on!r} is {schema[window.on]}, not a time",
            hint="declare it 'timestamp' in the schema, or make it one with CAST or TO_TIMESTAMP",
        )
    return schema


def results_schema(
    schema: Schema, keys: Sequence[str], window: Window, results: Mapping[str, pl.DataType], *, changes: bool
) -> Schema:
    """Return the columns of results: keys, bounds of the window, results, and ``window_result`` in a changelog.

    Raises PlanError when two of them have one name.
    """
    kind = time_type(schema, window)
    own: dict[str, pl.DataType] = {WINDOW_START: kind, WINDOW_END: kind}
    last: dict[str, pl.DataType] = {WINDOW_RESULT: pl.String()} if changes else {}
    columns: dict[str, pl.DataType] = {}
    for part in ({name: schema[name] for name in keys}, own, results, last):
        for name, data_type in part.items():
            if name in columns:
                raise PlanError(f"two columns of the result are called {name!r}", hint="give one of them another name")
            columns[name] = data_type
    return Schema(columns)


def time_type(schema: Schema, window: Window) -> pl.Datetime:
    """Return the type of window bounds: microseconds, in the time zone of the time column; UTC for processing time."""
    if window.on is None:
        return pl.Datetime("us", "UTC")
    kind = schema[window.on]
    assert isinstance(kind, pl.Datetime)
    return pl.Datetime("us", kind.time_zone)


def gives_changes(emit: Emit) -> bool:
    """Return whether results are a changelog."""
    return emit.before_us is not None or emit.until_us > 0


def window_ends(window: Window, times: Times) -> tuple[Times | None, Times]:
    """Return (row, end) of all windows of all rows, by row, then by end; row None: one window per row, in order."""
    size, every, offset = window.size_us, window.every_us, window.offset_us
    if window.kind == "tumbling":
        return None, (times - offset) // size * size + (offset + size)
    if window.kind == "cumulative":
        start = (times - offset) // size * size + offset
        first = start + ((times - start) // every + 1) * every
        count = (start + size - first) // every + 1
    else:
        latest = (times - offset) // every * every + offset
        # Windows that begin at the latest, one step before it, … and still hold the time.
        count = (latest + size - times - 1) // every + 1
        first = latest - (count - 1) * every + size
    rows = np.repeat(np.arange(len(times)), count)
    step = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, first[rows] + step * every


def window_starts(window: Window, ends: Times) -> Times:
    """Return the start of each window (not of sessions) by its end."""
    if window.kind == "cumulative":
        starts: Times = (ends - 1 - window.offset_us) // window.size_us * window.size_us + window.offset_us
        return starts
    return ends - window.size_us


def panes(window: Window, times: Times) -> tuple[Times, Times]:
    """Return for each row when its pane begins, and the end of the first of its windows.

    A pane is as long as all windows are made of; rows of one pane are in the same windows. Not for sessions.
    """
    pane = math.gcd(window.size_us, window.every_us)
    begins = (times - window.offset_us) // pane * pane + window.offset_us
    if window.kind == "cumulative" or window.every_us == window.size_us:
        return begins, begins + pane
    # The window that began first of those that hold the pane.
    latest = (begins - window.offset_us) // window.every_us * window.every_us + window.offset_us
    before = (latest + window.size_us - begins - 1) // window.every_us
    return begins, latest - before * window.every_us + window.size_us


def next_instants(emit: Emit, starts: Times, ends: Times, reached_us: int) -> Times:
    """Return when each window gives a result next, after event time ``reached_us``: before its end, at it, or after it.

    A window whose time is up (end + until) has its last instant then, however long ago.
    """
    instants = ends.copy()
    open_still = ends > reached_us
    if emit.before_us:
        passed = np.maximum(reached_us, starts - 1) - starts
        early = starts + np.maximum(passed // emit.before_us + 1, 1) * emit.before_us
        instants = np.where(open_still & (early < ends), early, instants)
    last = ends + emit.until_us
    late = last
    if emit.after_us:
        passed = np.maximum(reached_us, ends) - ends
        late = np.minimum(ends + (passed // emit.after_us + 1) * emit.after_us, last)
    return np.where(open_still, instants, late)


@dataclass(frozen=True)
class WindowShape:
    """All that a running operator of windows with aggregates needs to know."""

    keys: tuple[str, ...]
    window: Window
    emit: Emit
    schema: Schema
    plan: AggregatePlan
    output: Schema

    @property
    def changes(self) -> bool:
        return gives_changes(self.emit)

    @property
    def key_schema(self) -> dict[str, pl.DataType]:
        return {name: self.schema[name] for name in self.keys}

    @property
    def time_type(self) -> pl.Datetime:
        return time_type(self.schema, self.window)

    def table(self, groups: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
        """Finish partials: (groups and results side by side, rows that failed with all columns, why they failed)."""
        values, failures = self.plan.finish(partials)
        made = pl.concat([groups, values], how="horizontal")
        if not failures:
            return made, made.clear(), []
        failed = [place for place, _ in failures]
        keep = np.ones(made.height, dtype=bool)
        keep[failed] = False
        return made.filter(pl.Series(keep)), made[failed], [str(error) for _, error in failures]

    def put_out(self, results: pl.DataFrame) -> pl.DataFrame:
        """Return results (keys, ``START``, ``END``, results, perhaps ``CHANGE``; ``INSTANT``) as they leave the operator.

        Sorted by the instant, and stamped with the watermark before it.
        """
        kind = self.time_type
        results = results.sort(INSTANT, maintain_order=True)
        own = [pl.col(START).alias(WINDOW_START), pl.col(END).alias(WINDOW_END)]
        whole = results.with_columns(
            *(_as_time(column, kind) for column in own),
            pl.when(pl.col(INSTANT) > NEVER).then(pl.col(INSTANT) - 1).alias(WATERMARK),
        )
        header = [CHANGE] if self.changes else []
        return whole.select(*header, WATERMARK, *self.output)


def _as_time(column: pl.Expr, kind: pl.Datetime) -> pl.Expr:
    made = column.cast(pl.Datetime("us"))
    return made if kind.time_zone is None else made.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)


def inserted(results: pl.DataFrame) -> pl.DataFrame:
    """Return results marked as new rows of a changelog."""
    return results.with_columns(pl.lit(ChangeKind.INSERT, dtype=pl.Int8).alias(CHANGE))
