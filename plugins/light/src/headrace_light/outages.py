"""Since when what is tried again and again has not worked."""

from __future__ import annotations

from headrace.clock import Clock


class Outages:
    """Remembers by name what does not work. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def goes_on(self, what: str) -> float | None:
        """Note that something has failed again; return for how many seconds it has by now, None when it is the first time."""
        now = self._clock.monotonic()
        if what in self._since:
            return now - self._since[what]
        self._since[what] = now
        return None

    def is_over(self, what: str) -> bool:
        """Note that something works; return whether it had failed before."""
        return self._since.pop(what, None) is not None
