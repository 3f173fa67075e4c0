"""How many records a micro-batch reads, where the user does not say."""

from __future__ import annotations

from headrace.foundation.clock import Clock

#: Planning and committing take about a tenth of a second for each micro-batch, while which the cores rest.
_SECONDS_WANTED = 3.0
_RECORDS_FIRST = 1_000_000
_RECORDS_MIN = 50_000
_RECORDS_MAX = 10_000_000
#: A shard holds the rows of a micro-batch in memory.
_RECORDS_MAX_KEYED = 3_000_000


class MicroBatchSize:
    """Finds the number of records that take about three seconds, from how long the micro-batches before took.

    The planner asks it before it plans a micro-batch and tells it what it has planned. Results do not depend on it: the ends
    that were planned are in the checkpoint.
    """

    def __init__(self, clock: Clock, *, keyed: bool) -> None:
        self._clock = clock
        self._records_max = _RECORDS_MAX_KEYED if keyed else _RECORDS_MAX
        self._records = _RECORDS_FIRST
        #: When the last micro-batch was planned, if it read as much as it could; what it took says something then.
        self._full_at: float | None = None

    def records(self) -> int:
        """Return how many records the next micro-batch may read. Called when the one before has ended."""
        if self._full_at is not None:
            seconds = max(self._clock.monotonic() - self._full_at, 0.001)
            factor = min(2.0, max(0.5, _SECONDS_WANTED / seconds))
            self._records = round(min(self._records_max, max(_RECORDS_MIN, self._records * factor)))
            self._full_at = None
        return self._records

    def planned(self, records: int) -> None:
        """Note that a micro-batch of so many records begins now."""
        # Queues are read to borders of their own, which may be a little before what they were allowed.
        self._full_at = self._clock.monotonic() if records >= self._records * 0.9 else None
