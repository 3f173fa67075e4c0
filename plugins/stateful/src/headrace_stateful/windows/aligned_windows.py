"""Windows whose bounds are known in advance: tumbling, sliding, cumulative.

Rows are put aside as they come, aggregated within (window, key) when enough have come or something is due, and kept in logs of
partial results: ``rows`` (since the window's last result), ``base`` (already part of a result) and, where results change, the results
that were given. Nothing that comes out depends on when that happens.

What a row meets is decided by row: an instant at which a window gives a result has passed for a row if the watermark before
it has. For results that are final at once it is enough to leave late rows out and to give results at the end of the batch: a
row in time for its window cannot have come after the watermark that closes it. Else a batch is taken in pieces, cut before the
rows that an instant of their window has passed since the last piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, COMBINED, INDEX, OFFSET, ChangeKind, with_column
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator

from headrace_stateful.aggregates.changing_groups import ChangingGroups
from headrace_stateful.aggregates.grouping import First
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.shares import Reached, rows_of, snapshots, together
from headrace_stateful.keys.state_bytes import frozen_frames, pack, unpack
from headrace_stateful.keys.watermark import event_times_us
from headrace_stateful.windows.partial_log import END, PartialLog
from headrace_stateful.windows.window_operator import Arrived, WindowOperator
from headrace_stateful.windows.window_shape import (
    FOREVER,
    INSTANT,
    NEVER,
    START,
    WINDOW_RESULT,
    Times,
    WindowShape,
    inserted,
    next_instants,
    panes,
    window_ends,
    window_starts,
)

#: The maximum number of rows that are collected before they are aggregated, and the maximum number of combined rows.
MOST_PENDING = 1 << 17
_MOST_COMBINED = 1 << 22
#: Rows that panes are spread over windows to at once: a pane may lie in thousands.
_SPREAD_MAX = 1 << 20
#: So many partials are merged window by window, if their windows have so many on average: each window costs a call.
MERGED_BY_WINDOW = 1 << 18
ROWS_PER_WINDOW = 1 << 14
_AT = "__hr_at"
_FRAMES = ("rows", "base", "given")


def is_merged_by_window(ends: pl.Series) -> bool:
    """Return whether partials of these windows are merged faster window by window: there are many of each."""
    return len(ends) >= MERGED_BY_WINDOW and 1 < ends.n_unique() <= len(ends) // ROWS_PER_WINDOW


class AlignedWindows(FrozenOperator, WindowOperator, MappedOperator):
    """The running operator; see the module."""

    def __init__(self, shape: WindowShape, *, most_pending: int = MOST_PENDING) -> None:
        super().__init__(shape)
        self._keys = list(shape.keys)
        self._by = [END, *self._keys]
        self._most_pending = most_pending
        groups = {END: pl.Int64(), **shape.key_schema}
        partials = {**groups, **shape.plan.partial_schema}
        settle = shape.plan.settled if isinstance(shape.plan, ChangingGroups) else None
        self._rows = PartialLog(partials, self._merged, settle)
        self._base = PartialLog(partials, self._merged)
        given = {**groups, **shape.plan.schema, WINDOW_RESULT: pl.String()}
        self._given_log = PartialLog(given, self._newest)
        self._pending: list[pl.DataFrame] = []
        self._pending_count = 0
        self._pending_least = FOREVER
        window = shape.window
        #: Rows of a pane are aggregated before they are spread over its windows.
        self._by_panes = window.kind != "tumbling" and not shape.changes and not shape.plan.order_sensitive
        self._panes: list[pl.DataFrame] = []
        #: Partial results of rows that were combined before they came, with several rows per group.
        self._combined: list[pl.DataFrame] = []
        #: Windows that have given a result since the last delta: their rows are in ``base`` now.
        self._moved: set[int] = set()

    def use_mapped(self, memory: MappedMemory) -> None:
        for log in self._logs().values():
            log.use_mapped(memory)

    def _merged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Merge partials by window and key, groups in the order of their first row.

        Windows of many rows are merged one by one: the hash table of one fits into the caches of a core, and has one key
        column less.
        """
        plan = self.shape.plan
        if not self._keys or not is_merged_by_window(frame[END]):
            return plan.merge(frame, self._by)
        first = [First(END), First(_AT)]
        parts = frame.with_row_index(_AT).partition_by(END, maintain_order=True)
        made = pl.concat([plan.merge(part, self._keys, others=first) for part in parts], rechunk=True)
        # Which group begins at a row; sorting groups by their first rows would take longer.
        begins = np.full(frame.height, -1, dtype=np.int32)
        begins[made[_AT].to_numpy()] = np.arange(made.height, dtype=np.int32)
        return made.select(*self._by, *plan.partial_schema)[begins[begins >= 0]]

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.unique(self._by, keep="last", maintain_order=True)

    # ------------------------------------------------------------------------------------------------- rows come

    def accept(self, arrived: Arrived) -> tuple[list[pl.DataFrame], Times | None]:
        if self._by_panes and self._accept_panes(arrived):
            return [], None
        rows, ends = window_ends(self.shape.window, arrived.times)
        watermarks = arrived.watermarks if rows is None else arrived.watermarks[rows]
        in_time = (
            ends > watermarks - self.shape.emit.until_us
            if watermarks[0] > NEVER
            else _in_time(ends, watermarks, self.shape.emit.until_us)
        )
        late: Times | None = None
        if not in_time.all():
            rows = np.arange(len(ends)) if rows is None else rows
            taken = np.zeros(len(arrived.times), dtype=bool)
            taken[rows[in_time]] = True
            late = np.flatnonzero(~taken)
            rows, ends, watermarks = rows[in_time], ends[in_time], watermarks[in_time]
        values = arrived.values if rows is None else arrived.values[rows]
        entries = with_column(values, pl.Series(END, ends))
        if not len(ends):
            return [], late
        if self.shape.changes:
            return self._accept_in_pieces(entries, ends, watermarks), late
        self._put_aside(entries, int(ends.min()))
        return [], late

    def _accept_panes(self, arrived: Arrived) -> bool:
        """Put rows aside by pane if each is in time for all of its windows; return whether they are."""
        begins, first = panes(self.shape.window, arrived.times)
        if not (first > arrived.watermarks).all():
            return False
        if self._combined:
            self._aggregate_pending()
        self._panes.append(with_column(arrived.values, pl.Series(END, begins)))
        self._pending_count += len(begins)
        self._pending_least = min(self._pending_least, int(first.min()))
        if self._pending_count >= self._most_pending:
            self._aggregate_pending()
        return True

    def _spread_panes(self) -> Iterator[pl.DataFrame]:
        """Aggregate the collected rows by pane, and spread each pane over the windows that contain it: many of them in pieces."""
        entries = self._panes[0] if len(self._panes) == 1 else pl.concat(self._panes)
        self._panes = []
        panes = self.shape.plan.partial(entries, self._by)
        windows = -(-self.shape.window.size_us // self.shape.window.every_us)
        size = max(1, _SPREAD_MAX // windows)
        for begin in range(0, panes.height, size):
            piece = panes.slice(begin, size)
            rows, ends = window_ends(self.shape.window, piece[END].to_numpy())
            spread = piece if rows is None else piece[rows]
            yield self.shape.plan.merge(spread.with_columns(pl.Series(END, ends)), self._by)

    def accept_combined(self, arrived: Arrived | None, combined: pl.DataFrame) -> int:
        shape, late = self.shape, 0
        parts: list[pl.DataFrame] = []
        if arrived is not None:
            entries = pl.concat([arrived.values, arrived.frame.select(OFFSET, INDEX)], how="horizontal")
            taken, late = self._taken_and_late(entries, arrived.times, arrived.watermarks)
            first = [First(OFFSET), First(INDEX)]
            parts.append(shape.plan.partial(taken, self._by, others=first))
        if combined.height:
            assert shape.window.on is not None
            times = event_times_us(combined[shape.window.on])
            taken, count = self._taken_and_late(combined, times, self._watermarks(combined))
            parts.append(taken.select(*self._by, OFFSET, INDEX, *shape.plan.partial_schema))
            late += count
        if self._pending or self._panes:
            self._aggregate_pending()
        # As if each row had come by itself: groups are kept in the order of their first row.
        found = parts[0] if len(parts) == 1 else pl.concat([part.select(parts[0].columns) for part in parts])
        if not _in_order(found):
            found = found.sort(OFFSET, INDEX, maintain_order=True)
        if found.height:
            self._combined.append(found.drop(OFFSET, INDEX))
            self._pending_count += found.height
            self._pending_least = min(self._pending_least, int(found[END].min()))  # type: ignore[arg-type]
        if self._pending_count >= _MOST_COMBINED:
            self._aggregate_pending()
        return late

    def _taken_and_late(self, entries: pl.DataFrame, times: Times, watermarks: Times) -> tuple[pl.DataFrame, int]:
        """Return entries with the windows that still take them, and how many rows are too late for all of theirs."""
        rows, ends = window_ends(self.shape.window, times)
        in_time = _in_time(ends, watermarks if rows is None else watermarks[rows], self.shape.emit.until_us)
        if in_time.all():
            taken = entries if rows is None else entries[rows]
            return with_column(taken, pl.Series(END, ends)), 0
        places = np.flatnonzero(in_time) if rows is None else rows[in_time]
        late = np.ones(entries.height, dtype=bool)
        late[places] = False
        stands_for = entries[COMBINED].to_numpy() if COMBINED in entries.columns else None
        count = int(np.count_nonzero(late) if stands_for is None else stands_for[late].sum())
        return with_column(entries[places], pl.Series(END, ends[in_time])), count

    def _put_aside(self, entries: pl.DataFrame, least: int) -> None:
        if self._combined:
            self._aggregate_pending()
        self._pending.append(entries)
        self._pending_count += entries.height
        self._pending_least = min(self._pending_least, least)
        if self._pending_count >= self._most_pending:
            self._aggregate_pending()

    def _aggregate_pending(self) -> None:
        pending, self._pending = self._pending, []
        self._pending_count, self._pending_least = 0, FOREVER
        if pending:
            entries = pending[0] if len(pending) == 1 else pl.concat(pending)
            self._rows.append(self.shape.plan.partial(entries, self._by))
        if self._panes:
            for spread in self._spread_panes():
                self._rows.append(spread)
        combined, self._combined = self._combined, []
        if combined:
            self._rows.append(pl.concat(combined), repeats=True)

    def _accept_in_pieces(self, entries: pl.DataFrame, ends: Times, watermarks: Times) -> list[pl.DataFrame]:
        results: list[pl.DataFrame] = []
        begin = 0
        while begin < len(ends):
            piece = ends[begin:]
            starts = window_starts(self.shape.window, piece)
            instants = next_instants(self.shape.emit, starts, piece, self.reached_us)
            passed = np.flatnonzero((instants <= watermarks[begin:]) & (instants > self.reached_us))
            stop = begin + int(passed[0]) if len(passed) else len(ends)
            if stop > begin:
                results += self._accept_piece(entries[begin:stop], ends[begin:stop], watermarks[begin:stop])
            if stop < len(ends):
                results += self.advance(int(watermarks[stop]))
            begin = stop
        return results

    def _accept_piece(self, entries: pl.DataFrame, ends: Times, watermarks: Times) -> list[pl.DataFrame]:
        """Take rows that no instant of their windows has passed: each is before its window's end, or all are behind it."""
        emit = self.shape.emit
        open_still = ends > self.reached_us
        at_once = np.where(open_still, emit.before_us == 0, emit.after_us == 0)
        if not at_once.all():
            aside = ~at_once
            self._put_aside(entries.filter(pl.Series(aside)) if at_once.any() else entries, int(ends[aside].min()))
        if not at_once.any():
            return []
        marked = entries.with_columns(
            pl.Series(INSTANT, watermarks), pl.Series(WINDOW_RESULT, np.where(open_still, "early", "update"))
        )
        return [self._give_each(marked.filter(pl.Series(at_once)))]

    # --------------------------------------------------------------------------------------------- results go out

    def advance(self, time_us: int) -> list[pl.DataFrame]:
        if time_us <= self.reached_us:
            return []
        results: list[pl.DataFrame] = []
        least = self._least_end()
        if not self.shape.changes:
            if least is not None and least <= time_us:
                self._aggregate_pending()
                due = self._take_rows(pl.col(END) <= time_us, time_us)
                results.append(self._results(due).with_columns(pl.col(END).alias(INSTANT)))
        elif least is not None:
            results += self._advance_changes(time_us)
        if results:
            self.touched = True
        self.reached_us = time_us
        return results

    def _least_end(self) -> int | None:
        ends = [end for end in (self._rows.least_end, self._base.least_end) if end is not None]
        if self._pending_count:
            ends.append(self._pending_least)
        return min(ends, default=None)

    def _take_rows(self, condition: pl.Expr, until: int) -> pl.DataFrame:
        stored, fresh = self._rows.take(condition, until)
        return (
            self._merged(pl.concat([stored, fresh]))
            if stored.height and fresh.height
            else (stored if stored.height else fresh)
        )

    def _advance_changes(self, time_us: int) -> list[pl.DataFrame]:
        """Return the results that are due between ``reached_us`` and ``time_us``: at most one early result per window, the final one, and
        one update of a window that had ended before; after the first, no rows have come.
        """
        reached, emit = self.reached_us, self.shape.emit
        self._aggregate_pending()
        results: list[pl.DataFrame] = []
        ends = self._rows.ends().to_numpy()
        instants = next_instants(emit, window_starts(self.shape.window, ends), ends, reached)
        due = instants <= time_us
        for result, which in (("early", due & (instants < ends)), ("update", due & (ends <= reached))):
            if which.any():
                results.append(self._give_changed(ends[which], instants[which], result))
        final = (pl.col(END) > reached) & (pl.col(END) <= time_us)
        ended = pl.concat([self._base.ends(), self._rows.ends()]).unique()
        if ended.is_between(reached, time_us, closed="right").any():
            self._move(final, time_us)
            whole = self._base.select(final, time_us)
            results.append(self._replacing(whole, pl.col(END), "final"))
        self._forget(time_us)
        return results

    def _give_changed(self, ends: Times, instants: Times, result: str) -> pl.DataFrame:
        """Give the results of the groups of these windows for which rows have come."""
        condition = pl.col(END).is_in(pl.Series(ends).implode())
        changed = self._move(condition, int(ends.max()))
        whole = self._base.of_groups(changed.select(self._by), self._keys)
        when = pl.col(END).replace_strict(pl.Series(ends), pl.Series(instants), return_dtype=pl.Int64)
        return self._replacing(whole, when, result)

    def _move(self, condition: pl.Expr, until: int) -> pl.DataFrame:
        """Take rows of windows into ``base``; return their groups, each at least once."""
        stored, fresh = self._rows.take(condition, until)
        self._base.append(stored, stored=True)
        self._base.append(fresh)
        self._moved.update(pl.concat([stored[END], fresh[END]]).unique().to_list())
        return pl.concat([stored, fresh]).unique(self._by, maintain_order=True)

    def _forget(self, time_us: int) -> None:
        """Let go of windows whose time is up."""
        last = time_us - self.shape.emit.until_us
        for log in (self._rows, self._base, self._given_log):
            if (least := log.least_end) is not None and least <= last:
                log.take(pl.col(END) <= last, last)

    def close_all(self) -> list[pl.DataFrame]:
        self._aggregate_pending()
        known = [end for end in (self._rows.greatest_end, self._base.greatest_end) if end is not None]
        if not known:
            return []
        self.touched = True
        time_us = max(known) + self.shape.emit.until_us
        results = self._advance_to_the_end(time_us) if self.shape.changes else self.advance(time_us)
        self.closed_us = max(self.closed_us, time_us)
        self.reached_us = max(self.reached_us, time_us)
        return results

    def _advance_to_the_end(self, time_us: int) -> list[pl.DataFrame]:
        """Give the last result of every window, without an early one before it."""
        self._aggregate_pending()
        self._move(pl.col(END) > self.reached_us, FOREVER)
        return self._advance_changes(time_us)

    def _results(self, partials: pl.DataFrame) -> pl.DataFrame:
        groups = partials.select(self._by)
        starts = window_starts(self.shape.window, groups[END].to_numpy())
        return self.finished(groups.with_columns(pl.Series(START, starts)), partials)

    def _replacing(self, partials: pl.DataFrame, when: pl.Expr, result: str) -> pl.DataFrame:
        """Return the results of partials as a changelog: they replace earlier results of the same groups."""
        new = self._results(partials).with_columns(when.alias(INSTANT), pl.lit(result).alias(WINDOW_RESULT))
        new = new.sort(INSTANT, maintain_order=True).with_row_index(_AT)
        old = self._given_log.of_groups(new.select(self._by), self._keys)
        replaced = new.select(_AT, *self._by, START, INSTANT).join(
            old, on=self._by, how="inner", nulls_equal=True, maintain_order="left"
        )
        self._given_log.append(new)
        return _changelog(new, replaced)

    def _give_each(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return a result for each row: the result of its group up to this row."""
        plan = self.shape.plan
        entries = entries.with_row_index(_AT)
        groups = entries.select(self._by).unique(maintain_order=True)
        steps = plan.partial(entries, [_AT, *self._by])
        before = self._base.of_groups(groups, self._keys)
        running = plan.running(before, steps.drop(_AT), self._by)
        self._base.append(plan.merge(steps, self._by))
        marks = entries.select(_AT, INSTANT, WINDOW_RESULT)
        new = self._results_with(running, marks)
        old = self._given_log.of_groups(groups, self._keys)
        at = pl.col(_AT).cast(pl.Int64)
        both = pl.concat(
            [old.with_columns(pl.lit(-1, dtype=pl.Int64).alias(_AT)), new.select(at, *old.columns)], how="diagonal"
        )
        both = both.with_columns(pl.col(_AT).shift(-1).over(self._by).alias("__hr_next"))
        replaced = new.select(pl.col(_AT).cast(pl.Int64).alias("__hr_next"), _AT, START, INSTANT).join(
            both.filter(pl.col("__hr_next").is_not_null()).drop(_AT), on="__hr_next", how="inner", maintain_order="left"
        )
        self._given_log.append(self._newest(new.select(old.columns)))
        return _changelog(new, replaced.drop("__hr_next"))

    def _results_with(self, partials: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
        groups = pl.concat([partials.select(self._by), marks], how="horizontal")
        starts = window_starts(self.shape.window, groups[END].to_numpy())
        made = self.finished(groups.with_columns(pl.Series(START, starts)), partials)
        # Stamped with the watermark before the row itself: ``put_out`` takes one microsecond off.
        return made.with_columns(
            pl.when(pl.col(INSTANT) > NEVER).then(pl.col(INSTANT) + 1).otherwise(NEVER).alias(INSTANT)
        )

    # --------------------------------------------------------------------------------------------------- state

    def frozen(self, *, whole: bool) -> FrozenState:
        if not self.touched and not whole:
            return FrozenState.of(b"")
        self.touched = False
        self._aggregate_pending()
        frames = {name: log.whole() if whole else log.unstored() for name, log in self._logs().items()}
        values = self._marks() if whole else {**self._marks(), "moved": sorted(self._moved)}
        self._moved = set()
        return frozen_frames({name: f for name, f in frames.items() if f.height}, values, whole=whole)

    def apply(self, state: bytes) -> None:
        if not state:
            return
        kind, frames, values = unpack(state)
        logs = self._logs()
        if kind == "snapshot":
            for log in logs.values():
                log.take(pl.lit(True))
        elif kind != "delta":
            raise CheckpointError(f"the state of a window operator is of an unknown kind {kind!r}")
        self.reached_us, self.closed_us = values["reached_us"], values["closed_us"]
        if moved := values.get("moved"):
            stored, _ = self._rows.take(pl.col(END).is_in(pl.Series(moved, dtype=pl.Int64).implode()), max(moved))
            self._base.append(stored, stored=True)
        self._forget(self.reached_us)
        for name, frame in frames.items():
            logs[name].restore(frame)
        self.touched = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found, reached, closed = snapshots(states), Reached(), Reached()
        parts = []
        for frames, values in found:
            waits = self.shape.changes and bool(frames)
            reached.add(values["reached_us"], *(frame[END] for frame in frames.values()), at_any_time=waits)
            closed.add(values["closed_us"])
            parts.append({name: rows_of(frame, share.holds(frame)) for name, frame in frames.items()})
        marks = {"reached_us": reached.time_us(), "closed_us": closed.time_us()}
        return pack("snapshot", together(parts), marks)

    def _logs(self) -> dict[str, PartialLog]:
        return dict(zip(_FRAMES, (self._rows, self._base, self._given_log), strict=True))

    def _marks(self) -> dict[str, Any]:
        return {"reached_us": self.reached_us, "closed_us": self.closed_us}

    def state_rows(self) -> int:
        return len(self._rows) + len(self._base) + self._pending_count


def _in_order(rows: pl.DataFrame) -> bool:
    """Return whether rows are in the order of their offsets and indexes. Sorting rows that are takes longer than to look."""
    offsets, indexes = rows[OFFSET].to_numpy(), rows[INDEX].to_numpy()
    before, after = offsets[:-1], offsets[1:]
    return bool(((before < after) | ((before == after) & (indexes[:-1] <= indexes[1:]))).all())


def _in_time(ends: Times, watermarks: Times, until_us: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Before there is a watermark everything is in time; the subtraction must not wrap around."""
    known = watermarks > NEVER
    made: np.ndarray[Any, np.dtype[np.bool_]] = ~known | (ends > np.where(known, watermarks, 0) - until_us)
    return made


def _changelog(new: pl.DataFrame, replaced: pl.DataFrame) -> pl.DataFrame:
    """Return new results, each after the result that it replaces. Both have ``__hr_at``: which belong together."""
    if not replaced.height:
        return inserted(new).drop(_AT)
    updates = pl.Series(new[_AT].is_in(replaced[_AT].implode()))
    after = new.with_columns(
        pl.when(updates).then(ChangeKind.UPDATE_AFTER).otherwise(ChangeKind.INSERT).cast(pl.Int8).alias(CHANGE)
    )
    before = replaced.with_columns(pl.lit(ChangeKind.UPDATE_BEFORE, dtype=pl.Int8).alias(CHANGE))
    return pl.concat([before.select(after.columns), after]).sort(_AT, maintain_order=True).drop(_AT)
