"""The interface of state stores, which keep the deltas and snapshots of stateful operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.interfaces.settings import Settings


class StateStore(ABC):
    """Keeps an ordered log of state versions for each shard of a job. Offered by the hook ``headrace_state_stores``.

    A backend makes it from validated options; it connects at the first call. A version is a delta or a snapshot, as
    bytes that the store does not interpret; versions of a shard are integers that grow. A backend calls ``load`` once
    for each shard at a start, then ``save`` at checkpoints, then ``remove``. If ``shared``, the store must refuse a
    process that no longer owns the shard. Methods raise RetriableError while the server is not available, JobError when
    a person must fix something, and CheckpointError for damaged versions.
    """

    Settings: ClassVar[type[Settings]] = Settings
    #: Whether every instance of a job, on whatever machine, sees what one of them stores.
    shared: ClassVar[bool] = False

    @classmethod
    def defaults(cls, job: str, directory: str) -> Mapping[str, Any]:
        """Return defaults of options that depend on the job, such as its name, or a path below ``directory``, the
        directory of its checkpoint.

        Called by a backend before it makes the store. An option that the job gives has priority. The default has none.
        """
        return {}

    #: Whether the store implements ``forget_before``.
    forgets: ClassVar[bool] = False

    @abstractmethod
    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """Store a delta to the previous version (or, with ``snapshot``, the whole state) atomically and durably."""

    @abstractmethod
    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (version, bytes, is snapshot) in order, beginning with the newest snapshot at or before ``version``;
        None: the newest one.
        """

    @abstractmethod
    def remove(self, shard: str, *, before: int) -> None:
        """Remove versions that are older than the newest snapshot at or before ``before``: no later load needs them."""

    def forget_before(self, shard: str, version: int) -> None:
        """Remove all versions before this one, even if it is not a snapshot: the caller knows that it needs only the
        versions from this one on.

        If it is interrupted, some may be left. Afterwards ``load`` begins with ``version``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} declares that it forgets versions, but has no method forget_before()"
        )

    def place(self, shard: str, version: int) -> str:
        """Return the place of a version for messages, such as the path of its file."""
        return f"version {version} of the state of shard {shard}"

    def close(self) -> None:
        """Release connections and files. May be called twice."""


class ReadableStateStore(StateStore):
    """A state store that another process may read while the first one writes. So the next process of a job can load
    most of its state before the running one has stopped.
    """

    @abstractmethod
    def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
        """Return a version and whether it is a snapshot; None if it does not exist yet, or no longer. It changes
        nothing.

        Another process than the writing one calls it. The writing process may replace the version at any time, so the
        caller checks its checksum.
        """

    @abstractmethod
    def go_on_from(self, shard: str, version: int) -> None:
        """Remove versions newer than ``version``, which belong to no finished checkpoint, as ``load`` does, but without
        reading any.

        Called instead of ``load``, before the first ``save`` of the shard. At that time no other process has the store
        open.
        """


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version in a KeyedStateStore. ``first``: its first part, or None if ``save`` stored it without parts."""

    number: int
    snapshot: bool
    first: bytes | None


class KeyedStateStore(StateStore):
    """A state store that can keep a version in parts and load single parts, so that a job can use some keys before all
    are loaded.

    The caller decides what each part holds. ``load`` gives such a version as its parts joined.
    """

    @abstractmethod
    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        """Store a version as ``save`` does, atomically and durably, so that each part can be loaded by itself."""

    @abstractmethod
    def versions(self, shard: str) -> Sequence[StoredVersion]:
        """Return the versions that ``load`` would give, without their content. Like ``load``, it is called before the
        first ``save`` of a shard.
        """

    @abstractmethod
    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        """Yield (version, number of the part, part) for parts of versions that ``versions`` has returned, in any order.

        Parts are numbered from 0. Raises RetriableError when a version was replaced since then, because another
        instance has stored the shard since: a part of another version is never returned for it.
        """


def versions_to_load(versions: Sequence[tuple[int, bool]], version: int | None) -> tuple[list[int], list[int]]:
    """Return the versions that ``load`` must return, and the versions that are newer than requested, which belong to no
    finished checkpoint.

    Stores call it. ``versions`` are all versions of a shard, in order, each with whether it is a snapshot.
    """
    known = [(number, whole) for number, whole in versions if version is None or number <= version]
    begin = max((place for place, (_, whole) in enumerate(known) if whole), default=0)
    return [number for number, _ in known[begin:]], [number for number, _ in versions[len(known) :]]


def versions_to_remove(versions: Sequence[tuple[int, bool]], before: int) -> list[int]:
    """Return the versions that no load at or after ``before`` needs: all versions that are older than the newest
    snapshot at or before it.
    """
    needed = max((number for number, whole in versions if whole and number <= before), default=0)
    return [number for number, _ in versions if number < needed]
