"""What operators with one slot table by key have in common when their state is stored in parts and restored behind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.interfaces.local_store import Epoch, LocalTable
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator, PartedOperator, SpillingOperator
from headrace.interfaces.state_parts import Restore
from numpy.typing import NDArray

from headrace_stateful.keys.slots import SlotTable
from headrace_stateful.keys.spilling_table import SpillingTable
from headrace_stateful.keys.state_bytes import pack, unpack

_END = "__hr_end"


class PartedTable(PartedOperator, SpillingOperator, MappedOperator):
    """Base of operators whose keys are in ``_table``. What they keep beside it goes through ``_common`` and ``_apply_common``.

    The table brings in keys when it is asked for them, and all of them when something has to look at every key.
    """

    _table: SlotTable
    _spilling: SpillingTable | None = None

    def _common(self, *, whole: bool) -> tuple[Mapping[str, pl.DataFrame], Mapping[str, Any]]:
        """Return frames and values that are kept beside the table: all of them, or the changed ones."""
        return {}, {}

    def _apply_common(self, frames: Mapping[str, pl.DataFrame], values: Mapping[str, Any]) -> None:
        """Take what ``_common`` gave."""

    def use_mapped(self, memory: MappedMemory) -> None:
        self._table.use_mapped(memory)

    def rows_to_store(self, *, whole: bool) -> int:
        return self._table.rows_to_store(whole=whole)

    def state_in_parts(self, bits: int, *, whole: bool) -> tuple[bytes, Sequence[bytes]]:
        frames, values = self._common(whole=whole)
        kind = "snapshot" if whole else "delta"
        parts = self._table.parts(bits, whole=whole)
        return pack(kind, frames, {**values, _END: self._table.index.end}), parts

    def apply_parts(self, common: bytes, parts: Sequence[bytes]) -> None:
        _, frames, values = unpack(common)
        self._apply_common(frames, values)
        self._table.apply_parts(parts)

    def begin_restore(self, commons: Sequence[bytes], rows: int, restore: Restore) -> None:
        end = 0
        for common in commons:
            _, frames, values = unpack(common)
            self._apply_common(frames, values)
            end = max(end, int(values[_END]))
        self._table.begin_restore(end, rows, restore)

    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: NDArray[np.bool_]) -> None:
        self._table.put_parts(contents, pages)

    def end_restore(self) -> None:
        self._table.end_restore()

    @property
    @abstractmethod
    def restores_behind(self) -> bool: ...

    # ------------------------------------------------------------------------ only of verbs that do not stay in memory

    def spill_to(self, local: LocalTable) -> None:
        self._table = self._spilling = SpillingTable(self._table.key_types, self._table.value_types, local)

    def local_layout(self) -> str:
        return f"{self._table.key_types} {self._table.value_types}"

    def begin_anew(self, definition: str) -> None:
        self._on_disk.begin_anew(definition)

    def go_on(self, newest: Epoch) -> None:
        self._on_disk.go_on(newest)

    def restored(self, epoch: Epoch | None) -> None:
        self._on_disk.restored(epoch)

    def settle(self, epoch: Epoch | None) -> None:
        self._on_disk.settle(epoch)

    @property
    def rolled(self) -> int:
        return self._on_disk.rolled

    @property
    def wants_checkpoint(self) -> bool:
        return self._on_disk.wants_checkpoint

    @property
    def _on_disk(self) -> SpillingTable:
        assert self._spilling is not None, "spill_to() was called"
        return self._spilling
