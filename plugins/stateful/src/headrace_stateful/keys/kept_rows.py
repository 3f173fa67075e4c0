"""What operators have in common whose state is one log of rows: how it is stored, divided, and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from headrace.flow.messages import Batch, SystemMessage, Tick
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator, RejectedRows
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Places
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.shares import log_share, snapshots
from headrace_stateful.keys.state_bytes import pack, pack_into, unpack

#: The mark of a row in a log: the time of the tick at which it was kept. The name is a part of stored states.
TICK = "tick"


class KeptRows(MappedOperator):
    """Base of operators that keep rows in one log."""

    def __init__(self, log: RowLog) -> None:
        self._log = log

    def use_mapped(self, memory: MappedMemory) -> None:
        self._log.use_mapped(memory)

    def delta(self) -> bytes:
        frames = self._log.delta()
        return pack("delta", frames) if frames else b""

    def snapshot(self) -> bytes:
        return pack("snapshot", self._log.snapshot())

    def frozen(self, *, whole: bool) -> FrozenState:
        make, rows = self._log.frozen(whole=whole)
        if not rows and not whole:
            return FrozenState.of(b"")
        kind = "snapshot" if whole else "delta"
        return FrozenState.written(lambda content: pack_into(content, kind, make()), rows)

    def apply(self, state: bytes) -> None:
        self._log.apply(unpack(state)[1])

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        logs = [frames["added"] for frames, _ in snapshots(states)]
        return pack("snapshot", {"added": log_share(logs, [share.holds(log) for log in logs])})

    def state_rows(self) -> int:
        return len(self._log)


class KeptRowsWithTicks(KeptRows):
    """Base of the operators that remove a row when it has been kept for the time to live. The log has the mark ``TICK``."""

    def __init__(self, log: RowLog, ttl_us: int | None) -> None:
        super().__init__(log)
        self._ttl_us = ttl_us
        self._now_us = 0

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            if self._ttl_us is not None:
                self._log.remove(self._log.places_where_below(TICK, self._now_us - self._ttl_us + 1))
                self._log.tidy()
        return ()

    def take_in(
        self, user: pl.DataFrame, signs: NDArray[np.int64], keys: pl.DataFrame, groups: Places, *, by_key: bool
    ) -> tuple[Places, Places, int]:
        """Store the rows of a batch and remove those that it takes back.

        ``keys`` are the different keys of the batch, ``groups`` says which of them each row has. Returns the places of all rows of these
        keys, which key each has, and how many of them were there before: they come first.
        """
        log = self._log
        at, before = log.find(keys, keys.columns if by_key else ())
        back, more = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
        added = log.append(user[more] if back.size else user, **{TICK: np.full(more.size, self._now_us)})
        if back.size:
            # What is taken back is the oldest of equal rows, so that it does not matter that rows are added first.
            gone = log.find_equal(user[back])
            log.remove(gone[gone >= 0])
        return np.concatenate([before, added]), np.concatenate([at, groups[more]]), before.size
