"""What the source needs of a client library. One object is one consumer; used by one thread at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from headrace.flow.messages import Bodies
from headrace.foundation.errors import HeadraceError
from numpy.typing import NDArray

#: The memory of a record besides its body, in bytes, with key and headers: prefetching is limited by memory, not by payload.
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
    """Consecutive records of one partition; every sequence has as many entries.

    Bodies are joined while what the client library gave is still in the processor's cache, and its objects can go at once:
    keeping them until records are taken costs twice as much.
    """

    partition: Partition
    offsets: NDArray[np.int64]
    #: Records without a value (tombstones) have an empty one.
    bodies: Bodies
    #: Milliseconds since the Unix epoch; None: not requested.
    times: NDArray[np.int64] | None
    keys: list[bytes | None] | None = None
    headers: list[Mapping[str, bytes]] | None = None
    #: Which records have no value; None: all have one.
    tombstones: NDArray[np.bool_] | None = None
    #: The smallest possible offset of the next record, if it is known: markers of transactions have offsets, too.
    next_offset: int | None = None
    #: The error of the partition after these records.
    error: HeadraceError | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def of(
        cls,
        partition: Partition,
        offsets: NDArray[np.int64],
        values: list[bytes | None],
        times: NDArray[np.int64] | None,
        keys: list[bytes | None] | None,
        headers: list[Mapping[str, bytes]] | None,
    ) -> Fetched:
        """Return records as a client library gives them: one or more, with None for a missing value."""
        if None not in values:
            return cls(partition, offsets, Bodies.of(cast(list[bytes], values)), times, keys, headers)
        tombstones = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
        return cls(partition, offsets, Bodies.of([value or b"" for value in values]), times, keys, headers, tombstones)

    @classmethod
    def nothing(
        cls, partition: Partition, *, next_offset: int | None = None, error: HeadraceError | None = None
    ) -> Fetched:
        """Return an object without records that reports on a partition."""
        none = np.empty(0, dtype=np.int64)
        return cls(partition, none, Bodies.of([]), None, next_offset=next_offset, error=error)

    def slice(self, begin: int, end: int | None = None) -> Fetched:
        """Return some of the records; ``next_offset`` and ``error`` go with the last one."""
        last = end is None or end >= len(self)
        return Fetched(
            self.partition,
            self.offsets[begin:end],
            Bodies(
                self.bodies.buffer,
                self.bodies.starts[begin:end],
                self.bodies.ends[begin:end],
                newline_separated=self.bodies.newline_separated,
            ),
            None if self.times is None else self.times[begin:end],
            None if self.keys is None else self.keys[begin:end],
            None if self.headers is None else self.headers[begin:end],
            None if self.tombstones is None else self.tombstones[begin:end],
            self.next_offset if last else None,
            self.error if last else None,
        )

    def size(self) -> int:
        """Return about how many bytes of memory the records take."""
        if not len(self):
            return 0
        return int(self.bodies.ends[-1] - self.bodies.starts[0]) + RECORD_BYTES * len(self)


def joined(parts: Sequence[Fetched]) -> Fetched:
    """Return the records of several, in order; all are of one partition."""
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    return Fetched(
        first.partition,
        np.concatenate([part.offsets for part in parts]),
        _joined_bodies([part.bodies for part in parts]),
        None if first.times is None else np.concatenate([part.times for part in parts if part.times is not None]),
        None if first.keys is None else [key for part in parts for key in part.keys or ()],
        None if first.headers is None else [headers for part in parts for headers in part.headers or ()],
        _joined_marks(parts),
        last.next_offset,
        last.error,
    )


def _joined_bodies(parts: Sequence[Bodies]) -> Bodies:
    """Return the bodies of several as one; none of them is empty, and all were made by ``Bodies.of``."""
    begins = np.cumsum([0, *(int(part.ends[-1] - part.starts[0]) + 1 for part in parts)]).tolist()
    moves = [begin - int(part.starts[0]) for begin, part in zip(begins, parts, strict=False)]
    return Bodies(
        b"\n".join([part.joined() for part in parts]),
        np.concatenate([part.starts + move for part, move in zip(parts, moves, strict=True)]),
        np.concatenate([part.ends + move for part, move in zip(parts, moves, strict=True)]),
        newline_separated=True,
    )


def _joined_marks(parts: Sequence[Fetched]) -> NDArray[np.bool_] | None:
    if all(part.tombstones is None for part in parts):
        return None
    none = [np.zeros(len(part), dtype=np.bool_) if part.tombstones is None else part.tombstones for part in parts]
    return np.concatenate(none)


@dataclass(frozen=True)
class GroupCallbacks:
    """What a member of a group is told, in the thread that calls ``fetch`` or ``close``, from inside these.

    What a callback raises comes out of that call.
    """

    #: Returns the offset to begin with. Partitions that it leaves out are not read until ``begin_late``.
    assigned: Callable[[Sequence[Partition]], Mapping[Partition, int]]
    revoked: Callable[[Sequence[Partition]], None]
    lost: Callable[[Sequence[Partition]], None]


class ConsumerDriver(ABC):
    """A consumer of a client library.

    When the constructor returns, it has reached the cluster. Every method may raise RetriableError (no broker answers now) and JobError (no
    permission, …). No method waits much longer than ``connect_timeout``. Methods that ask brokers may raise StuckClient, as ``fetch``.
    """

    #: How many records to ask for at once.
    fetch_records: int = 1000

    @abstractmethod
    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        """Return the fetched records, by partition; wait at most ``timeout_seconds`` for the first one.

        No record gets lost when it raises: the next call gives them. A time-out of zero never waits. Raises StuckClient when this
        consumer has to be given up and replaced by a new one: then records that it had fetched are not given any more.
        """

    @abstractmethod
    def assign(self, partition: Partition, offset: int) -> None:
        """Read a partition from an offset on, in addition to the present ones. Not for members of a group."""

    @abstractmethod
    def unassign(self, partition: Partition) -> None:
        """Stop reading a partition. Not for members of a group."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        """Join the group. Partitions are read from the offsets that ``callbacks.assigned`` returns."""

    @abstractmethod
    def begin_late(self, partition: Partition, offset: int) -> None:
        """Read a partition of the group for which ``callbacks.assigned`` had no offset."""

    @abstractmethod
    def pause(self, partition: Partition) -> None:
        """Pause fetching of a partition."""

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
        """Return the first offset that exists, and the offset after the last record that may be read now."""

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

    def give_up(self) -> None:
        """Disconnect, without waiting for it, and call back no more: another consumer takes the place of this one."""
        self.close()
