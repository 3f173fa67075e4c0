"""What the source needs of a client library. One object is one consumer; used by one thread at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from headrace.errors import HeadraceError
from numpy.typing import NDArray

#: What a record costs beside its body, in bytes: how much is fetched ahead is bounded by memory, not by payload.
RECORD_BYTES = 150


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Read what ``str`` gives: a topic may hold dashes itself."""
        topic, _, number = text.rpartition("-")
        return cls(topic, int(number))


@dataclass(slots=True)
class Fetched:
    """Consecutive records of one partition; every sequence has as many entries."""

    partition: Partition
    offsets: NDArray[np.int64]
    #: None: a record without a value (tombstone).
    bodies: list[bytes | None]
    #: Milliseconds since the Unix epoch; None: nobody wants to know.
    times: NDArray[np.int64] | None
    keys: list[bytes | None] | None = None
    headers: list[Mapping[str, bytes]] | None = None
    #: Where the next record will be at the earliest, if that is known: markers of transactions take offsets too.
    next_offset: int | None = None
    #: What is wrong with the partition behind these records.
    error: HeadraceError | None = None
    _size: int = -1

    def __len__(self) -> int:
        return len(self.bodies)

    @classmethod
    def nothing(
        cls, partition: Partition, *, next_offset: int | None = None, error: HeadraceError | None = None
    ) -> Fetched:
        """Return what tells of a partition without giving records of it."""
        none = np.empty(0, dtype=np.int64)
        return cls(partition, none, [], None, next_offset=next_offset, error=error)

    def slice(self, begin: int, end: int | None = None) -> Fetched:
        """Return some of the records; ``next_offset`` and ``error`` go with the last one."""
        last = end is None or end >= len(self)
        return Fetched(
            self.partition,
            self.offsets[begin:end],
            self.bodies[begin:end],
            None if self.times is None else self.times[begin:end],
            None if self.keys is None else self.keys[begin:end],
            None if self.headers is None else self.headers[begin:end],
            self.next_offset if last else None,
            self.error if last else None,
        )

    def size(self) -> int:
        """Return about how many bytes of memory the records take."""
        if self._size < 0:
            self._size = sum(map(len, filter(None, self.bodies))) + RECORD_BYTES * len(self)
        return self._size


def joined(parts: Sequence[Fetched]) -> Fetched:
    """Return the records of several, in order; all are of one partition."""
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    return Fetched(
        first.partition,
        np.concatenate([part.offsets for part in parts]),
        [body for part in parts for body in part.bodies],
        None if first.times is None else np.concatenate([part.times for part in parts if part.times is not None]),
        None if first.keys is None else [key for part in parts for key in part.keys or ()],
        None if first.headers is None else [headers for part in parts for headers in part.headers or ()],
        last.next_offset,
        last.error,
    )


@dataclass(frozen=True)
class GroupCallbacks:
    """What a member of a group is told, on the thread that calls ``fetch`` or ``close``, from inside these.

    What a callback raises comes out of that call.
    """

    #: Returns the offset to begin with. Partitions that it leaves out are not read until ``begin_late``.
    assigned: Callable[[Sequence[Partition]], Mapping[Partition, int]]
    revoked: Callable[[Sequence[Partition]], None]
    lost: Callable[[Sequence[Partition]], None]


class ConsumerDriver(ABC):
    """A consumer of a client library.

    Made, it has reached the cluster. Every method may raise RetriableError (nobody answers now) and JobError (no
    permission, …). No method waits much longer than ``connect_timeout``.
    """

    #: How many records to ask for at once.
    fetch_records: int = 1000

    @abstractmethod
    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        """Return what has come, by partition, waiting at most ``timeout_seconds`` for the first record.

        No record gets lost when it raises: what had come is given by the next call. A time-out of zero never waits.
        """

    @abstractmethod
    def assign(self, partition: Partition, offset: int) -> None:
        """Read a partition from an offset on, beside those read already. Not for members of a group."""

    @abstractmethod
    def unassign(self, partition: Partition) -> None:
        """Read a partition no more. Not for members of a group."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        """Join the group. Partitions are read from the offsets that ``callbacks.assigned`` returns."""

    @abstractmethod
    def begin_late(self, partition: Partition, offset: int) -> None:
        """Read a partition of the group for which ``callbacks.assigned`` had no offset."""

    @abstractmethod
    def pause(self, partition: Partition) -> None:
        """Fetch no more of a partition for now."""

    @abstractmethod
    def resume(self, partition: Partition) -> None:
        """Fetch a paused partition again."""

    @abstractmethod
    def seek(self, partition: Partition, offset: int) -> None:
        """Continue a partition that is read at another offset."""

    @abstractmethod
    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions that a topic has now. Raises NoSuchTopic with the nearest name."""

    @abstractmethod
    def bounds(self, partition: Partition) -> tuple[int, int]:
        """Return the first offset that is held, and the offset behind the last record that may be read now."""

    @abstractmethod
    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        """Return the offset of the first record of that time or later; None when there is none."""

    @abstractmethod
    def committed(self, partition: Partition) -> int | None:
        """Return the offset that the group has committed, or None."""

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets for the group and wait for the answer."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group and disconnect. May be called twice."""
