"""When a job that has failed is started again, and when it rests."""

from __future__ import annotations

from datetime import timedelta

from headrace.foundation.clock import Clock

FAILURES_MAX = 5
FIRST_PAUSE = timedelta(seconds=1)
PAUSE_MAX = timedelta(minutes=1)
#: After this time without a failure, the count of failures of a job is reset.
SETTLED_AFTER = timedelta(minutes=5)


class RestartPolicy:
    """Counts the failures of one job. The pause doubles with each; after five in a row the job rests until a person starts it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._not_before = float("-inf")
        self._started: float | None = None

    @property
    def failures(self) -> int:
        """How many runs in a row have failed."""
        return self._failures

    @property
    def rests(self) -> bool:
        """Whether the job is not started any more."""
        return self._failures >= FAILURES_MAX

    @property
    def may_start(self) -> bool:
        """Whether the job may be started now."""
        return not self.rests and self._clock.monotonic() >= self._not_before

    @property
    def pause_seconds(self) -> float:
        """How long it is until the job is started again; 0 when it may be started now."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def started(self) -> None:
        """Note that the job was started."""
        self._started = self._clock.monotonic()

    def ended(self, *, failed: bool, waited: bool = False) -> None:
        """Note that the job has ended. One that had settled before counts its failures from 1 again.

        ``waited``: it has done nothing for long before it was ended, so after the first failure there is no further pause.
        """
        now = self._clock.monotonic()
        if self._started is not None and now - self._started >= SETTLED_AFTER.total_seconds():
            self._failures = 0
        self._started = None
        if not failed:
            self._failures = 0
            return
        pause = timedelta(0) if waited and not self._failures else FIRST_PAUSE * 2**self._failures
        self._failures += 1
        self._not_before = now + min(pause, PAUSE_MAX).total_seconds()

    def begin_anew(self) -> None:
        """Forget the failures: a person starts the job, or a new version runs."""
        self._failures, self._not_before = 0, float("-inf")
