"""How many records a micro-batch reads, where the user does not say."""

from __future__ import annotations

from headrace.foundation.clock import Clock

#: Stands for a limit that the planner finds; Spark has no such one. More records than there can be.
FOUND_BY_PLANNER = 2**62
#: Planning and committing take about a tenth of a second for each micro-batch, while which the cores rest.
_SECONDS_WANTED = 3.0
#: Nobody waits for single results of a run that ends with its input.
_SECONDS_WANTED_BOUNDED = 10.0
#: Spark begins a micro-batch a little after its turn.
_IN_TIME = 1.05
_RECORDS_FIRST = 1_000_000
_RECORDS_MIN = 50_000
_RECORDS_MAX = 10_000_000
#: Where a run ends with its input and no rows go from stage to stage: then a micro-batch of any size takes the same memory.
_RECORDS_MAX_BOUNDED = 100_000_000
#: A micro-batch is so many times as large as the one before it, at most.
_GROWTH_MAX = 2.0
_GROWTH_MAX_BOUNDED = 8.0
#: A shard holds the rows of a micro-batch in memory: at most so many bytes, and where nobody knows their size so many records.
_SHARD_BYTES_MAX = 128 * 1024**2
_RECORDS_MAX_KEYED = 3_000_000


class MicroBatchSize:
    """Finds the number of records that take a few seconds, from how long the micro-batches before took.

    The planner asks for the size before it plans a micro-batch, and reports what it has planned. Results do not depend on it: the ends
    that were planned are in the checkpoint.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        keyed: bool,
        interval_seconds: float | None = 0.0,
        bounded: bool = False,
        shuffles: bool = False,
    ) -> None:
        """``interval_seconds``: the shortest time between two micro-batches; None: the user's own query decides it.

        ``bounded``: the run ends with its input. ``shuffles``: rows go to another stage, also where none is ``keyed``.
        """
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._seconds_wanted = _SECONDS_WANTED_BOUNDED if bounded else _SECONDS_WANTED
        self._growth_max = _GROWTH_MAX_BOUNDED if bounded else _GROWTH_MAX
        self._most = _RECORDS_MAX_BOUNDED if bounded and not (keyed or shuffles) else _RECORDS_MAX
        self._records_max = _RECORDS_MAX_KEYED if keyed else self._most
        self._records = _RECORDS_FIRST
        self._records_planned = 0
        #: When the last micro-batch was planned, if it had the allowed size. Only then does its duration say something.
        self._full_at: float | None = None

    def records(self) -> int:
        """Return how many records the next micro-batch may read. Called when the one before has ended."""
        if self._full_at is not None:
            seconds = max(self._clock.monotonic() - self._full_at, 0.001)
            self._records = max(_RECORDS_MIN, round(self._records * self._factor(seconds)))
            self._full_at = None
        self._records = min(self._records, self._records_max)
        return self._records

    def _factor(self, seconds: float) -> float:
        """Return by how much the next micro-batch is larger, where ``seconds`` lie between the last two."""
        interval, wanted = self._interval_seconds, self._seconds_wanted
        if interval is None:
            return 2.0 if seconds <= wanted / 2 else 1.0  # a pause of unknown length may be in it
        if interval > wanted:
            # It waited for its turn, so it could have read more, or took longer than its turn.
            return 2.0 if seconds <= interval * _IN_TIME else max(0.5, interval / seconds)
        return min(self._growth_max, max(0.5, wanted / seconds))

    def held(self, shard_bytes: int) -> None:
        """Note how many bytes of rows the shard that got most of them had in the last micro-batch; 0: it is not known."""
        if shard_bytes and self._records_planned:
            fitting = round(self._records_planned * _SHARD_BYTES_MAX / shard_bytes)
            self._records_max = min(self._most, max(_RECORDS_MIN, fitting))

    def planned(self, records: int) -> None:
        """Note that a micro-batch of so many records begins now."""
        self._records_planned = records or self._records_planned
        # A queue may be read to a border that lies a little before the allowed end.
        self._full_at = self._clock.monotonic() if records >= self._records * 0.9 else None
