"""Reads rows by number."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import polars as pl
from headrace.flow.messages import RawBatch, ReadPosition
from headrace.interfaces.readers import OffsetReader


class RangeReader(OffsetReader):
    """Reads rows by number from anything that can make them."""

    def __init__(self, rows: Callable[[int, int], pl.DataFrame], first: int, total: int) -> None:
        super().__init__(first)
        self._rows, self._total = rows, total

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        begin, end = self._next, min(self._next + max_records, self._total)
        if begin >= end:
            return None
        self._next = end
        return RawBatch(np.arange(begin, end, dtype=np.int64), ReadPosition(end), frame=self._rows(begin, end))

    @property
    def latest(self) -> int:
        return self._total
