"""What happened in a world, in order: the same seed gives the same lines, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

#: Kinds of events that are faults, beside processes that are killed and calls that fail.
_FAULTS = {"power failed", "bit turned", "expels", "pause", "expel", "stop", "savepoint", "full", "refused"}


class Event(NamedTuple):
    """One step. ``us``: microseconds since the begin of the world; ``who``: the thread; ``kind``: of the seam; ``what``: its object."""

    us: int
    who: str
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.us / 1e6:.6f} {self.who}: {self.kind} {self.what}".rstrip()


class Trace:
    """The events of a world."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, str, str]] = []

    def add(self, us: int, who: str, kind: str, what: str) -> None:
        """Note an event."""
        self._events.append((us, who, kind, what))

    @property
    def events(self) -> Sequence[Event]:
        """All of them, in order."""
        return [Event(*each) for each in self._events]

    def faults(self) -> Counter[str]:
        """Return how often each kind of fault has happened."""
        found: Counter[str] = Counter()
        for _, who, kind, what in self._events:
            if kind == "killed":
                found[f"killed: {what}"] += what != "end"
            elif kind == "fails":
                found["disk fails" if who == "disk" else "no answer" if "answer" in what else "no server"] += 1
            elif kind in _FAULTS:
                found[kind] += 1
        return +found

    def text(self) -> str:
        """Return one line for each."""
        return "".join(f"{each}\n" for each in self.events)

    def digest(self) -> str:
        """Return a short name of the whole: the same for the same lines."""
        return sha256(repr(self._events).encode()).hexdigest()[:16]
