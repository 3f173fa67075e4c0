"""Joins without a bound in time: every row meets all of the other side that came before it and will come after.

Both sides are kept (until ``ttl``). Input rows may change or retract earlier rows; then output rows do so, too.
A batch is taken as the difference that it makes: rows that it adds and takes back in one go leave no trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.changelog import netted
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, SystemMessage, Tick, watermark_times
from headrace.interfaces.operator import RejectedRows

from headrace_stateful.joins.join_logs import SIDES, JoinLogs
from headrace_stateful.joins.join_shape import JoinShape, PairFilter, Part, assembled, has_null, rejected_pairs
from headrace_stateful.keys.columns import Flags, Places
from headrace_stateful.keys.row_log import RowLog

_MATCHES = "matches"
_TICK = "tick"


@dataclass
class _Difference:
    """The rows that a batch adds to its side and takes back from it, in order."""

    frame: pl.DataFrame
    #: +1: added, -1: taken back.
    signs: Places
    watermarks: Places
    #: Rows whose key has a NULL: they meet nothing and are not kept.
    alone: Flags
    #: Which row of the batch each comes from.
    source: Places

    def take(self, rows: Places) -> _Difference:
        taken = self.frame[rows] if rows.size else self.frame.clear()
        return _Difference(taken, self.signs[rows], self.watermarks[rows], self.alone[rows], self.source[rows])


class RegularJoin(JoinLogs):
    """The running join. ``changelog``: whether its output has changes."""

    def __init__(self, shape: JoinShape, *, changelog: bool, ttls_us: tuple[int | None, int | None]) -> None:
        self._shape = shape
        self._changelog = changelog
        self._ttls_us = ttls_us
        self._condition = PairFilter(shape)
        super().__init__(*(RowLog(dict(shape.schema(side)), shape.keys(side), (_MATCHES, _TICK)) for side in range(2)))
        self._now_us = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        side = SIDES.index(batch.output)
        difference = self._difference(side, batch.frame)
        parts, rejected = self._joined(side, difference, batch.frame)
        frame = assembled(parts, with_watermark=WATERMARK in batch.frame.columns, with_change=self._changelog)
        for log in self._logs:
            log.tidy()
        if frame is not None:
            yield batch.with_frame(frame)
        if rejected is not None:
            yield rejected

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            for log, ttl_us in zip(self._logs, self._ttls_us, strict=True):
                if ttl_us is not None:
                    log.remove(log.places_where_below(_TICK, self._now_us - ttl_us + 1))
                    log.tidy()
        return ()

    # ------------------------------------------------------------------------------------------------ the batch

    def _difference(self, side: int, frame: pl.DataFrame) -> _Difference:
        """Return the rows that a batch adds and retracts. Retracted rows are removed from the side's rows; unknown rows are left out."""
        shape, log = self._shape, self._logs[side]
        columns = list(shape.schema(side))
        user = frame.select(columns)
        rows, signs = netted(user, columns, changelog.signs(frame))
        made = _Difference(user, signs, watermark_times(frame), has_null(user, shape.keys(side)), rows)
        if rows.size != frame.height or (signs < 0).any():
            made = _Difference(user[rows], signs, made.watermarks[rows], made.alone[rows], rows)
        back = np.flatnonzero((signs < 0) & ~made.alone)
        if back.size == 0:
            return made
        places = log.find_equal(made.frame[back])
        log.remove(places[places >= 0])
        kept = np.ones(len(signs), dtype=bool)
        kept[back[places < 0]] = False
        return made if kept.all() else made.take(np.flatnonzero(kept))

    def _joined(self, side: int, rows: _Difference, frame: pl.DataFrame) -> tuple[list[Part], RejectedRows | None]:
        shape, own, other = self._shape, self._logs[side], self._logs[1 - side]
        at, places = other.find(rows.frame, shape.keys(side))
        rejected = None
        if self._condition.active and at.size:
            new, old = rows.frame[at], other.take(places)
            kept, failures = self._condition.kept(*((old, new) if side else (new, old)))
            rejected = rejected_pairs(frame, rows.source[at], failures)
            at, places = at[kept], places[kept]
        matches = np.bincount(at, minlength=len(rows.signs))
        parts = self._for_new(side, rows, at, places, matches)
        parts += self._for_kept(side, rows, at, places)
        added = np.flatnonzero((rows.signs > 0) & ~rows.alone)
        part = rows.frame if added.size == rows.frame.height else rows.frame[added]
        own.append(part, **{_MATCHES: matches[added], _TICK: np.full(added.size, self._now_us)})
        return parts, rejected

    def _for_new(self, side: int, rows: _Difference, at: Places, places: Places, matches: Places) -> list[Part]:
        """Return the results of the new rows by themselves: pairs, and rows without a partner."""
        shape, other = self._shape, self._logs[1 - side]
        parts = []
        if not shape.one_sided and at.size:
            new, old = rows.frame[at], other.take(places)
            pairs = shape.pairs(old, new) if side else shape.pairs(new, old)
            parts.append(Part(pairs, at * 4 + 1, rows.watermarks[at], _kinds(rows.signs[at])))
        given = None
        if shape.keeps(side) or (shape.how == "anti" and side == 0):
            given = matches == 0
        elif shape.how == "semi" and side == 0:
            given = matches > 0
        if given is not None:
            which = np.flatnonzero(given)
            padded = shape.padded(side, rows.frame[which])
            parts.append(Part(padded, which * 4 + 1, rows.watermarks[which], _kinds(rows.signs[which])))
        return parts

    def _for_kept(self, side: int, rows: _Difference, at: Places, places: Places) -> list[Part]:
        """Count the partners of the other side's rows, and return what changes for those that get a first or lose the last."""
        shape, other = self._shape, self._logs[1 - side]
        counted = shape.keeps(1 - side) or (shape.one_sided and side == 1)
        if not counted or at.size == 0:
            return []
        touched, back = np.unique(places, return_inverse=True)
        before = other.mark(_MATCHES, touched)
        after = before + np.bincount(back, weights=rows.signs[at]).astype(np.int64)
        other.set_mark(_MATCHES, touched, after)
        first = np.full(touched.size, len(rows.signs), dtype=np.int64)
        np.minimum.at(first, back, at)
        last = np.zeros(touched.size, dtype=np.int64)
        np.maximum.at(last, back, at)
        parts = []
        appears = ChangeKind.INSERT if shape.how == "semi" else ChangeKind.DELETE
        for which, place, kind, phase in (
            (np.flatnonzero((before == 0) & (after > 0)), first, appears, 0),
            (np.flatnonzero((before > 0) & (after == 0)), last, ChangeKind.DELETE - appears, 2),
        ):
            row = place[which]
            padded = shape.padded(1 - side, other.take(touched[which]))
            kinds = np.full(which.size, kind, dtype=np.int64)
            parts.append(Part(padded, row * 4 + phase, rows.watermarks[row], kinds))
        return parts


def _kinds(signs: Places) -> Places:
    return np.where(signs > 0, ChangeKind.INSERT, ChangeKind.DELETE)
