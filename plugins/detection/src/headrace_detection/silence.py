"""How long nothing has come, counted by ticks, so that it is the same when input is processed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Of the time between two ticks at most this part of the time-out counts as silence: a job that did not run was not silent.
IDLE_PARTS = 4


class Silence:
    """The silence of one shard. ``timeout_us``: how long it may be; None: as long as it likes."""

    def __init__(self, timeout_us: int | None) -> None:
        self._timeout_us = timeout_us
        self._length_us = 0
        #: The tick up to which it is counted; 0: no tick came since something else did.
        self._tick_us = 0
        self._written = (0, 0)

    def end(self) -> None:
        """Note that something came."""
        self._length_us = self._tick_us = 0

    def is_over(self, tick_us: int) -> bool:
        """Count the time up to a tick; return whether it was as long as it may be. Called while something waits."""
        if self._timeout_us is None:
            return False
        if self._tick_us:
            self._length_us += min(max(tick_us - self._tick_us, 0), self._timeout_us // IDLE_PARTS + 1)
        self._tick_us = tick_us
        return self._length_us >= self._timeout_us

    @property
    def has_changed(self) -> bool:
        """Whether it differs from the one that was stored last."""
        return self._written != (self._length_us, self._tick_us)

    def stored(self) -> dict[str, int]:
        """Return the content for a checkpoint: records that are read again must meet the same silence."""
        self._written = (self._length_us, self._tick_us)
        return {"silence_us": self._length_us, "silent_to_us": self._tick_us}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Load the content of a checkpoint; nothing if an earlier version wrote it or the state was divided again."""
        self._length_us, self._tick_us = int(values.get("silence_us", 0)), int(values.get("silent_to_us", 0))
        self._written = (self._length_us, self._tick_us)
