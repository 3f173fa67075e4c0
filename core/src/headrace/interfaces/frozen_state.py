"""State as it was at one moment: a checkpoint stores it while the operator continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrozenState:
    """Makes the bytes of a snapshot or delta later. ``make`` is called once, perhaps by another thread while the
    operator takes rows.

    ``rows``: of how many rows about it makes them.
    """

    make: Callable[[], bytes]
    rows: int

    @classmethod
    def of(cls, content: bytes) -> FrozenState:
        """Return a state whose bytes exist already."""
        return cls(lambda: content, len(content) // 32)
