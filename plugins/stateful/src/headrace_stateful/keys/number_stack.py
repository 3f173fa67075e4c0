"""Numbers that were given back and are given again, the last one first: eight bytes each, however many they are."""

from __future__ import annotations

import numpy as np

from headrace_stateful.keys.columns import Places, grown


class NumberStack:
    """A stack of whole numbers, whole arrays at a time."""

    def __init__(self) -> None:
        self._numbers: Places = np.zeros(0, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, numbers: Places) -> None:
        """Put numbers on the stack: the last of them is given first."""
        end = self._count + numbers.size
        self._numbers = grown(self._numbers, end)
        self._numbers[self._count : end] = numbers
        self._count = end

    def pop(self, most: int) -> Places:
        """Take up to ``most`` numbers from the stack."""
        begin = max(0, self._count - most)
        taken = self._numbers[begin : self._count][::-1].copy()
        self._count = begin
        return taken

    def replace(self, numbers: Places) -> None:
        """Hold these numbers instead."""
        self._numbers, self._count = numbers, numbers.size
