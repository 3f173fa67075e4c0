"""What verbs have in common that remember something per key."""

from __future__ import annotations

from headrace_stateful.keys.state_columns import StateInColumns
from headrace_stateful.keys.ticks import ttl_tick_seconds


class KeptByKey(StateInColumns):
    """A verb that remembers something per key, and whose state goes on when the time-to-live is another.

    ``ttl_us``: how long what came for a key is remembered (processing time); None: for ever.
    """

    ttl_us: int | None = None

    @property
    def tick_seconds(self) -> float | None:
        return ttl_tick_seconds(self.ttl_us)
