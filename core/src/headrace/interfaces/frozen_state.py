"""State as it was at a moment: what a checkpoint stores of an operator while the operator goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrozenState:
    """What makes the bytes of a snapshot or delta. ``make`` is called once, perhaps by another thread while the operator takes rows.

    ``rows``: of how many rows about it makes them.
    """

    make: Callable[[], bytes]
    rows: int

    @classmethod
    def of(cls, content: bytes) -> FrozenState:
        """Return the state whose bytes are made already."""
        return cls(lambda: content, len(content) // 32)
