"""How long an engine that found nothing to do waits before it looks again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from headrace.foundation.clock import Clock

#: The first pauses after something came: so a record that comes within the next moment waits for a millisecond at most.
_FIRST_SECONDS, _FIRST_PAUSES = 0.001, 16
#: A bounded run waits only for records that exist already.
_BOUNDED_SECONDS_MAX = 0.02
#: A reader or a group that waits cannot be woken by ``stop``, and the clock of keyed stages ticks every second.
_INSIDE_SECONDS_MAX = 1.0
#: A look at very many queues is followed by a pause that is so many times as long, within ``longest``.
_PAUSE_PER_LOOK = 9
#: After so many wake-ups by a source without a record, the engine no longer waits inside that source.
_WOKEN_IN_VAIN_MAX = 3


class Pauses:
    """Pauses are a millisecond at first, then each is twice as long as the one before, up to ``longest``, while nothing comes.

    Used by the engine's thread.
    """

    def __init__(self, clock: Clock, stopping: threading.Event, longest: timedelta, *, bounded: bool) -> None:
        self._clock = clock
        self._stopping = stopping
        seconds = longest.total_seconds()
        self._seconds_max = min(seconds, _BOUNDED_SECONDS_MAX) if bounded else seconds
        self._seconds = min(_FIRST_SECONDS, self._seconds_max)
        self._first_left = 0
        self._woken_in_vain = 0

    def begin_anew(self) -> None:
        """Something came: the next pauses are short."""
        self._seconds, self._woken_in_vain = min(_FIRST_SECONDS, self._seconds_max), 0
        self._first_left = _FIRST_PAUSES - 1

    def inside(self) -> timedelta:
        """Return how long a reader may wait for its next record: it wakes at once when one comes."""
        return timedelta(seconds=min(self._seconds, _INSIDE_SECONDS_MAX))

    def rest(self, looked_seconds: float = 0.0, *, ticking: bool = False, round_seconds: float = 0.0) -> None:
        """Wait until the next look, or until the job is to stop.

        ``looked_seconds`` is how long the poll of a reader has taken that was allowed to wait for ``inside()``: this time is
        not waited again. After a poll that took longer there is a pause, so that a slow server is not asked without end.
        ``ticking``: the stages need the time of the clock every second. ``round_seconds`` is how long a look at very many
        queues has taken: the pause is nine times as long, but not longer than the longest, so that looking does not take a core.
        """
        seconds = self._seconds if not looked_seconds else min(self._seconds, abs(self._seconds - looked_seconds))
        seconds = max(seconds, min(_PAUSE_PER_LOOK * round_seconds, self._seconds_max))
        if not looked_seconds or seconds >= _FIRST_SECONDS:  # a shorter one only wakes the process once more
            self._clock.wait(self._stopping, min(seconds, _INSIDE_SECONDS_MAX) if ticking else seconds)
        self._grow()

    def rest_in(self, wait: Callable[[timedelta], None], longest: timedelta | None = None) -> bool:
        """Wait in a source, which may know when a record comes; return False if it has too often woken the engine without a record."""
        if self._woken_in_vain >= _WOKEN_IN_VAIN_MAX:
            self._woken_in_vain = 0
            return False
        inside = self.inside() if longest is None else min(self.inside(), longest)
        begun = self._clock.monotonic()
        wait(inside)
        if self._clock.monotonic() - begun < inside.total_seconds() / 2:
            self._woken_in_vain += 1
        self._grow()
        return True

    def _grow(self) -> None:
        if self._first_left:
            self._first_left -= 1
            return
        self._seconds = min(2 * self._seconds, self._seconds_max)
