"""What running joins have in common: a log of rows per side, and how both are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator

from headrace_stateful.joins.join_shape import NEVER
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.shares import Reached, log_share, snapshots
from headrace_stateful.keys.state_bytes import pack, unpack

SIDES = ("left", "right")


class JoinLogs(FrozenOperator, MappedOperator):
    """Base of joins: the rows that are kept of each side."""

    def __init__(self, left: RowLog, right: RowLog) -> None:
        self._logs = (left, right)

    def use_mapped(self, memory: MappedMemory) -> None:
        for log in self._logs:
            log.use_mapped(memory)

    def frozen(self, *, whole: bool) -> FrozenState:
        parts = {name: log.frozen(whole=whole) for name, log in zip(SIDES, self._logs, strict=True)}
        values = self._values(changed=whole or any(rows for _, rows in parts.values()))
        if values is None:
            return FrozenState.of(b"")
        return keyed_rows.frozen_parts(parts, values, whole=whole)

    def _values(self, *, changed: bool) -> dict[str, Any] | None:
        """Return the part of a snapshot or delta that is not rows; they are stored from now on. ``changed``: there are rows.

        None: there is nothing to store.
        """
        return {} if changed else None

    def apply(self, state: bytes) -> None:
        self._take(unpack(state)[1])

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        return pack("snapshot", self._shared([frames for frames, _ in snapshots(states)], share))

    def _shared(self, states: Sequence[Mapping[str, pl.DataFrame]], share: KeyShare) -> dict[str, pl.DataFrame]:
        made = {}
        for side, name in enumerate(SIDES):
            logs = [frames[f"{name}.added"] for frames in states]
            made[f"{name}.added"] = log_share(logs, [share.holds(log, side=side) for log in logs])
        return made

    def state_rows(self) -> int:
        return sum(len(log) for log in self._logs)

    def _take(self, frames: Mapping[str, pl.DataFrame]) -> None:
        for name, log in zip(SIDES, self._logs, strict=True):
            prefix = f"{name}."
            log.apply({k.removeprefix(prefix): f for k, f in frames.items() if k.startswith(prefix)})


class TimedJoinLogs(JoinLogs):
    """Base of joins whose rows go when time has passed them: it stands beside each row as the mark ``_time_mark``."""

    _time_mark: ClassVar[str]

    def __init__(self, left: RowLog, right: RowLog) -> None:
        super().__init__(left, right)
        #: Until here everything was closed because the input had come to an end, and what of that is stored.
        self._closed_us = NEVER
        self._closed_written = NEVER
        self._late = 0

    def _values(self, *, changed: bool) -> dict[str, Any] | None:
        if not changed and self._closed_us == self._closed_written:
            return None
        self._closed_written = self._closed_us
        return {"closed_us": self._closed_us}

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._closed_us = self._closed_written = int(values["closed_us"])
        self._take(frames)

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found, closed = snapshots(states), Reached()
        for frames, values in found:
            waiting = [frames[f"{name}.added"][RowLog.mark_column(self._time_mark)] for name in SIDES]
            closed.add(int(values["closed_us"]), *waiting)
        shared = self._shared([frames for frames, _ in found], share)
        return pack("snapshot", shared, {"closed_us": closed.time_us()})

    def late_rows(self) -> int:
        return self._late
