"""Where a sink keeps the positions of its queues: in a hash on the same server, which changes together with the stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import redis
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.output_notes import NOTE, OutputNote

from headrace_redis.settings import PLUGIN

_DEFINITION = "#definition"
_OWN = (NOTE.encode(), _DEFINITION.encode())

#: Adds entries and stores the new position, if the stored position is the one that the writer expects. Otherwise it
#: changes nothing. KEYS: the stream, the hash. ARGV: queue, position before, position after, length of the stream or
#: "", and for each entry the number of its fields with their values.
ADD_ENTRIES = """
local stored = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if stored ~= ARGV[2] then
  return stored == '' and '-' or stored
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key of the stream is of type ' .. kind)
end
local at = 5
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  if ARGV[4] == '' then
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + count))
  else
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], '*', unpack(ARGV, at + 1, at + count))
  end
  at = at + count + 1
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ''
"""


def key_of(writer: str, stream: str) -> str:
    """Return the key of the hash with the positions of a writer in a stream."""
    return f"headrace:{writer}:{stream}"


def to_text(position: Position | None) -> str:
    """Return the stored form of a position; an empty text for None."""
    return "" if position is None else f"{position.offset}:{position.index}"


def from_text(text: str) -> Position:
    """Read what ``to_text`` wrote. Raises ValueError for another text."""
    offset, _, index = text.partition(":")
    return Position(int(offset), int(index))


class StoredPositions:
    """The positions of one writer, and its ``OutputNotes``. Raises the errors of redis-py."""

    def __init__(self, client: redis.Redis, stream: str, writer: str) -> None:
        self._client = client
        self._stream = stream
        self.key = key_of(writer, stream)

    def last(self, queue: Queue) -> Position | None:
        """Return the position of a queue. Raises JobError if the stored text is not a position."""
        found = self._get(queue.id)
        if found is None:
            return None
        try:
            return from_text(found)
        except ValueError:
            raise JobError(
                f"the field {queue.id!r} of the hash {self.key!r} is not a position",
                plugin=PLUGIN,
                hint="remove the field if headrace has not written it",
            ) from None

    def note(self) -> OutputNote | None:
        found = self._get(NOTE)
        if found is None:
            return None
        try:
            return OutputNote.from_text(found)
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"the description of the job in the hash {self.key!r} is damaged: {error}", plugin=PLUGIN,
                hint=f"remove its field {NOTE!r} if this job, in its present form, has written the entries of the stream",
            ) from error  # fmt: skip

    def keep_note(self, note: OutputNote) -> None:
        self._client.hset(self.key, NOTE, note.to_text())

    def definition(self) -> Mapping[str, Any] | None:
        found = self._get(_DEFINITION)
        try:
            value = None if found is None else json.loads(found)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def keep_definition(self, definition: Mapping[str, Any]) -> None:
        self._client.hset(self.key, _DEFINITION, json.dumps(definition, default=str))

    def any(self) -> bool:
        names = cast("list[bytes]", self._client.hkeys(self.key))
        return any(name not in _OWN for name in names)

    def forget(self) -> None:
        self._client.delete(self.key)

    def holds_rows(self) -> bool:
        return bool(self._client.xlen(self._stream))

    def _get(self, field: str) -> str | None:
        found = cast("bytes | None", self._client.hget(self.key, field))
        return None if found is None else found.decode()
