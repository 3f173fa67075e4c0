"""``stream.join(other, on, …)``: two streams brought together by equal columns.

Three kinds, by the options:

- without bound, ``orders.join(customers, "customer_id", how="left")``: each row meets all of the other side, before and after it.
  What was given without a partner is taken back when one comes: the result is a changelog (an inner or semi join of streams that
  only add rows adds rows only). Rows of both sides are kept without a limit, or for ``ttl`` of processing time after they came.
- within a time bound, ``shipments``: ``within=("-5 min", "10 min"), time="ts"`` joins a right row whose time is at most 5 minutes
  before and 10 minutes after that of the left row. State is dropped as the watermark advances; rows without a partner are returned when
  no partner can come any more. A late row joins rows that are still kept and is not kept itself (as in Flink SQL). With ``by_clock=True``
  instead of ``time`` the time of a row is the time of its arrival: nothing is late, and rows are dropped as the clock advances.
- in the same window, ``window=hr.tumbling("1 min", on="ts")``: pairs of rows of equal key and window, given when the window closes,
  with ``window_start`` and ``window_end``. Rows whose windows have closed are ``late()``.

Rows with NULL in a column of ``on`` have no partner. Columns of the right side that are called like one of the left get the
``suffix``; columns that are joined and called alike appear once, except in right and full joins. ``semi`` gives the left rows that
have a partner, ``anti`` those that have none.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.operator import Changes, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace.interfaces.windows import Duration, Window, microseconds
from headrace.jobs.keyed import joined, with_watermark
from headrace_columnar.normal_form import conditions

from headrace_stateful.joins.join_interval import IntervalJoin
from headrace_stateful.joins.join_regular import RegularJoin
from headrace_stateful.joins.join_shape import HOWS, How, JoinShape
from headrace_stateful.joins.join_window import WINDOW_END, WINDOW_START, WindowJoin
from headrace_stateful.keys.state_columns import StateInColumns, kept_sides, side_types, window_setting
from headrace_stateful.keys.ticks import CLOCK_TICK_SECONDS, ttl_tick_seconds

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream

Within = tuple[Duration, Duration]


class Join(StateInColumns):
    """A join of two streams. Made by ``of_streams``; its input has the sides ``left`` and ``right``."""

    name = "join"
    maps_state = True

    def __init__(
        self,
        shape: JoinShape,
        *,
        changes: Changes | None = None,
        input_changes: bool = False,
        within_us: tuple[int, int] | None = None,
        window: Window | None = None,
        times: tuple[str, str] | None = None,
        ttl_us: int | tuple[int | None, int | None] | None = None,
    ) -> None:
        self.shape = shape
        self.within_us = within_us
        self.window = window
        self.times = times
        self.ttl_us = ttl_us
        self.input_changes = input_changes
        self._changes = changes
        self.outputs: Sequence[str] = ("", "late") if window is not None else ("",)
        shape.check()

    @classmethod
    def of_streams(
        cls,
        left: Stream,
        right: Stream,
        on: Any,
        *,
        how: str = "inner",
        within: Within | None = None,
        window: Window | None = None,
        time: str | tuple[str, str] | None = None,
        by_clock: bool = False,
        suffix: str = "_right",
        where: str | None = None,
        ttl: Duration | tuple[Duration | None, Duration | None] | None = None,
        key: str | Sequence[str] | None = None,
    ) -> Stream:
        """Join two streams; called by ``Stream.join``.

        ``on``: a column, several, ``{"left column": "right column"}``, or pairs of columns, in which a column may stand twice;
        ``()``: every row with every row. ``where``: a SQL condition on pairs.
        ``time``: the event-time column of ``within`` (a pair when the sides call it differently); ``by_clock``: processing time
        instead. ``ttl``: how long rows are kept, of both sides or (left, right) of each, None for ever.
        ``key``: the columns that name a row of a changelog's result, where they do not follow from those of the sides.
        Raises OptionError and PlanError.
        """
        keys, further = _each_once(_keys_of(on))
        _check_options(how, within, window, time, ttl, by_clock=by_clock)
        times: tuple[str, str] | None = None
        if window is not None and window.on is not None and time is None:
            time = window.on
        if time is not None:
            times = (time, time) if isinstance(time, str) else (time[0], time[1])
            left, right = with_watermark(left, times[0], None), with_watermark(right, times[1], None)
        if left.schema is None or right.schema is None:
            raise PlanError(
                "the columns of a side are not known here", hint="give the map() before it an option schema={...}"
            )
        extra = {} if window is None else _window_columns(left.schema, times)
        shape = JoinShape(
            typing.cast(How, how), left.schema, right.schema, tuple(pair[0] for pair in keys), tuple(pair[1] for pair in keys),
            suffix, where, left.pipeline.functions if where is not None else {}, extra,
        )  # fmt: skip
        if further:
            shape = replace(shape, where=_with_equalities(where, further, shape.right_names))
        before = (left.changes, right.changes)
        bounds = None if within is None else (microseconds(within[0], "within"), microseconds(within[1], "within"))
        spec = cls(
            shape,
            changes=_changes_after(shape, before, key, bounded=within is not None or window is not None),
            input_changes=any(each is not None for each in before),
            within_us=bounds,
            window=window,
            times=times,
            ttl_us=_ttl_us(ttl),
        )
        return joined(left, right, keys, spec, "join")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return self.shape.output_schema()

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None and (self.within_us is not None or self.window is not None):
            raise PlanError(
                "a join within a time bound or window takes rows that are added only, but the rows of one side change",
                hint="join without 'within' and 'window', or use results that are final",
            )
        return self._changes

    def definition(self, schema: Schema | None) -> StateDefinition:
        shape = self.shape
        settings = {
            "how": shape.how,
            "where": None if shape.where is None else sorted(conditions(shape.where)),
            "within_us": None if self.within_us is None else list(self.within_us),
            "window": None if self.window is None else window_setting(self.window),
            "times": None if self.times is None else list(self.times),
            "gives changes": self._changes is not None,
            "takes rows back": self.input_changes,
        }
        columns = kept_sides(shape.left, shape.right)
        return StateDefinition(
            self.name,
            settings,
            (),
            columns,
            adjustable={"ttl_us": list(self.ttl_us) if isinstance(self.ttl_us, tuple) else self.ttl_us},
        )

    def columns_in_state(self, schema: Schema | None) -> Mapping[str, pl.DataType]:
        return side_types(self.shape.left, self.shape.right)

    @property
    def tick_seconds(self) -> float | None:
        if self.within_us is not None or self.window is not None:
            return CLOCK_TICK_SECONDS if self.times is None else None
        return ttl_tick_seconds(min((each for each in _of_each(self.ttl_us) if each is not None), default=None))

    def open(self, schema: Schema | None) -> StatefulOperator:
        if self.within_us is not None:
            return IntervalJoin(self.shape, self.times, *self.within_us)
        if self.window is not None:
            kind = self.shape.extra[WINDOW_END]
            assert isinstance(kind, pl.Datetime)
            return WindowJoin(self.shape, self.window, self.times, kind)
        return RegularJoin(self.shape, changelog=self._changes is not None, ttls_us=_of_each(self.ttl_us))

    def describe(self) -> str:
        pairs = zip(self.shape.left_keys, self.shape.right_keys, strict=True)
        text = f"{self.shape.how} on " + ", ".join(
            left if left == right else f"{left} = {right}" for left, right in pairs
        )
        if self.within_us is not None:
            text += f", within {self.within_us[0] / 1_000_000:g} s to {self.within_us[1] / 1_000_000:g} s"
            text += " by the clock" if self.times is None else ""
        if self.window is not None:
            text += f", {self.window}"
        return text + (f", where {self.shape.where}" if self.shape.where else "")


def _keys_of(on: Any) -> list[tuple[str, str]]:
    if isinstance(on, str):
        return [(on, on)]
    if isinstance(on, Mapping):
        return [(str(left), str(right)) for left, right in on.items()]
    found = [(each, each) if isinstance(each, str) else tuple(each) for each in on]
    for each in found:
        if len(each) != 2:
            raise OptionError(f"{each!r} is not a pair of columns", option="on", hint='"id", or {"id": "order_id"}')
    return found


def _each_once(pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the pairs by which rows meet, each column in one of them, and the pairs that remain: conditions on pairs of rows."""
    keys: list[tuple[str, str]] = []
    further: list[tuple[str, str]] = []
    for left, right in dict.fromkeys(pairs):
        again = any(left == mine or right == other for mine, other in keys)
        (further if again else keys).append((left, right))
    return keys, further


def _with_equalities(where: str | None, pairs: Sequence[tuple[str, str]], right_names: Mapping[str, str]) -> str:
    """Return a condition on pairs of rows that demands equal values of pairs of columns too."""
    parts = [f"{_quoted(left)} = {_quoted(right_names.get(right, right))}" for left, right in pairs]
    return " AND ".join([*parts, *([f"({where})"] if where is not None else [])])


def _quoted(name: str) -> str:
    return f"`{name}`" if '"' in name else f'"{name}"'


def _ttl_us(
    ttl: Duration | tuple[Duration | None, Duration | None] | None,
) -> int | tuple[int | None, int | None] | None:
    if not isinstance(ttl, tuple):
        return None if ttl is None else microseconds(ttl, "ttl")
    if len(ttl) != 2:
        raise OptionError(f"{ttl!r}: give one time for both sides, or (left, right)", option="ttl")
    left, right = (None if each is None else microseconds(each, "ttl") for each in ttl)
    return left if left == right else (left, right)


def _of_each(ttl_us: int | tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    return ttl_us if isinstance(ttl_us, tuple) else (ttl_us, ttl_us)


def _check_options(
    how: str,
    within: Within | None,
    window: Window | None,
    time: str | tuple[str, str] | None,
    ttl: Duration | tuple[Duration | None, Duration | None] | None,
    *,
    by_clock: bool,
) -> None:
    if how not in HOWS:
        raise OptionError(f"unknown kind of join {how!r}", option="how", hint=did_you_mean(how, HOWS, known="kinds"))
    if within is not None and window is not None:
        raise OptionError("give either within= or window=, not both", option="window")
    if within is not None:
        if time is None and not by_clock:
            raise OptionError(
                "the event-time column is missing",
                option="time",
                hint='within=("-5 min", "5 min"), time="ts"; by_clock=True joins rows by their arrival',
            )
        if len(within) != 2 or microseconds(within[0], "within") > microseconds(within[1], "within"):
            raise OptionError(
                f"{within!r} is not a range", option="within", hint='the lower bound first: ("-5 min", "10 min")'
            )
    if by_clock and (within is None or time is not None):
        raise OptionError("by_clock needs within=, and replaces time=", option="by_clock")
    if window is not None and window.kind == "session":
        raise OptionError("session windows cannot be joined, because the sessions of the two sides differ", option="window",
                          hint="use a tumbling or sliding window, or within=")  # fmt: skip
    if time is not None and within is None and window is None:
        raise OptionError("time= has no effect without a time bound", option="time", hint="add within= or window=")
    if window is not None and window.on is None and time is not None:
        raise OptionError("the window must use event time", option="time", hint="hr.tumbling(…, on='ts')")
    if ttl is not None and (within is not None or window is not None):
        raise OptionError("ttl has no effect: the time bound or window defines how long rows are stored", option="ttl")


def _window_columns(left: Schema, times: tuple[str, str] | None) -> dict[str, pl.DataType]:
    kind: pl.DataType = pl.Datetime("us", "UTC") if times is None else left[times[0]]
    return {WINDOW_START: kind, WINDOW_END: kind}


def _changes_after(
    shape: JoinShape,
    before: tuple[Changes | None, Changes | None],
    key: str | Sequence[str] | None,
    *,
    bounded: bool,
) -> Changes | None:
    if bounded or (before == (None, None) and shape.how in ("inner", "semi")):
        return None
    if key is not None:
        named = (key,) if isinstance(key, str) else tuple(key)
        for name in named:
            if name not in shape.output_schema():
                raise OptionError(f"no column {name!r} comes out of the join", option="key")
        return Changes(named)
    return Changes(_result_key(shape, *(None if each is None else each.key for each in before)))


def _result_key(
    shape: JoinShape, left: tuple[str, ...] | None, right: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return columns that name a result row, from those that name a row of each side; None where there are none.

    A side whose key is among the columns that are joined gives each row of the other at most one partner. The columns that
    are joined are part of the key: when they change in a row, the old and the new result come from different shards, and must
    not overtake each other under one name.
    """
    if shape.one_sided:
        return None if left is None else _united(left, shape.left_keys)
    if left is None or right is None:
        return None  # a side may hold equal rows
    names = {name: shape.right_names.get(name, name) for name in shape.right}
    if set(right) <= set(shape.right_keys) and shape.how in ("inner", "left"):
        return _united(left, shape.left_keys)
    if set(left) <= set(shape.left_keys) and shape.how in ("inner", "right"):
        return tuple(names[name] for name in _united(right, shape.right_keys))
    if shape.how != "inner":
        return None  # the key of a missing partner would be NULL
    return _united(_united(left, shape.left_keys), tuple(names[name] for name in right))


def _united(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*one, *other]))
