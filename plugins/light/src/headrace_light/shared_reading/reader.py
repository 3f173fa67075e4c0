"""Reads a queue for one job: together with others, or by itself where the job is at another place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from headrace.flow.messages import RawBatch, ReadPosition
from headrace.interfaces.source import Reader, StartPosition

from headrace_light.shared_reading.decoding import Decoders
from headrace_light.shared_reading.feed import Elsewhere, Feed, Follower


class SharedReader(Reader):
    """A job's reader of a queue. ``open_own`` opens a reader of the job's own source, with which it reads by itself."""

    def __init__(
        self,
        feed: Feed,
        decoders: Decoders | None,
        open_own: Callable[[StartPosition], Reader],
        start: StartPosition,
    ) -> None:
        self._feed = feed
        self._decoders = decoders
        self._open_own = open_own
        self._follower = Follower()
        self._own: Reader | None = None
        #: Whether it reads a planned range, or records again: others are elsewhere.
        self._alone = False
        if isinstance(start, ReadPosition) and feed.holds(start.offset):
            self._position = start
        else:
            self._own = open_own(start)
            self._position = self._own.position

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._alone:
            return self._poll_own(max_records, timeout)
        found = self._feed.next(self._follower, self._position, max_records, timeout)
        if isinstance(found, Elsewhere):
            if found.until is not None:
                max_records = min(max_records, found.until - self._position.offset)
            return self._poll_own(max_records, timeout)
        if self._own is not None:
            self._own.close()
            self._own = None
        self._position = found.end
        return found.for_job(self._decoders)

    def _poll_own(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        raw = self._opened().poll(max_records, timeout)
        self._position = self._opened().position if raw is None else raw.next_position
        return raw

    def _opened(self) -> Reader:
        if self._own is None:
            self._own = self._open_own(self._position)
        return self._own

    def seek(self, position: ReadPosition) -> None:
        self._feed.leave(self._follower)
        self._position = position
        if self._own is not None:
            self._own.seek(position)

    def limit(self, end: ReadPosition) -> None:
        self._feed.leave(self._follower)
        self._alone = True
        self._opened().limit(end)

    @property
    def position(self) -> ReadPosition:
        return self._position

    @property
    def earliest(self) -> int:
        if self._own is not None:
            return self._own.earliest
        return self._feed.ask(lambda reader: reader.earliest, self._position.offset)

    @property
    def latest(self) -> int:
        if self._own is not None:
            return self._own.latest
        return self._feed.ask(lambda reader: reader.latest, self._position.offset)

    def close(self) -> None:
        self._feed.leave(self._follower)
        if self._own is not None:
            self._own.close()
            self._own = None
