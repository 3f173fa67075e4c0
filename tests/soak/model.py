"""What the jobs of a soak must give: every event follows from its number, and so does every row that comes of it.

A check is given the rows that are new since its last look. It fails at once for a row that is wrong or comes twice; what is missing is told
at the end, when all must be there. What it keeps is a few bytes for each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

QUEUES = 4
KEYS = 97
WINDOW_EVENTS = 1000
STEP_MS = 10
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
#: Rules are replaced by others that match the same events: each alert is by one version of the rule.
ALERT_EVERY = 7
#: Not every event becomes a document, some become two.
COPIES = (1, 1, 0, 1, 2)


class WrongRowError(AssertionError):
    """A sink has a row that no run without faults gives."""


def key(number: int) -> str:
    return f"key-{number * 7 % KEYS}"


def event(number: int) -> dict[str, object]:
    """Return an event. Its time is that of its number, so that all queues are about equally far."""
    return {"k": key(number), "n": number, "ts": time_of(number).isoformat(), "v": number % 1009}


def time_of(number: int) -> datetime:
    return BEGIN + timedelta(milliseconds=STEP_MS * number)


def number_at(time: datetime) -> tuple[int, timedelta]:
    """Return the number of the event of a time without zone, and how far the time is behind it."""
    return divmod(time.replace(tzinfo=UTC) - BEGIN, timedelta(milliseconds=STEP_MS))


def copies(number: int) -> int:
    """Return how many documents an event becomes."""
    return COPIES[number % len(COPIES)]


@dataclass
class Seen:
    """Which of many numbered things were there. Grows as it must."""

    what: str
    flags: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1024, dtype=np.bool_))
    count: int = 0

    def add(self, numbers: Sequence[int]) -> None:
        """Note numbers, each for the first time. Raises WrongRowError for one that was there, or that is below zero."""
        if not numbers:
            return
        found = np.asarray(numbers, dtype=np.int64)
        if found.min() < 0:
            raise WrongRowError(f"{self.what} {found.min()} cannot be")
        if (most := int(found.max())) >= len(self.flags):
            self.flags = np.concatenate([self.flags, np.zeros(most + 1, dtype=np.bool_)])
        values, times = np.unique(found, return_counts=True)
        again = values[(times > 1) | self.flags[values]]
        if again.size:
            raise WrongRowError(f"{again.size} {self.what} come twice, such as {again[:5].tolist()}")
        self.flags[values] = True
        self.count += len(values)

    def missing(self, wanted: Iterable[int]) -> list[int]:
        """Return which of these numbers have not been there, in order."""
        return [number for number in wanted if number >= len(self.flags) or not self.flags[number]]


class Windows:
    """Counts and sums by key in windows of ten seconds."""

    def __init__(self) -> None:
        self._seen = Seen("windows")
        #: How many events there are in all, once that is known: the last window has fewer.
        self.events: int | None = None

    @property
    def count(self) -> int:
        return self._seen.count

    def check(self, rows: Sequence[tuple[str, datetime, int, int]]) -> None:
        """Take new rows: key, begin, count, sum of the numbers. Raises WrongRowError."""
        places = []
        for name, start, count, total in rows:
            first, between = number_at(start)
            window, rest = divmod(first, WINDOW_EVENTS)
            numbers = numbers_of(name, window)
            if self.events is not None:
                numbers = [number for number in numbers if number < self.events]
            if rest or between or not numbers or (count, total) != (len(numbers), sum(numbers)):
                raise WrongRowError(
                    f"window {window} of {name}: count {count} and sum {total}, not {len(numbers)} and {sum(numbers)}"
                )
            places.append(window * KEYS + int(name.removeprefix("key-")))
        self._seen.add(places)

    def missing(self, events: int) -> list[int]:
        """Return the places of windows that are not there, of those that so many events are in."""
        wanted = {number // WINDOW_EVENTS * KEYS + number * 7 % KEYS for number in range(events)}
        return self._seen.missing(sorted(wanted))


def numbers_of(name: str, window: int) -> list[int]:
    """Return the numbers of a key's events in a window."""
    wanted = int(name.removeprefix("key-"))
    inverse = pow(7, -1, KEYS)
    first = wanted * inverse % KEYS
    begin = window * WINDOW_EVENTS
    start = begin + (first - begin) % KEYS
    return list(range(start, begin + WINDOW_EVENTS, KEYS))


class Pairs:
    """An even and an odd event of a key within a second: events of a key are ``KEYS`` apart, in turn even and odd."""

    def __init__(self) -> None:
        self._seen = Seen("pairs")

    @property
    def count(self) -> int:
        return self._seen.count

    def check(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Take new rows: key, even number, odd number. Raises WrongRowError."""
        for name, even, odd in rows:
            if even % 2 or not odd % 2 or abs(even - odd) != KEYS or key(even) != name or key(odd) != name:
                raise WrongRowError(f"the pair {even}, {odd} of {name} cannot be")
        self._seen.add([min(even, odd) for _, even, odd in rows])

    def missing(self, events: int) -> list[int]:
        """Return the first numbers of pairs that are not there, of so many events."""
        return self._seen.missing(range(max(0, events - KEYS)))


class Alerts:
    """Events that the replaced rule matches: each once, by one version; a queue never goes back to an older version."""

    def __init__(self) -> None:
        self._seen = Seen("alerts")
        self._newest: dict[int, int] = {}
        #: The newest version of the rule that an alert is by.
        self.version = 0

    @property
    def count(self) -> int:
        return self._seen.count

    def check(self, rows: Sequence[tuple[int, int, int, int]], versions: int) -> None:
        """Take new rows: number, partition, offset, version of the rule. ``versions``: how many there are by now. Raises WrongRowError."""
        for number, partition, _, version in sorted(rows, key=lambda row: (row[1], row[2])):
            if number % ALERT_EVERY:
                raise WrongRowError(f"the rule does not match event {number}")
            if not 1 <= version <= versions:
                raise WrongRowError(f"event {number} was matched by version {version} of {versions}")
            if version < self._newest.get(partition, 0):
                raise WrongRowError(f"partition {partition} went back to version {version} at event {number}")
            self._newest[partition] = version
        self.version = max(self._newest.values(), default=0)
        self._seen.add([number for number, *_ in rows])

    def missing(self, events: int) -> list[int]:
        """Return the numbers of events without their alert."""
        return self._seen.missing(range(0, events, ALERT_EVERY))


class Documents:
    """A document for each copy of an event."""

    def __init__(self) -> None:
        self._seen = Seen("documents")

    @property
    def count(self) -> int:
        return self._seen.count

    def check(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Take the documents of a range of numbers: number, copy, value. Raises WrongRowError."""
        for number, copy, value in rows:
            if not 0 <= copy < copies(number) or value != number % 1009:
                raise WrongRowError(f"document {copy} of event {number} with the value {value} cannot be")
        self._seen.add([number * 2 + copy for number, copy, _ in rows])

    def missing(self, events: int) -> list[int]:
        """Return the places of documents that are not there."""
        return self._seen.missing(number * 2 + copy for number in range(events) for copy in range(copies(number)))
