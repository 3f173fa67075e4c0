"""When windows give results: EMIT behind an INSERT, and the options ``table.exec.emit.*``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS, WATERMARK, Batch, ChangeKind
from headrace.foundation.errors import OptionError
from headrace.interfaces.operator import Changes, Operator, OperatorSpec
from headrace.interfaces.windows import Emit
from sqlglot import exp

from headrace_sql.binding.expressions import interval_us

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

_PREFIX = "table.exec.emit."
_TTL = "table.exec.state.ttl"
#: For how long windows take late rows that EMIT … AFTER WATERMARK asks for, where nothing else is said.
LATENESS_US = 3_600_000_000
_UNITS = {"ms": 1_000, "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "min": 60_000_000, "minute": 60_000_000,
          "h": 3_600_000_000, "hour": 3_600_000_000, "d": 86_400_000_000, "day": 86_400_000_000, "": 1_000}  # fmt: skip


def duration_us(text: str, option: str) -> int:
    """Return a length of time of Flink's configuration (``30 s``, ``0 ms``, ``1 min``) in microseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    unit = found[2].lower() if found else "?"
    unit = unit if unit in _UNITS else unit.removesuffix("s")
    if found is None or unit not in _UNITS:
        raise OptionError(f"{text!r} is no length of time", option=option, hint="for example '30 s'")
    return int(found[1]) * _UNITS[unit]


def state_ttl(options: Mapping[str, str]) -> dict[str, str]:
    """Return the option by which an operator forgets what nothing has come for: as ``table.exec.state.ttl`` says, if it does."""
    given = options.get(_TTL)
    length = 0 if given is None else duration_us(given, _TTL)
    return {"ttl": f"{length} us"} if length else {}


def emit_of(options: Mapping[str, str], clause: exp.Expr | None, text: str) -> Emit | None:
    """Return what is said of early and late results, or None when only final ones are wanted."""
    before: int | None = None
    after: int | None = None
    if options.get(_PREFIX + "early-fire.enabled", "").lower() == "true":
        before = duration_us(options.get(_PREFIX + "early-fire.delay", "0 ms"), _PREFIX + "early-fire.delay")
    if options.get(_PREFIX + "late-fire.enabled", "").lower() == "true":
        after = duration_us(options.get(_PREFIX + "late-fire.delay", "0 ms"), _PREFIX + "late-fire.delay")
    if clause is not None:
        for key in ("before", "after"):
            delay = clause.args.get(key)
            if delay is None:
                continue
            length = 0 if isinstance(delay, exp.Boolean) else interval_us(delay, text, "EMIT")
            if key == "before":
                before = length
            else:
                after = length
    until = _lateness(options, clause, after)
    if before is None and after is None and not until:
        return None
    return Emit(before, after, until)


def _lateness(options: Mapping[str, str], clause: exp.Expr | None, after: int | None) -> int:
    """Return for how long after its end a window takes rows. Raises OptionError where only Flink's options ask for late results.

    Without a word on it, what is asked for by AFTER WATERMARK comes for an hour, as in Blink, or for the state's time to live.
    """
    given = options.get(_PREFIX + "allow-lateness")
    if given is not None:
        return duration_us(given, _PREFIX + "allow-lateness")
    if after is None:
        return 0
    ttl = options.get(_TTL)
    if ttl is not None and duration_us(ttl, _TTL):
        return duration_us(ttl, _TTL)
    if clause is not None and clause.args.get("after") is not None:
        return LATENESS_US
    raise OptionError(
        f"{_PREFIX}late-fire.enabled has no effect alone: windows take no late rows",
        option=_PREFIX + "allow-lateness",
        hint=f"SET '{_PREFIX}allow-lateness' = '1 h'",
    )


class WithoutEqualUpdates(OperatorSpec):
    """Leaves out updates of a changelog that change nothing: of windows whose last result is the early one before it."""

    name: ClassVar[str] = "without_equal_updates"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return before

    def open(self, schema: Schema | None) -> Operator:
        return _RunningWithoutEqualUpdates()


class _RunningWithoutEqualUpdates(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        if CHANGE not in frame.columns or frame.height < 2:
            yield batch.with_frame(frame)
            return
        kind = pl.col(CHANGE)
        starts = (kind == ChangeKind.UPDATE_BEFORE) & (kind.shift(-1) == ChangeKind.UPDATE_AFTER)
        columns = [name for name in frame.columns if name not in HEADER_COLUMNS]
        same = [pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in columns]
        equal = frame.select(pl.all_horizontal(starts.fill_null(value=False), *same)).to_series()
        gone = equal | equal.shift(1, fill_value=False)
        if gone.any():
            frame = frame.filter(~gone)
        if frame.height:
            yield batch.with_frame(frame)


class TimedResults(OperatorSpec):
    """Lets results of windows come before the watermark reaches their time, which is the last millisecond of their window.

    What goes on with them by that time would take them for late otherwise: their watermark is just before the window's end.
    """

    name: ClassVar[str] = "timed_results"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return before

    def open(self, schema: Schema | None) -> Operator:
        return _RunningTimedResults()


class _RunningTimedResults(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        if WATERMARK in frame.columns:
            frame = frame.with_columns(pl.col(WATERMARK) - 1_000)
        yield batch.with_frame(frame)
