"""How often operators ask to be told of the clock while nothing comes."""

from __future__ import annotations

#: For those that give results by the clock: a result is at most so late.
CLOCK_TICK_SECONDS = 1.0
_TTL_TICK_SECONDS_MAX = 60.0
#: What has lived its time is kept at most this part of it longer, but for very short times.
_TTL_PARTS = 10


def ttl_tick_seconds(ttl_us: int | None) -> float | None:
    """Return how often an operator asks that forgets what is older than ``ttl_us``; None: it forgets nothing.

    Forgetting changes no result (what has lived its time is not looked at when a row comes), it gives memory back: so it
    need not be prompt, and an idle job is not woken every second for it.
    """
    if ttl_us is None:
        return None
    return min(max(ttl_us / 1_000_000 / _TTL_PARTS, CLOCK_TICK_SECONDS), _TTL_TICK_SECONDS_MAX)
