"""What the source needs of a client library. One object is one consumer; used by one thread at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


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
    """Consecutive records of one partition, as lists of equal length. Times are milliseconds since the epoch."""

    partition: Partition
    offsets: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Mapping[str, bytes]] | None = None
    #: Where the next record will be, if that is known to lie behind the last one's successor (markers in between).
    next_offset: int | None = None

    def split(self, count: int) -> Fetched:
        """Take the first ``count`` records out of it."""
        taken = Fetched(
            self.partition, self.offsets[:count], self.bodies[:count], self.times[:count], self.keys[:count],
            None if self.headers is None else self.headers[:count],
        )  # fmt: skip
        self.offsets, self.bodies = self.offsets[count:], self.bodies[count:]
        self.times, self.keys = self.times[count:], self.keys[count:]
        self.headers = None if self.headers is None else self.headers[count:]
        return taken


@dataclass(frozen=True)
class GroupCallbacks:
    """What a member of a group is told. Called from inside ``fetch``."""

    #: Returns the offset to begin with, by partition; None: where the partition begins.
    assigned: Callable[[Sequence[Partition]], Mapping[Partition, int]]
    revoked: Callable[[Sequence[Partition]], None]
    lost: Callable[[Sequence[Partition]], None]


class ConsumerDriver(ABC):
    """A consumer of a client library. Every method may raise RetriableError, JobError or DataError."""

    @abstractmethod
    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        """Return what has come, by partition, waiting at most ``timeout_seconds`` for the first record."""

    @abstractmethod
    def assign(self, partition: Partition, offset: int) -> None:
        """Read a partition from an offset on, beside those read already. Not for members of a group."""

    @abstractmethod
    def unassign(self, partition: Partition) -> None:
        """Read a partition no more. Not for members of a group."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        """Join the group."""

    @abstractmethod
    def pause(self, partition: Partition) -> None:
        """Fetch no more of a partition for now."""

    @abstractmethod
    def resume(self, partition: Partition) -> None:
        """Fetch a paused partition again."""

    @abstractmethod
    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at another offset."""

    @abstractmethod
    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic. Raises JobError when there is no such topic."""

    @abstractmethod
    def bounds(self, partition: Partition) -> tuple[int, int]:
        """Return the first offset that is held and the offset behind the last (stable) one. Asks the broker."""

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
