"""What a state store is: where a stateful operator's deltas and snapshots live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from headrace.settings import Settings


class StateStore(ABC):
    """Keeps, per shard, an ordered log of state versions. Made from validated options; opened lazily."""

    Settings: ClassVar[type[Settings]] = Settings

    @abstractmethod
    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """Store the change from the version before (or, for a snapshot, the whole state) atomically and durably."""

    @abstractmethod
    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (version, bytes, is snapshot) from the newest snapshot at or before ``version``, in order."""

    @abstractmethod
    def remove(self, shard: str, *, before: int) -> None:
        """Forget versions that no load from ``before`` on needs."""

    def close(self) -> None:
        """Give back what the store holds. May be called twice."""
