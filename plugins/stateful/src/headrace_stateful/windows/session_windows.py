"""Session windows with final results: stretches of activity, given when time has come to their end.

Rows lie in a log as partial sessions, which are joined when one of them may be due. It is enough to do so at the end of a batch as
long as each row is at or after the watermark before it: then it cannot touch a session that this watermark has closed. Keys that have
older rows, and of which a session may have ended in the batch, are gone through row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator

from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.shares import Reached, joined, rows_of, snapshots
from headrace_stateful.keys.state_bytes import frozen_frames, pack, unpack
from headrace_stateful.windows.aligned_windows import MOST_PENDING
from headrace_stateful.windows.partial_log import END
from headrace_stateful.windows.session_log import SessionLog, key_numbers, sessions
from headrace_stateful.windows.window_operator import Arrived, WindowOperator
from headrace_stateful.windows.window_shape import FOREVER, INSTANT, START, Times, WindowShape

_SESSION = "__hr_session"


@dataclass(slots=True, eq=False)
class _Open:
    """A session of one key while its rows are processed: its places among the kept rows, and among the rows of the batch."""

    start: int
    end: int
    kept: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class SessionWindows(FrozenOperator, WindowOperator, MappedOperator):
    """The running operator; see the module."""

    # Each search for due sessions costs time, and the watermark comes right after the rows.
    advances_by_rows = False

    def __init__(self, shape: WindowShape, *, most_pending: int = MOST_PENDING) -> None:
        super().__init__(shape)
        self._keys = list(shape.keys)
        self._gap = shape.window.size_us
        self._most_pending = most_pending
        bounds = {START: pl.Int64(), END: pl.Int64()}
        self._log = SessionLog({**shape.key_schema, **bounds, **shape.plan.partial_schema}, self._keys, self._merge)
        self._pending: list[pl.DataFrame] = []
        self._pending_count = 0
        self._pending_least = FOREVER
        #: Results of sessions that rows of the batch were too late for.
        self._closed: list[pl.DataFrame] = []

    def use_mapped(self, memory: MappedMemory) -> None:
        self._log.use_mapped(memory)

    # ------------------------------------------------------------------------------------------------- rows come

    def accept(self, arrived: Arrived) -> tuple[list[pl.DataFrame], Times | None]:
        times = arrived.times
        entries = arrived.values.with_columns(pl.Series(START, times), pl.Series(END, times + self._gap))
        # A row that begins just where a closed session ended would touch it.
        old = times <= arrived.watermarks
        late: Times | None = None
        results: list[pl.DataFrame] = []
        if old.any():
            last = int(arrived.watermarks[-1])
            if self._pending_least <= last:
                self._aggregate_pending()
            old &= self._log.closing(entries, last)
        if old.any():
            numbers = key_numbers(entries, self._keys)
            marked = np.zeros(int(numbers.max()) + 1, dtype=bool)
            marked[numbers[old]] = True
            apart = marked[numbers]
            results, late = self._row_by_row(np.flatnonzero(apart), entries, arrived.watermarks, numbers)
            entries = entries.filter(pl.Series(~apart))
        if entries.height:
            self._pending.append(entries)
            self._pending_count += entries.height
            self._pending_least = min(self._pending_least, int(entries[END].min()))  # type: ignore[arg-type]
            if self._pending_count >= self._most_pending:
                self._aggregate_pending()
        if results:
            # Results of other keys up to that time come with it, because watermarks of results never fall.
            results += self.advance(int(arrived.watermarks[-1]))
        return results, late

    def _aggregate_pending(self) -> None:
        if not self._pending:
            return
        entries = self._pending[0] if len(self._pending) == 1 else pl.concat(self._pending)
        self._pending, self._pending_count, self._pending_least = [], 0, FOREVER
        self._log.append(self._partials(entries))

    def _partials(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return rows as partial sessions; where the order of rows matters, each by itself."""
        return self._each(entries) if self.shape.plan.order_sensitive else self._condensed(entries, are_rows=True)

    def _merge(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame if self.shape.plan.order_sensitive else self._condensed(frame, are_rows=False)

    def _condensed(self, frame: pl.DataFrame, *, are_rows: bool) -> pl.DataFrame:
        """Join what begins in the same stretch as long as the gap: it is less than the gap apart, hence in one session.

        What else belongs to one session is not joined yet: that would need sorting.
        """
        plan = self.shape.plan
        marked = frame.with_columns((pl.col(START) // self._gap).alias(_SESSION))
        by, bounds = [*self._keys, _SESSION], (pl.col(START).min(), pl.col(END).max())
        return plan.partial(marked, by, others=bounds) if are_rows else plan.merge(marked, by, others=bounds)

    def _aggregated(
        self, frame: pl.DataFrame, members: Times, places: Times, starts: Times, ends: Times
    ) -> pl.DataFrame:
        """Merge partial sessions whose members are known (see ``sessions``)."""
        if len(places) == frame.height:
            return frame
        made = self.shape.plan.merge(frame.with_columns(pl.Series(_SESSION, members)), [_SESSION])
        order = made[_SESSION].to_numpy()
        bounds = pl.DataFrame({START: starts[order], END: ends[order]})
        parts: list[pl.DataFrame] = [frame[places[order]].select(self._keys), bounds, made.drop(_SESSION)]
        return pl.concat(parts, how="horizontal")

    # ---------------------------------------------------------------------------------------------- row by row

    def _row_by_row(
        self, places: Times, entries: pl.DataFrame, watermarks: Times, numbers: Times
    ) -> tuple[list[pl.DataFrame], Times]:
        """Take rows of keys that may be late: results of sessions that end on the way, and the places of late rows."""
        self._aggregate_pending()
        rows = entries[places]
        kept = self._log.take_keys(rows.select(self._keys) if self._keys else rows)
        # Keys by number, in the kept rows and in the new ones; kept rows of other keys are included and put back.
        both = pl.concat([kept.select(self._keys), rows.select(self._keys)]) if self._keys else kept.clear()
        of_key = key_numbers(both, self._keys) if self._keys else np.zeros(kept.height + rows.height, dtype=np.int64)
        open_sessions = self._sessions_of(kept, of_key[: kept.height])
        closed: list[_Open] = []
        late: list[int] = []
        walk = zip(
            of_key[kept.height :].tolist(), rows[START].to_list(), watermarks[places].tolist(), strict=True
        )  # fmt: skip
        for place, (key, time, watermark) in enumerate(walk):
            still: list[_Open] = []
            own = _Open(time, time + self._gap)
            touched: list[_Open] = []
            for each in open_sessions.get(key, ()):
                if each.end <= watermark:
                    closed.append(each)
                elif time <= each.end and each.start <= own.end:
                    touched.append(each)
                else:
                    still.append(each)
            if not touched and own.end <= watermark:
                late.append(place)
            elif len(touched) == 1:
                only = touched[0]
                only.start, only.end = min(only.start, time), max(only.end, own.end)
                only.rows.append(place)
                still.append(only)
            else:
                own.start = min([own.start, *(each.start for each in touched)])
                own.end = max([own.end, *(each.end for each in touched)])
                own.kept = [at for each in touched for at in each.kept]
                own.rows = [*(at for each in touched for at in each.rows), place]
                still.append(own)
            open_sessions[key] = still
        partials = pl.concat([kept, self._each(rows).select(kept.columns)])
        open_still = [each for found in open_sessions.values() for each in found]
        self._log.append(self._merge(partials[_places(open_still, kept.height)]))
        results = [self._closed_results(partials, closed, kept.height)] if closed else []
        return results, places[np.array(late, dtype=np.int64)]

    def _each(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return each row as a separate partial."""
        marked = rows.with_columns(pl.Series(_SESSION, np.arange(rows.height)))
        made = self.shape.plan.partial(marked, [_SESSION]).drop(_SESSION)
        return pl.concat([rows.select(*self._keys, START, END), made], how="horizontal")

    def _sessions_of(self, kept: pl.DataFrame, of_key: Times) -> dict[int, list[_Open]]:
        if not kept.height:
            return {}
        members, places, starts, ends = sessions(of_key, kept[START].to_numpy(), kept[END].to_numpy())
        found = [_Open(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        for place, member in enumerate(members.tolist()):
            found[member].kept.append(place)
        by_key: dict[int, list[_Open]] = {}
        for each, key in zip(found, of_key[places].tolist(), strict=True):
            by_key.setdefault(key, []).append(each)
        return by_key

    def _closed_results(self, partials: pl.DataFrame, closed: list[_Open], offset: int) -> pl.DataFrame:
        lists = [sorted([*each.kept, *(offset + at for at in each.rows)]) for each in closed]
        places = np.array([at for one in lists for at in one], dtype=np.int64)
        members = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        firsts = np.cumsum([0, *(len(one) for one in lists[:-1])])
        starts = np.array([each.start for each in closed], dtype=np.int64)
        ends = np.array([each.end for each in closed], dtype=np.int64)
        return self._results(self._aggregated(partials[places], members, firsts, starts, ends))

    # --------------------------------------------------------------------------------------------- results go out

    def advance(self, time_us: int) -> list[pl.DataFrame]:
        if time_us <= self.reached_us:
            return []
        self.reached_us = time_us
        if min(self._pending_least, self._log.least_end) > time_us:
            return []
        self.touched = True
        self._aggregate_pending()
        taken = self._log.take_due(time_us)
        if not taken.height:
            return []
        numbers = key_numbers(taken, self._keys)
        members, places, starts, ends = sessions(numbers, taken[START].to_numpy(), taken[END].to_numpy())
        if self.shape.plan.order_sensitive:
            self._log.append(taken.filter(pl.Series(ends[members] > time_us)))
        whole = self._aggregated(taken, members, places, starts, ends)
        if not self.shape.plan.order_sensitive:
            self._log.append(whole.filter(pl.col(END) > time_us))
        return [self._results(whole.filter(pl.col(END) <= time_us))]

    def _results(self, partials: pl.DataFrame) -> pl.DataFrame:
        # Sessions that end at one moment come in the order of their keys. The order in the log would not do: it depends on which rows were
        # taken out before and put behind the others, and that is not the same after a restart.
        partials = partials.sort(END, *self._keys, maintain_order=True)
        groups = partials.select(*self._keys, START, END, pl.col(END).alias(INSTANT))
        return self.finished(groups, partials)

    def close_all(self) -> list[pl.DataFrame]:
        self._aggregate_pending()
        last = self._log.greatest_end
        if last is None:
            return []
        results = self.advance(last)
        self.closed_us = max(self.closed_us, last)
        self.touched = True
        return results

    # --------------------------------------------------------------------------------------------------- state

    def frozen(self, *, whole: bool) -> FrozenState:
        if not self.touched and not whole:
            return FrozenState.of(b"")
        self.touched = False
        self._aggregate_pending()
        frames = {"rows": self._log.whole()} if whole else self._log.delta()
        return frozen_frames(frames, self._marks(), whole=whole)

    def apply(self, state: bytes) -> None:
        if not state:
            return
        kind, frames, values = unpack(state)
        if kind == "snapshot":
            self._log.clear()
        elif kind != "delta":
            raise CheckpointError(f"the state of a window operator is of an unknown kind {kind!r}")
        self.reached_us, self.closed_us = values["reached_us"], values["closed_us"]
        self._log.apply(frames.get("taken"), frames.get("rows"))
        self.touched = False

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found, reached, closed = snapshots(states), Reached(), Reached()
        for frames, values in found:
            reached.add(values["reached_us"], frames["rows"][END])
            closed.add(values["closed_us"])
        rows = joined([rows_of(frames["rows"], share.holds(frames["rows"])) for frames, _ in found])
        return pack("snapshot", {"rows": rows}, {"reached_us": reached.time_us(), "closed_us": closed.time_us()})

    def _marks(self) -> dict[str, Any]:
        return {"reached_us": self.reached_us, "closed_us": self.closed_us}

    def state_rows(self) -> int:
        return len(self._log) + self._pending_count


def _places(found: list[_Open], offset: int) -> Times:
    """Return where the members of sessions lie, in the order in which they came."""
    places = [at for each in found for at in each.kept] + [offset + at for each in found for at in each.rows]
    return np.array(sorted(places), dtype=np.int64)
