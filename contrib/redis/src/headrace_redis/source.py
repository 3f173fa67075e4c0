"""The Redis source: streams are queues."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import redis
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, OptionError, did_you_mean
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import EARLIEST, Reader, Source, StartAt, StartPosition

from headrace_redis.client import make_client, translating
from headrace_redis.entries import BodyReader
from headrace_redis.entry_ids import SEQUENCE_BITS, id_of
from headrace_redis.key_reader import RedisKeyReader
from headrace_redis.reader import READ, RedisReader, state_of
from headrace_redis.settings import PLUGIN, RedisSourceSettings
from headrace_redis.streams import StreamState
from headrace_redis.table_options import SOURCE_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PATTERN_SIGNS = frozenset("*?[")
#: How many names are compared to suggest one in the message about a missing stream.
_NAMES_MAX = 1_000


class RedisSource(Source):
    """Reads streams of a Redis server. Each is a queue with the name of its key; consumer groups of Redis are not used.

    Positions are in headrace's checkpoints. Any thread may use its readers; ``queues`` and ``open`` are called by one at a time.
    """

    Settings: ClassVar[type[Settings]] = RedisSourceSettings
    table_options = SOURCE_TABLES
    #: The server gives ids in ascending order by its own clock, and the time of a record is the one in its id.
    time_delay: timedelta | None = timedelta(0)

    def __new__(cls, settings: RedisSourceSettings) -> RedisSource:
        if cls is RedisSource and settings.key_prefix is not None:
            return super().__new__(RedisTableSource)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[RedisSourceSettings]:
        return (self.settings,)

    def __init__(self, settings: RedisSourceSettings) -> None:
        self.settings: RedisSourceSettings = settings
        self._body_reader = BodyReader(settings)
        self._client: redis.Redis | None = None
        self._found: list[str] = []
        self._looked_seconds: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_found": [], "_looked_seconds": None}

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        self._body_reader.use_format(format, schema)

    def queues(self) -> Collection[Queue]:
        client = self._connected()
        names = [name for name in self.settings.streams if not _is_pattern(name)]
        with translating(self.settings):
            for name in names:
                self._check_kind(client, name)
            matching = self._matching(client)
        return [Queue(name) for name in dict.fromkeys([*names, *matching])]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        client, stream = self._connected(), queue.name
        if isinstance(start, ReadPosition):
            position = start
        else:
            state = state_of(client, self.settings, stream)
            position = ReadPosition(1, {READ: 0}) if state is None else _position_at(state, start)
        reader = RedisReader(client, self.settings, stream, position, self._body_reader, self.header_fields)
        if isinstance(start, ReadPosition):
            reader.check()
        return reader

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        if not self.settings.trim:
            return
        client = self._connected()
        for queue, position in positions.items():
            if position.offset > 1:
                with translating(self.settings, queue=queue.name):
                    # The last entry is not removed: while it exists, no later entry can be missing.
                    client.xtrim(queue.name, minid=id_of(position.offset - 1), approximate=False)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # ---------------------------------------------------------------------------------------------------- inside

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = make_client(self.settings)
        return self._client

    def _check_kind(self, client: redis.Redis, name: str) -> None:
        """Raise JobError unless there is a stream of this name."""
        found: Any = client.type(name)
        kind = found.decode()
        if kind == "stream":
            return
        if kind != "none":
            raise JobError(
                f"the key {name!r} is of type {kind}, not a stream",
                plugin=PLUGIN,
                option="stream",
                hint="name another key",
            )
        names: list[str] = []
        for each in client.scan_iter(count=1000, _type="stream"):
            names.append(each.decode(errors="replace"))
            if len(names) == _NAMES_MAX:
                break
        raise JobError(
            f"there is no stream {name!r}", plugin=PLUGIN, option="stream",
            hint=f"{did_you_mean(name, names, known='streams')}; a pattern such as '{name}*' waits until there is one",
        )  # fmt: skip

    def _matching(self, client: redis.Redis) -> list[str]:
        """Return the streams that match the patterns. The result may be up to ``discovery_interval`` old."""
        now = time.monotonic()
        looked, interval = self._looked_seconds, self.settings.discovery_interval.total_seconds()
        if looked is not None and now - looked < interval:
            return self._found
        found: set[str] = set()
        for pattern in filter(_is_pattern, self.settings.streams):
            found.update(map(_name, client.scan_iter(match=pattern, count=1000, _type="stream")))
        self._found, self._looked_seconds = sorted(found), now
        return self._found


class RedisTableSource(RedisSource):
    """Reads keys as the rows of a table: one queue, read once from its beginning to its end. For ``lookup_join`` and runs that end.

    Keys have no order in time, so new ones cannot be followed. Values are read one after the other, not as a snapshot
    of one moment.
    """

    time_delay = None

    def use_run(self, *, until: Literal["end"] | None) -> None:
        if until != "end":
            raise OptionError(
                "the keys of a table cannot be read continuously, because they have no order", plugin=PLUGIN, option="key_prefix",
                hint="use the table in lookup_join with refresh=, or run the job to the end of the input, or read a stream",
            )  # fmt: skip

    def queues(self) -> Collection[Queue]:
        return [Queue(self.settings.queue_name)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        position = start if isinstance(start, ReadPosition) else ReadPosition(0)
        return RedisKeyReader(self._connected(), self.settings, position, self._body_reader)

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        pass


def _is_pattern(name: str) -> bool:
    return not _PATTERN_SIGNS.isdisjoint(name)


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise JobError(
            f"the key {key!r} of a stream is not UTF-8",
            plugin=PLUGIN,
            option="stream",
            hint="use a pattern that does not match it",
        ) from None


def _position_at(state: StreamState, start: StartPosition) -> ReadPosition:
    """Return the offset at which a reader without a position begins."""
    first = ReadPosition(state.earliest, _hint(state.added if state.first is None else state.added_before_first))
    last = ReadPosition(state.latest, _hint(state.added))
    if start is EARLIEST:
        return first
    if not isinstance(start, StartAt):
        return last
    milliseconds = -((_EPOCH - start.time) // timedelta(milliseconds=1))
    offset = milliseconds << SEQUENCE_BITS
    if offset <= first.offset:
        return first
    return last if offset >= last.offset else ReadPosition(offset)


def _hint(read: int | None) -> dict[str, Any]:
    return {} if read is None else {READ: read}
