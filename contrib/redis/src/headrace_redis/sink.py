"""The Redis sinks: rows as entries of a stream, exactly once; or the newest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import redis
from headrace.flow.changelog import collapsed
from headrace.flow.messages import CHANGE, INDEX, OFFSET, Position, Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, did_you_mean
from headrace.interfaces.output_notes import adopted
from headrace.interfaces.sink import (
    IdempotentSink,
    Sink,
    SinkBatch,
    SinkSettings,
    StaleWriterError,
    TransactionalSink,
)

from headrace_redis.client import make_client, translating
from headrace_redis.rows import RowMaker, keys_of
from headrace_redis.settings import PLUGIN, RedisSinkSettings, refused
from headrace_redis.stored_positions import ADD_ENTRIES, StoredPositions, from_text, key_of, to_text
from headrace_redis.table_options import SINK_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.output_definition import InputRead, OutputDefinition


class RedisSink(Sink):
    """Makes a sink of a stream or of keys, as the options say. May be pickled at any time; a copy makes its own connections."""

    Settings: ClassVar[type[SinkSettings]] = RedisSinkSettings
    table_options = SINK_TABLES
    concurrent = True

    def __new__(cls, settings: RedisSinkSettings) -> RedisSink:
        if cls is RedisSink:
            return super().__new__(RedisKeySink if settings.key_columns else RedisStreamSink)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[RedisSinkSettings]:
        return (self._own,)

    def __init__(self, settings: RedisSinkSettings) -> None:
        self._own = settings
        self.settings = settings
        self._schema: Schema | None = None
        self._client: redis.Redis | None = None
        self._maker: RowMaker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_maker": None}

    def check(self, schema: Schema | None) -> None:
        """Check options against the stream's columns. Raises JobError."""
        self._schema = schema
        RowMaker(schema)

    def batch_insert(self, batch: SinkBatch) -> None:
        """Store the rows. Each of the two sinks implements it."""
        raise NotImplementedError

    def open(self) -> None:
        """Prepare the connections; the first command opens one. Raises JobError for files of TLS that cannot be read."""
        if self._client is None:
            self._maker = RowMaker(self._schema)
            self._client = make_client(self._own)

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> tuple[redis.Redis, RowMaker]:
        if self._client is None or self._maker is None:
            self.open()
        assert self._client is not None
        assert self._maker is not None
        return self._client, self._maker


class RedisStreamSink(RedisSink, TransactionalSink):
    """Adds rows to a stream. Guarantee: exactly once, by positions in a hash that one script changes together with the stream.

    See ``docs/connectors/redis.md`` for the conditions.
    """

    def prepare(self, schema: Schema | None) -> None:
        """Check that the key is a stream, or free, and that the positions can be written. Raises JobError."""
        with closing(make_client(self._own)) as client, translating(self._own):
            found: Any = client.type(self._stream)
            if found.decode() not in ("stream", "none"):
                raise JobError(
                    f"the key {self._stream!r} is of type {found.decode()}, not a stream", plugin=PLUGIN, option="stream",
                    hint="name another key",
                )  # fmt: skip
            if found.decode() == "none":
                # A stream with this key may have existed before. With its old positions, new rows would be dropped as
                # repeated ones.
                self._positions(client).forget()
            # It adds nothing, but needs the same rights as later calls.
            self._add(client, "#job", "no position", "no position", [])

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the job with the one whose rows are in the stream. Raises JobError when it is another one."""
        with closing(make_client(self._own)) as client, translating(self._own):
            return adopted(self._positions(client), output, replaces_rows=False, refused=self._refused)

    def completed(self, read: InputRead) -> None:
        """Store that all results over an input are in the stream. Raises JobError, RetriableError."""
        with closing(make_client(self._own)) as client, translating(self._own):
            positions = self._positions(client)
            note = positions.note()
            if note is not None:
                positions.keep_note(replace(note, complete=read))

    def last_offset(self, queue: Queue) -> Position | None:
        client, _ = self._opened()
        with translating(self._own, queue=queue.id):
            return self._positions(client).last(queue)

    def batch_insert(self, batch: SinkBatch) -> None:
        """Add the rows and move the position of their queue. Raises StaleWriterError, RetriableError, JobError."""
        client, maker = self._opened()
        entries = self._entries(maker, batch)
        with translating(self._own, queue=batch.queue.id):
            stored = self._add(client, batch.queue.id, to_text(batch.after), to_text(batch.last), entries)
        if stored:
            raise self._other_position(batch, None if stored == "-" else from_text(stored))

    def check_rows(self, batch: SinkBatch) -> None:
        """Make the entries of the rows without storing them. Raises DataError for a row that JSON cannot hold, or that
        has no field.
        """
        self._entries(self._opened()[1], batch)

    @property
    def _stream(self) -> str:
        assert self._own.stream is not None  # or it would be a sink of keys
        return self._own.stream

    def _positions(self, client: redis.Redis) -> StoredPositions:
        return StoredPositions(client, self._stream, self.writer_name)

    def _entries(self, maker: RowMaker, batch: SinkBatch) -> Sequence[Sequence[bytes]]:
        if self._own.entry == "body":
            field = self._own.field.encode()
            return [(field, each) for each in maker.objects(batch)]
        entries = maker.fields(batch)
        if not all(entries):
            raise DataError(
                "all columns of the row are NULL, and an entry needs at least one field", plugin=PLUGIN, option="entry"
            )
        return entries

    def _add(self, client: redis.Redis, queue: str, before: str, after: str, entries: Sequence[Sequence[bytes]]) -> str:
        """Run the script. Returns an empty text if it stored the rows, and otherwise the position that is stored and
        differs from ``before``.
        """
        length = "" if self._own.max_length is None else str(self._own.max_length)
        arguments: list[Any] = [queue, before, after, length]
        for entry in entries:
            arguments.append(len(entry))
            arguments += entry
        keys = [self._stream, self._positions(client).key]
        found: Any = client.register_script(ADD_ENTRIES)(keys=keys, args=arguments)
        return str(found.decode())

    def _other_position(self, batch: SinkBatch, stored: Position | None) -> HeadraceError:
        """Return the error for a stored position that differs from the one that this writer stored last."""
        told = f"rows up to {to_text(stored) or 'none'} are stored, not up to {to_text(batch.after) or 'none'}"
        if batch.after is None or (stored is not None and stored > batch.after):
            return StaleWriterError(told, plugin=PLUGIN, queue=batch.queue.id)
        return JobError(
            f"{told}: the server has lost rows that it had stored", plugin=PLUGIN, queue=batch.queue.id,
            hint="start from a savepoint or checkpoint that is older than the loss; a server with appendfsync=always loses no rows in a "
                 "crash",
        )  # fmt: skip

    def _refused(self, message: str) -> JobError:
        return JobError(
            f"stream {self._stream!r}: {message}", plugin=PLUGIN, option="stream",
            hint="remove its entries (XTRIM … MAXLEN 0), or write to another one; or, if rows may be added, remove the positions: the hash "
            f"{key_of(self.writer_name, self._stream)!r}",
        )  # fmt: skip


class RedisKeySink(RedisSink, IdempotentSink):
    """Keeps the newest row of each key. Guarantee: exactly once as seen by readers, because writing a row again changes
    nothing.

    All rows of a call become visible together.
    """

    accepts = "upsert"

    def check(self, schema: Schema | None) -> None:
        super().check(schema)
        for name in self._own.key_columns if schema is not None else ():
            assert schema is not None
            if name not in schema:
                raise refused("key", f"unknown column {name!r}", did_you_mean(name, schema, known="columns"))
            kind = schema[name]
            if not (kind.is_integer() or kind.is_temporal() or kind in (pl.String, pl.Boolean)):
                raise refused("key", f"column {name!r} is {kind}", "a key is text, an integer, a boolean or a time")

    def prepare(self, schema: Schema | None) -> None:
        """Check that the server is there and lets the user write. Raises JobError, RetriableError."""
        if self.changes is not None and set(self.changes.key or ()) != set(self._own.key_columns):
            raise refused(
                "key",
                f"rows change by the key {list(self.changes.key or ())}, and the sink stores them by {list(self._own.key_columns)}",
                "name all columns of the stream's key, and no others",
            )
        with closing(make_client(self._own)) as client, translating(self._own):
            client.delete(f"{self._own.key_prefix}headrace:none")

    def batch_insert(self, batch: SinkBatch) -> None:
        """Store the rows, or remove those of removed keys. Raises RetriableError, JobError, and DataError for a NULL in a key."""
        client, maker = self._opened()
        own = self._own
        lifetime = None if own.ttl is None else max(1, own.ttl // timedelta(milliseconds=1))
        written, removed = _split(batch, own.key_columns)
        pipeline: Any = client.pipeline(transaction=True)
        if removed:
            for key in keys_of(removed, own.key_columns, own.key_prefix):
                pipeline.delete(key)
        if written:
            keys = keys_of(written, own.key_columns, own.key_prefix)
            values: Sequence[Any] = maker.objects(written) if own.value == "json" else maker.fields(written)
            # If several rows have one key, the last one counts.
            for key, place in {key: place for place, key in enumerate(keys)}.items():
                if own.value == "json":
                    pipeline.set(key, values[place], px=lifetime)
                    continue
                pipeline.delete(key)  # so that fields which are NULL now are removed
                pipeline.execute_command("HSET", key, *values[place])
                if lifetime is not None:
                    pipeline.pexpire(key, lifetime)
        with translating(own, queue=batch.queue.id):
            pipeline.execute()


def _split(batch: SinkBatch, key: Sequence[str]) -> tuple[SinkBatch | None, SinkBatch | None]:
    """Return the rows to keep, and the rows whose keys are removed. For a changelog, both describe the final state
    after the batch.
    """
    if CHANGE not in batch.frame.columns:
        return batch, None
    difference = collapsed(batch.frame, key)
    frames = (each.drop(CHANGE).sort(OFFSET, INDEX) for each in (difference.upserts, difference.deletes))
    written, removed = (SinkBatch(batch.queue, frame, batch.after, batch.writer) for frame in frames)
    return written if len(written) else None, removed if len(removed) else None
