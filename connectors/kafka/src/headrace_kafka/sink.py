"""The Kafka sink: at least once with acknowledgements from all replicas, or exactly once in transactions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import CHANGE, Position, Queue
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import DataError, HeadraceError, OptionError, did_you_mean
from headrace.interfaces.codec import Encoder, encodes_changes
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings, StaleWriterError, TransactionalSink

from headrace_kafka.changes import accepts, check_changes, split_changes
from headrace_kafka.errors import NoSuchTopic, public_topics
from headrace_kafka.producer import (
    Producer,
    Record,
    TransactionalProducer,
    make_producer,
    make_topic_keeper,
    make_transactional_producer,
)
from headrace_kafka.settings import KafkaSinkSettings, driver_name
from headrace_kafka.table_options import SINK_TABLES

if TYPE_CHECKING:
    import polars as pl


class KafkaSink(Sink):
    """Writes rows as records of a topic. Guarantee: at least once, or exactly once with delivery="exactly_once".

    The latter makes an object of ``KafkaTransactionalSink``.
    """

    Settings: ClassVar[type[SinkSettings]] = KafkaSinkSettings
    table_options = SINK_TABLES

    def __new__(cls, settings: KafkaSinkSettings) -> KafkaSink:
        if cls is KafkaSink and settings.delivery == "exactly_once":
            return super().__new__(KafkaTransactionalSink)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[KafkaSinkSettings]:
        return (self._own,)

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._own = settings
        self.settings = settings
        #: Whether the records' format says what each changes.
        self._encodes_changes = encodes_changes(settings.format)
        self.accepts = accepts(settings, encodes_changes=self._encodes_changes)
        self._schema: Schema | None = None
        self._encoder: Encoder | None = None
        self._key_encoder: Encoder | None = None
        self._producer: Producer | None = None
        self._partition_count = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None, "_key_encoder": None, "_producer": None}

    def check(self, schema: Schema | None) -> None:
        driver_name(self._own)
        self._schema = schema
        if schema is not None:
            self._check_columns(schema)
        self._make_encoders()

    def _check_columns(self, schema: Schema) -> None:
        """Raise OptionError when the columns that options name are not there, or of types that do not fit."""
        own = self._own
        of_key = _is_key if own.key_as_text else _is_any
        named: list[tuple[str, str | None, Callable[[pl.DataType], bool]]] = [
            ("key", name, of_key) for name in own.key_columns
        ]
        named += [("partition", own.partition, _is_integer), ("tombstone", own.tombstone, _is_boolean)]
        for option, name, fits in named:
            if name is not None and name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise OptionError(f"unknown column {name!r}", plugin="kafka", option=option, hint=hint)
            if name is not None and not fits(schema[name]):
                wanted = {
                    "key": "text, binary, an integer or boolean",
                    "partition": "an integer",
                    "tombstone": "boolean",
                }[option]
                other = "key_format='json' takes other types" if option == "key" else None
                raise OptionError(
                    f"column {name!r} is {type_name(schema[name])}, not {wanted}",
                    plugin="kafka",
                    option=option,
                    hint=other,
                )

    def prepare(self, schema: Schema | None) -> None:
        keeper = make_topic_keeper(self._own)
        count = self._own.partitions
        try:
            try:
                count = keeper.partition_count()
            except NoSuchTopic as error:
                if not self._own.create_topic:
                    error.option = "topic"
                    nearest = did_you_mean(self._own.topic, public_topics(keeper.topic_names()), known="topics")
                    error.hint = f"{nearest} (to create it: create_topic=True)"
                    raise
                keeper.create_topic()
        finally:
            keeper.close()
        if self.changes is not None:
            check_changes(self._own, self.changes, encodes_changes=self._encodes_changes, partitions=count)

    def open(self) -> None:
        self._encoder, self._key_encoder = self._make_encoders()

    def batch_insert(self, batch: SinkBatch) -> None:
        records = self.records(batch)
        if self._producer is None:
            self._producer = make_producer(self._own)
        try:
            self._producer.write(records)
        except HeadraceError:
            # The next try makes a new one: this one may hold records, be in a broken state, or have lost count
            # of what it wrote, so that brokers would take new records for repeated ones.
            self.close()
            raise

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close()

    def records(self, batch: SinkBatch) -> Sequence[Record]:
        """Return the batch's rows as records. Raises DataError for a row whose key, partition or tombstone is wrong."""
        assert self._encoder is not None, "open() must be called first"
        own = self._own
        if CHANGE in batch.frame.columns and own.key is not None and not self._encodes_changes:
            written, removed = split_changes(batch, own.key_columns)
            if any(batch.frame[name].null_count() for name in own.key_columns):
                raise DataError(
                    "a row whose key is NULL cannot be changed or deleted later", plugin="kafka", option="key"
                )
            gone = [record._replace(value=None) for record in self.records(removed)] if len(removed) else []
            return [*gone, *(self.records(written) if len(written) else ())]
        bodies = self._encoder.encode(self._value_frame(batch))
        if own.key is None and own.partition is None:
            return [Record(body) for body in bodies]
        count = len(batch)
        rows = batch.rows() if batch.dynamic else None
        keys = [None] * count if own.key is None else self._keys(batch, rows)
        partitions = [None] * count if own.partition is None else _values(batch, rows, own.partition).to_list()
        if own.partition is not None:
            self._check_partitions(partitions)
        if own.tombstone is not None:
            deleted = _values(batch, rows, own.tombstone).to_list()
            if any(key is None and gone is True for key, gone in zip(keys, deleted, strict=True)):
                raise DataError("a tombstone without key: the column of the key is NULL", plugin="kafka", option="key")
            return [
                Record(None if gone is True else body, key, partition)
                for body, key, partition, gone in zip(bodies, keys, partitions, deleted, strict=True)
            ]
        return [Record(*parts) for parts in zip(bodies, keys, partitions, strict=True)]

    def _value_frame(self, batch: SinkBatch) -> pl.DataFrame:
        """Return what the values are made of."""
        if batch.dynamic:
            return batch.frame
        frame = batch.to_polars()
        if self._own.value_fields_include == "except_key":
            frame = frame.drop(self._own.key_columns)
        if self._encodes_changes and CHANGE in batch.frame.columns:
            frame = frame.with_columns(batch.frame[CHANGE])
        return frame

    def _keys(self, batch: SinkBatch, rows: list[dict[str, Any]] | None) -> Sequence[bytes | None]:
        """Return the key of each row."""
        if self._key_encoder is None:
            return _texts(_values(batch, rows, self._own.key_columns[0]))
        import polars as pl

        named = [pl.col(name).alias(inner) for name, inner in self._own.names_in_key.items()]
        return self._key_encoder.encode(batch.frame.select(named))

    def _check_partitions(self, partitions: Sequence[Any]) -> None:
        """Raise DataError for a partition that the topic does not have."""
        numbers = {number for number in partitions if number is not None}
        if any(type(number) is not int for number in numbers):
            raise DataError(
                "the value of the partition's column is NULL or not an integer", plugin="kafka", option="partition"
            )
        if numbers and max(numbers) >= self._partition_count:
            self._partition_count = self._count_partitions()  # partitions may have been added since the last check
        wrong = [number for number in numbers if not 0 <= number < self._partition_count]
        if wrong:
            raise DataError(
                f"topic {self._own.topic!r} has {self._partition_count} partitions, and no partition {wrong[0]}",
                plugin="kafka",
                option="partition",
            )

    def _count_partitions(self) -> int:
        keeper = make_topic_keeper(self._own)
        try:
            return keeper.partition_count()
        finally:
            keeper.close()

    def _make_encoders(self) -> tuple[Encoder, Encoder | None]:
        """Return what encodes values, and keys unless they are texts. Raises OptionError for what does not fit together."""
        own, schema = self._own, self._schema
        codec = default_registry().find("codec", own.format)
        settings = codec.Settings.of(own.format_options, plugin=own.format)
        needs_columns = own.value_fields_include == "except_key" or not own.key_as_text
        if own.key is not None and needs_columns and schema is None:
            raise OptionError(
                "the key is made of columns, which are not known when the job is built", plugin="kafka", option="key",
                hint="give the map() before it an option schema={...}",
            )  # fmt: skip
        values = schema
        if schema is not None and own.value_fields_include == "except_key":
            values = schema.part(name for name in schema if name not in own.key_columns)
        encoder: Encoder = codec(settings).encoder(values)
        if own.key is None or own.key_as_text:
            return encoder, None
        assert schema is not None
        key_codec = default_registry().find("codec", own.key_format or "json")
        return encoder, key_codec(key_codec.Settings.of({}, plugin="kafka")).encoder(
            schema.part(own.key_columns, own.names_in_key)
        )


class KafkaTransactionalSink(KafkaSink, TransactionalSink):
    """Writes rows and the position of their queue in one transaction: readers with ``read_committed`` see each row once.

    Each upstream queue has its own producer, named after it. A new producer of this name fences the earlier one, so a process
    that was believed dead cannot write after its successor has begun. The broker forgets positions that were not written for
    ``offsets.retention.minutes`` (seven days by default).
    """

    concurrent = True

    def __init__(self, settings: KafkaSinkSettings) -> None:
        super().__init__(settings)
        self._producers: dict[Queue, TransactionalProducer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_producers": {}}

    def last_offset(self, queue: Queue) -> Position | None:
        return self._of(queue).position

    def batch_insert(self, batch: SinkBatch) -> None:
        records = self.records(batch)
        producer = self._of(batch.queue)
        if producer.position != batch.after:
            # No other producer has written since this one began, or it would be fenced: this check is enough.
            raise StaleWriterError(
                f"another writer has stored rows: the stored position is {producer.position}, and this writer expected {batch.after}",
                plugin="kafka",
                queue=batch.queue.id,
            )
        try:
            producer.write(records, batch.last)
        except HeadraceError:
            self.queue_removed(batch.queue)  # the next one finds out whether the transaction was committed
            raise

    def check_rows(self, batch: SinkBatch) -> None:
        """Make the records of the rows. Raises DataError for a row whose key, partition or tombstone is wrong."""
        self.records(batch)

    def queue_removed(self, queue: Queue) -> None:
        producer = self._producers.pop(queue, None)
        if producer is not None:
            producer.close()

    def close(self) -> None:
        for queue in list(self._producers):
            self.queue_removed(queue)
        super().close()

    def _of(self, queue: Queue) -> TransactionalProducer:
        producer = self._producers.get(queue)
        if producer is None:
            producer = self._producers[queue] = make_transactional_producer(self._own, self.transactional_id(queue))
        return producer

    def transactional_id(self, queue: Queue) -> str:
        """Return the name of a queue's transactions: the same in every process and run of the job."""
        prefix = self._own.transactional_id or f"headrace-{self.writer_name or self._own.topic}"
        return f"{prefix}-{hashlib.sha256(queue.id.encode()).hexdigest()[:20]}"


def _is_any(kind: pl.DataType) -> bool:
    return True


def _is_key(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_integer() or kind in (pl.String, pl.Binary, pl.Boolean)


def _is_integer(kind: pl.DataType) -> bool:
    return kind.is_integer()


def _is_boolean(kind: pl.DataType) -> bool:
    import polars as pl

    return kind == pl.Boolean


def _values(batch: SinkBatch, rows: list[dict[str, Any]] | None, name: str) -> pl.Series:
    """Return a column; of rows of unknown columns, the values as they are."""
    import polars as pl

    if rows is None:
        return batch.frame[name]
    return pl.Series(name, [row.get(name) for row in rows], dtype=pl.Object)


def _texts(column: pl.Series) -> list[bytes | None]:
    """Return keys as bytes: texts as UTF-8, integers and booleans as JSON writes them."""
    import polars as pl

    if column.dtype == pl.Object:
        return [_key(value) for value in column]
    if column.dtype == pl.Binary:
        return column.to_list()
    return column.cast(pl.String).cast(pl.Binary).to_list()


def _key(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, str | int):
        return str(value).encode()
    raise DataError(
        f"a key of type {type(value).__name__}, but must be str, bytes, int or bool",
        plugin="kafka",
        option="key",
    )
