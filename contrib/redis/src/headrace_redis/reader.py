"""Reads one stream, entry by entry, and notices entries that are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, cast

import numpy as np
import redis
from headrace.flow.messages import RawBatch, ReadPosition
from headrace.interfaces.source import Reader

from headrace_redis.client import translating
from headrace_redis.entries import BodyReader, Fields
from headrace_redis.entry_ids import id_of, offsets_of, times_of
from headrace_redis.settings import RedisSourceSettings
from headrace_redis.streams import StreamState

#: How many entries one command reads when they are only counted.
_COUNTED_AT_ONCE = 1_000
#: In the hint of positions: how many entries had been added to the stream when the last entry that was read was added.
READ = "read"
_Entries = Sequence[tuple[bytes, Fields]]


class RedisReader(Reader):
    """Reads a stream with XRANGE, beginning at the entry that was read last. While that entry exists, no later entry
    can have been trimmed.

    If it does not exist, the server's count of added entries tells whether later entries are missing; then ``poll``
    raises DataError.
    """

    def __init__(
        self,
        client: redis.Redis,
        settings: RedisSourceSettings,
        stream: str,
        position: ReadPosition,
        body_reader: BodyReader,
        header_fields: Collection[str],
    ) -> None:
        self._client = client
        self._settings = settings
        self._stream = stream
        self._bodies = body_reader
        self._with_headers = "headers" in header_fields
        self._next, self._read = 0, cast("int | None", None)
        self.seek(position)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        with translating(self._settings, queue=self._stream):
            entries = self._entries(max_records)
            if not entries and timeout and self._wait(timeout):
                entries = self._entries(max_records)
        return self._batch(entries) if entries else None

    def seek(self, position: ReadPosition) -> None:
        read = position.hint.get(READ)
        self._next, self._read = max(1, position.offset), None if read is None else int(read)

    @property
    def position(self) -> ReadPosition:
        return self._position(self._next, self._read)

    @property
    def earliest(self) -> int:
        state = self._state()
        return self._next if state is None else state.earliest

    @property
    def latest(self) -> int:
        state = self._state()
        return self._next if state is None else state.latest

    def position_after(self, max_records: int) -> ReadPosition:
        left, end = max_records, self._next
        with translating(self._settings, queue=self._stream):
            while left > 0:
                wanted = min(left, _COUNTED_AT_ONCE)
                entries = cast("_Entries", self._client.xrange(self._stream, min=id_of(end), count=wanted))
                if not entries:
                    break
                end = int(offsets_of([entries[-1][0]], self._stream)[0]) + 1
                left -= len(entries)
                if len(entries) < wanted:
                    break
        return self._position(end, None if self._read is None else self._read + max_records - left)

    def check(self) -> None:
        """Raise DataError if the stream no longer holds the position. Called when it is opened."""
        with translating(self._settings, queue=self._stream):
            last = id_of(self._next - 1)
            if self._client.xrange(self._stream, min=last, max=last):
                return
        state = self._state()
        if state is not None:
            state.check(self._next, self._read)

    # ---------------------------------------------------------------------------------------------------- inside

    def _entries(self, count: int) -> _Entries:
        """Return the next entries, none if there are none. Raises DataError if some are gone."""
        last = id_of(self._next - 1)
        found = cast("_Entries", self._client.xrange(self._stream, min=last, count=count + 1))
        found = found[1:] if found and found[0][0] == last.encode() else self._checked_entries(count)
        if not found:
            self._pass_deleted()
        return found

    def _checked_entries(self, count: int) -> _Entries:
        """As ``_entries``, if the entry that was read last is gone: reads the entries and the state of the stream in
        one transaction.
        """
        pipeline = self._client.pipeline(transaction=True)
        pipeline.xrange(self._stream, min=id_of(self._next), count=count)
        pipeline.xinfo_stream(self._stream)
        found, info = pipeline.execute(raise_on_error=False)
        for result in (found, info):
            if isinstance(result, Exception) and not _is_missing(result):
                raise result
        if isinstance(info, Exception):
            return ()  # the key is gone: the source no longer lists it
        StreamState.of(self._stream, info).check(self._next, self._read)
        return cast("_Entries", found)

    def _pass_deleted(self) -> None:
        """At the end of the stream: skip entries that were added and removed one by one (XDEL), and note how many were
        added.
        """
        state = self._state()
        if state is not None and state.latest >= self._next and (state.last is None or state.last < self._next):
            self._next, self._read = state.latest, state.added

    def _wait(self, timeout: timedelta) -> bool:
        """Wait for an entry behind the last one; return whether there is one."""
        longest = min(timeout, self._settings.read_timeout / 2)
        block = max(1, round(longest / timedelta(milliseconds=1)))
        return bool(self._client.xread({self._stream: id_of(self._next - 1)}, count=1, block=block))

    def _state(self) -> StreamState | None:
        return state_of(self._client, self._settings, self._stream)

    def _batch(self, entries: _Entries) -> RawBatch:
        offsets = offsets_of([entry_id for entry_id, _ in entries], self._stream)
        fields = [each for _, each in entries]
        self._next = int(offsets[-1]) + 1
        if self._read is not None:
            self._read += len(entries)
        return RawBatch(
            offsets,
            self.position,
            bodies=self._bodies.bodies(fields),
            times=times_of(offsets).astype(np.int64),
            headers=self._bodies.headers(fields) if self._with_headers else None,
        )

    @staticmethod
    def _position(offset: int, read: int | None) -> ReadPosition:
        return ReadPosition(offset, {} if read is None else {READ: read})


def state_of(client: redis.Redis, settings: RedisSourceSettings, stream: str) -> StreamState | None:
    """Return the state of a stream (XINFO STREAM); None if the key does not exist. Raises RetriableError, JobError."""
    with translating(settings, queue=stream):
        try:
            info: Any = client.xinfo_stream(stream)
        except redis.exceptions.ResponseError as error:
            if _is_missing(error):
                return None
            raise
    return StreamState.of(stream, info)


def _is_missing(error: Exception) -> bool:
    return "no such key" in str(error)
