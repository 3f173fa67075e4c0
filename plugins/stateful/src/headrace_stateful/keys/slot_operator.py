"""What operators with one slot of values per key have in common: forgetting keys by time, and how slots are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from headrace.flow.messages import Batch, SystemMessage, Tick
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import RejectedRows

from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.parted_table import PartedTable
from headrace_stateful.keys.shares import snapshots, table_share
from headrace_stateful.keys.slots import SlotTable
from headrace_stateful.keys.state_bytes import pack, pack_into, unpack

#: When something came for the key last, by the processing time of the entry.
TICK = "__hr_tick"


class SlotOperator(PartedTable):
    """Base of operators whose state is one row of values per key, forgotten ``ttl_us`` after its ``TICK``."""

    def __init__(
        self, key_types: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType], ttl_us: int | None
    ) -> None:
        self._table = SlotTable(key_types, {**values, TICK: pl.Int64()})
        self._groups = keyed_rows.SlotGroups()
        self._ttl_us = ttl_us
        self._now_us = 0

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            if self._ttl_us is not None:
                self._table.remove(self._table.slots_to_forget(TICK, self._now_us - self._ttl_us + 1))
        return ()

    @property
    def restores_behind(self) -> bool:
        return True

    def delta(self) -> bytes:
        frames = self._table.delta()
        return pack("delta", frames) if frames else b""

    def snapshot(self) -> bytes:
        return pack("snapshot", self._table.snapshot())

    def frozen(self, *, whole: bool) -> FrozenState:
        make, rows = self._table.frozen(whole=whole)
        if not rows and not whole:
            return FrozenState.of(b"")
        kind = "snapshot" if whole else "delta"
        return FrozenState.written(lambda content: pack_into(content, kind, make()), rows, self._table.drop_frozen)

    def apply(self, state: bytes) -> None:
        self._table.apply(unpack(state)[1])

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        rows, _ = table_share([frames for frames, _ in snapshots(states)], share)
        return pack("snapshot", {"set": rows})

    def state_rows(self) -> int:
        return len(self._table)
