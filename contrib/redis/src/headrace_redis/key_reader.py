"""Reads the keys of a table: each key that exists when the reader scans them, once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import redis
from headrace.flow.messages import Bodies, RawBatch, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.source import Reader

from headrace_redis.client import translating
from headrace_redis.settings import PLUGIN, RedisSourceSettings

if TYPE_CHECKING:
    from headrace_redis.entries import BodyReader

#: How many values one request reads.
_AT_ONCE = 1_000
#: In the hint of a position: a hash of the keys, in their order.
_KEYS = "keys"
_SIGNS = re.compile(rb"([*?\[\]\\^-])")


class RedisKeyReader(Reader):
    """Gives a record for each key that begins with a prefix, in the order of the keys. The keys are scanned once.

    A key that is removed before it is read is left out; a key that is added later is not read. A position is valid
    only while the keys are the same; otherwise DataError is raised.
    """

    def __init__(
        self, client: redis.Redis, settings: RedisSourceSettings, position: ReadPosition, body_reader: BodyReader
    ) -> None:
        self._client = client
        self._settings = settings
        self._bodies = body_reader
        self._prefix = (settings.key_prefix or "").encode()
        self._names: Sequence[bytes] | None = None
        self._next = 0
        self.seek(position)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        names = self._found()[self._next : self._next + min(max_records, _AT_ONCE)]
        if not names:
            return None
        with translating(self._settings, queue=self._settings.queue_name):
            values = self._values(names)
        rows = [row for row, value in enumerate(values) if value]
        offsets = np.array(rows, dtype=np.int64) + self._next
        self._next += len(names)
        return RawBatch(offsets, self.position, bodies=Bodies.of([self._body(names[row], values[row]) for row in rows]))

    def seek(self, position: ReadPosition) -> None:
        wanted = position.hint.get(_KEYS)
        if wanted is not None and wanted != self._digest(self._found()):
            raise DataError(
                "keys were added or removed after a part of them was read", plugin=PLUGIN, queue=self._settings.queue_name,
                hint="use the table in lookup_join, which reads it as a whole; or start without the checkpoint",
            )  # fmt: skip
        self._next = position.offset

    def limit(self, end: ReadPosition) -> None:
        self.seek(ReadPosition(self._next, end.hint))

    @property
    def position(self) -> ReadPosition:
        return self._position(self._next)

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        return len(self._found())

    def position_after(self, max_records: int) -> ReadPosition:
        return self._position(min(self.latest, self._next + max_records))

    # ---------------------------------------------------------------------------------------------------- inside

    def _position(self, offset: int) -> ReadPosition:
        return ReadPosition(offset, {} if self._names is None else {_KEYS: self._digest(self._names)})

    @staticmethod
    def _digest(names: Sequence[bytes]) -> str:
        made = hashlib.blake2b(digest_size=8)
        for name in names:
            made.update(b"%d:%s" % (len(name), name))
        return made.hexdigest()

    def _found(self) -> Sequence[bytes]:
        if self._names is None:
            kind = "hash" if self._settings.value == "hash" else "string"
            pattern = _SIGNS.sub(rb"\\\1", self._prefix) + b"*"
            with translating(self._settings, queue=self._settings.queue_name):
                # A scan may give a key several times.
                self._names = sorted(set(self._client.scan_iter(match=pattern, count=_AT_ONCE, _type=kind)))
        return self._names

    def _values(self, names: Sequence[bytes]) -> list[Any]:
        """Return the value of each key; None for a key that is gone, or has another type now."""
        if self._settings.value != "hash":
            return list(self._client.mget(names))
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.hgetall(name)
        found = pipeline.execute(raise_on_error=False)
        for each in found:
            if isinstance(each, Exception) and not str(each).startswith("WRONGTYPE"):
                raise each
        return [None if isinstance(each, Exception) else each for each in found]

    def _body(self, name: bytes, value: Any) -> bytes:
        key = self._key_fields(name)
        if self._settings.value == "hash":
            return self._bodies.object_of({**value, **key})
        if self._settings.value == "text":
            return self._bodies.object_of({self._settings.value_column.encode(): value, **key})
        text = bytes(value).strip()
        if not key or not (text.startswith(b"{") and text.endswith(b"}")):
            return text
        inner, fields = text[1:-1].strip(), self._bodies.object_of(key)[1:]
        return b"{" + inner + (b"," if inner else b"") + fields  # if several fields have one name, the last one counts

    def _key_fields(self, name: bytes) -> dict[bytes, bytes]:
        """Return the columns that a key gives: as the sink writes keys."""
        columns = self._settings.key_columns
        rest = name[len(self._prefix) :]
        parts = [rest] if len(columns) == 1 else [unquote(part).encode() for part in rest.decode().split(":")]
        if columns and len(parts) != len(columns):
            raise DataError(
                f"the key {name!r} has {len(parts)} parts, and the table {len(columns)} columns of its key", plugin=PLUGIN,
                option="key", hint="name one column for each part between ':', or a single column for the whole key",
            )  # fmt: skip
        return {column.encode(): part for column, part in zip(columns, parts, strict=False)}
