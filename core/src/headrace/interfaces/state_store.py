"""What a state store is: where a stateful operator's deltas and snapshots live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.interfaces.settings import Settings


class StateStore(ABC):
    """Keeps, per shard, an ordered log of state versions. Made from validated options; opened lazily."""

    Settings: ClassVar[type[Settings]] = Settings
    #: Whether every instance of a job, on whatever machine, sees what one of them stores.
    shared: ClassVar[bool] = False

    @classmethod
    def defaults(cls, job: str, directory: str) -> Mapping[str, Any]:
        """Return the options that a job need not give, such as a path below ``directory``, where its checkpoint is, or its name.

        Called by a backend before it makes the store. An option that the job gives has priority. The default has none.
        """
        return {}

    #: Whether it has ``forget_before``.
    forgets: ClassVar[bool] = False

    @abstractmethod
    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """Store the change from the version before (or, for a snapshot, the whole state) atomically and durably."""

    @abstractmethod
    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (version, bytes, is snapshot) from the newest snapshot at or before ``version``, in order."""

    @abstractmethod
    def remove(self, shard: str, *, before: int) -> None:
        """Forget versions that no load from ``before`` on needs."""

    def forget_before(self, shard: str, version: int) -> None:
        """Forget all versions before this one, though it need not be a snapshot: the caller knows that those from it on are all it needs.

        Where that is interrupted, some are forgotten and others are not. After it, ``load`` begins with ``version``.
        """
        raise NotImplementedError(f"{type(self).__name__} says that it forgets versions, and has no forget_before()")

    def place(self, shard: str, version: int) -> str:
        """Return where a version is, for messages: a file where it is one."""
        return f"version {version} of the state of shard {shard}"

    def close(self) -> None:
        """Give back what the store holds. May be called twice."""


class ReadableStateStore(StateStore):
    """A state store that a second process may read while the first one writes: the next process of a job has most of its state
    before the one that runs has stopped.
    """

    @abstractmethod
    def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
        """Return a version and whether it is a snapshot; None: it is not there any more, or not yet. Changes nothing.

        Called by a process beside the one that writes, which may replace the version at any time: the caller checks its checksum.
        """

    @abstractmethod
    def go_on_from(self, shard: str, version: int) -> None:
        """Do what ``load`` does beside giving versions: forget those newer than ``version``, which belong to no finished checkpoint.

        Called instead of ``load``, before the first ``save`` of the shard, by the only process that has the store then.
        """


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version that a KeyedStateStore has. ``first``: its first part, or None when it was stored by ``save``, uncut."""

    number: int
    snapshot: bool
    first: bytes | None


class KeyedStateStore(StateStore):
    """A state store that can also keep a version in parts and give single ones, so that some keys need not wait for all.

    What is in which part is the caller's affair. ``load`` gives such a version too: its parts, joined.
    """

    @abstractmethod
    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        """Store a version as ``save`` does, atomically and durably, of which each part can be loaded by itself."""

    @abstractmethod
    def versions(self, shard: str) -> Sequence[StoredVersion]:
        """Return the versions that ``load`` would give, without their content; as a load it comes before a shard's ``save``."""

    @abstractmethod
    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        """Yield (version, number of the part, part) for parts of versions that ``versions`` has given, in any order.

        Parts are numbered from 0. Raises RetriableError when a version is not what it was then, as another instance has stored the
        shard meanwhile: never is another version's part given for it.
        """


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
