"""How often operators ask for a tick of the clock while there is no input."""

from __future__ import annotations

#: For operators that give results by the clock: a result comes at most so late.
CLOCK_TICK_SECONDS = 1.0
_TTL_TICK_SECONDS_MAX = 60.0
#: What has lived its time is kept at most this part of it longer, but for very short times.
_TTL_PARTS = 10


def ttl_tick_seconds(ttl_us: int | None) -> float | None:
    """Return how often an operator needs ticks that removes rows older than ``ttl_us``; None: it removes nothing.

    Removal changes no result (an expired row is ignored when a row comes), it only frees memory: so it
    need not be prompt, and an idle job is not woken every second for it.
    """
    if ttl_us is None:
        return None
    return min(max(ttl_us / 1_000_000 / _TTL_PARTS, CLOCK_TICK_SECONDS), _TTL_TICK_SECONDS_MAX)
