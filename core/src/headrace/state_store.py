"""What a state store is: where a stateful operator's deltas and snapshots live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from headrace.settings import Settings


class StateStore(ABC):
    """Keeps, per shard, an ordered log of state versions. Made from validated options; opened lazily."""

    Settings: ClassVar[type[Settings]] = Settings
    #: Whether every instance of a job, on whatever machine, sees what one of them stores.
    shared: ClassVar[bool] = False

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


def versions_to_load(versions: Sequence[tuple[int, bool]], version: int | None) -> tuple[list[int], list[int]]:
    """Return which versions a load gives, and which are newer than it asks for: those belong to no finished checkpoint.

    For stores. ``versions`` are all of a shard, in order, each with whether it is a snapshot.
    """
    known = [(number, whole) for number, whole in versions if version is None or number <= version]
    begin = max((place for place, (_, whole) in enumerate(known) if whole), default=0)
    return [number for number, _ in known[begin:]], [number for number, _ in versions[len(known) :]]


def versions_to_remove(versions: Sequence[tuple[int, bool]], before: int) -> list[int]:
    """Return which versions no load from ``before`` on needs: those older than the newest snapshot until then."""
    needed = max((number for number, whole in versions if whole and number <= before), default=0)
    return [number for number, _ in versions if number < needed]
