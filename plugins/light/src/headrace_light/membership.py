"""This instance's place in the consumer group of one source: what is polled, committed, and told to the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from headrace.clock import Clock
from headrace.errors import JobFailedError, RetriableError
from headrace.messages import Queue, ReadPosition
from headrace.source import GroupListener, GroupSource

logger = logging.getLogger(__name__)


class Membership:
    """One source's group. Used by the engine's thread.

    A broker that is away is waited for, up to ``retry_seconds``: until then nothing fails but commits, which are made up
    for later.
    """

    def __init__(self, source_id: str, source: GroupSource, clock: Clock, retry_seconds: float) -> None:
        self._source_id = source_id
        self._source = source
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._away_since: dict[str, float] = {}
        #: The names of the queues that there were when the instance started: others appeared since.
        self.known_names = frozenset(queue.name for queue in source.queues())
        self._uncommitted: dict[Queue, ReadPosition] = {}

    @property
    def behind(self) -> bool:
        """Whether something that is done could not be committed yet."""
        return bool(self._uncommitted)

    def join(self, listener: GroupListener) -> None:
        """Become a member."""
        self._source.join(listener)

    def poll(self, wait: timedelta) -> None:
        """Give the membership a chance to act."""
        try:
            self._source.poll_group(wait)
        except RetriableError as error:
            self._is_away("does not answer", error)
        else:
            self._is_there("does not answer")

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Tell the broker how far queues are done; what fails is tried again with the next checkpoint."""
        self._uncommitted.update(positions)
        try:
            self._source.commit(self._uncommitted)
        except RetriableError as error:
            self._is_away("does not take commits", error)
        else:
            self._is_there("does not take commits")
            self._uncommitted.clear()

    def forget(self, queue: Queue) -> None:
        """The queue is another's: what is not committed of it stays so."""
        self._uncommitted.pop(queue, None)

    def leave(self) -> None:
        """Leave the group; if its broker is away it finds out by itself."""
        try:
            self._source.leave()
        except RetriableError as error:
            logger.warning("source %s: while leaving the group: %s", self._source_id, error.message)

    def _is_away(self, what: str, error: RetriableError) -> None:
        now = self._clock.monotonic()
        if what not in self._away_since:
            self._away_since[what] = now
            logger.warning("source %s: %s; trying again", self._source_id, error.message)
        away = now - self._away_since[what]
        if away >= self._retry_seconds:
            raise JobFailedError(
                f"the broker {what} for {away:.0f} s: {error.message}",
                plugin=self._source_id,
                hint="mend the server and start the job again: it goes on from what was committed",
            ) from error

    def _is_there(self, what: str) -> None:
        if self._away_since.pop(what, None) is not None:
            logger.info("source %s: the broker is there again", self._source_id)
