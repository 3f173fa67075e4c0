"""When keys are looked at because of WITHIN: noted in steps of the watermark, each step sorted once."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

#: (time, key)
Deadline = tuple[int, tuple[Any, ...]]


class Deadlines:
    """Times with keys. A key may be noted for several times; whoever takes it out knows which one counts."""

    def __init__(self) -> None:
        self._steps: list[list[Deadline]] = []
        self._open: list[Deadline] = []

    def __bool__(self) -> bool:
        return bool(self._steps or self._open)

    def note(self, time_us: int, key: tuple[Any, ...]) -> None:
        self._open.append((time_us, key))

    def seal(self) -> None:
        """End a step: sort the entries since the last step, latest time first."""
        if self._open:
            self._open.sort(key=itemgetter(0), reverse=True)
            self._steps.append(self._open)
            self._open = []

    def is_due(self, time_us: int) -> bool:
        return any(step[-1][0] <= time_us for step in self._steps)

    def due(self, time_us: int) -> list[Deadline]:
        """Remove and return the entries up to a time, in the order of time."""
        found: list[Deadline] = []
        for step in self._steps:
            while step and step[-1][0] <= time_us:
                found.append(step.pop())
        self._steps = [step for step in self._steps if step]
        found.sort(key=itemgetter(0))
        return found
