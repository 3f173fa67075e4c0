"""What a simulated Kafka stores: records, markers of transactions, and which of them can be seen."""

from __future__ import annotations

from dataclasses import dataclass, field

import confluent_kafka as ck

Place = tuple[str, int]


def failure(code: int, *, fatal: bool = False) -> ck.KafkaException:
    """Return the exception for an error code of Kafka or of librdkafka."""
    return ck.KafkaException(ck.KafkaError(code, None, fatal))


@dataclass(slots=True)
class Entry:
    """A record, or the marker of a transaction. ``transaction``: None where it belongs to none."""

    value: bytes | None
    key: bytes | None
    us: int
    transaction: Transaction | None = None
    is_marker: bool = False


@dataclass(slots=True, eq=False)
class Transaction:
    state: str = "open"
    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, Place], tuple[int, str | None]] = field(default_factory=dict)


@dataclass
class Log:
    first: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    @property
    def stable_end(self) -> int:
        """The first offset of a transaction that is open."""
        for at, each in enumerate(self.entries):
            if each.transaction is not None and each.transaction.state == "open":
                return self.first + at
        return self.end


def is_seen(entry: Entry) -> bool:
    return not entry.is_marker and (entry.transaction is None or entry.transaction.state == "committed")
