"""The Kafka sink: at least once with acknowledgements from all replicas, or exactly once in transactions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

from headrace.codec import Encoder
from headrace.errors import JobError, OptionError, did_you_mean
from headrace.messages import Position, Queue
from headrace.registry import default_registry
from headrace.schema import Schema, type_name
from headrace.sink import Sink, SinkBatch, SinkSettings, TransactionalSink

from headrace_kafka.errors import NoSuchTopic
from headrace_kafka.producers import (
    Fenced,
    Producer,
    Record,
    TransactionalProducer,
    make_producer,
    make_transactional_producer,
)
from headrace_kafka.settings import KafkaSinkSettings, driver_name


class KafkaSink(Sink):
    """Writes rows as records of a topic. Guarantee: at least once; ``delivery="exactly_once"`` makes the other class."""

    Settings: ClassVar[type[SinkSettings]] = KafkaSinkSettings

    def __new__(cls, settings: KafkaSinkSettings) -> KafkaSink:
        if cls is KafkaSink and settings.delivery == "exactly_once":
            return super().__new__(KafkaTransactionalSink)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[KafkaSinkSettings]:
        return (self._own,)

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._own = settings
        self.settings = settings
        self._schema: Schema | None = None
        self._encoder: Encoder | None = None
        self._producer: Producer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None, "_producer": None}

    def check(self, schema: Schema | None) -> None:
        driver_name(self._own)
        self._schema = schema
        for option, name in (("key", self._own.key), ("partition", self._own.partition)):
            if name is not None and schema is not None and name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise OptionError(f"unknown column {name!r}", plugin="kafka", option=option, hint=hint)
        partition = self._own.partition
        if partition is not None and schema is not None and not schema[partition].is_integer():
            raise OptionError(
                f"column {partition!r} is {type_name(schema[partition])}, not an integer",
                plugin="kafka",
                option="partition",
            )
        self._make_encoder()

    def prepare(self, schema: Schema | None) -> None:
        producer = make_producer(self._own)
        try:
            try:
                producer.partition_count()
            except NoSuchTopic as error:
                if not self._own.create_topic:
                    error.hint = "create it, correct its name, or pass create_topic=True"
                    raise
                producer.create_topic()
        finally:
            producer.close()

    def open(self) -> None:
        self._encoder = self._make_encoder()

    def batch_insert(self, batch: SinkBatch) -> None:
        if self._producer is None:
            self._producer = make_producer(self._own)
        self._producer.write(self.records(batch))

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def records(self, batch: SinkBatch) -> Sequence[Record]:
        """Return the batch's rows as records."""
        assert self._encoder is not None, "open() comes first"
        frame = batch.frame if batch.dynamic else batch.to_polars()
        bodies = self._encoder.encode(frame)
        if self._own.key is None and self._own.partition is None:
            return [Record(body) for body in bodies]
        rows = batch.rows() if batch.dynamic else None
        keys = self._column(batch, rows, self._own.key)
        partitions = self._column(batch, rows, self._own.partition)
        return [
            Record(body, _key(key), partition) for body, key, partition in zip(bodies, keys, partitions, strict=True)
        ]

    @staticmethod
    def _column(batch: SinkBatch, rows: list[dict[str, Any]] | None, name: str | None) -> Sequence[Any]:
        if name is None:
            return [None] * len(batch)
        return [row.get(name) for row in rows] if rows is not None else batch.frame[name].to_list()

    def _make_encoder(self) -> Encoder:
        codec = default_registry().find("codec", self._own.format)
        encoder: Encoder = codec(codec.Settings()).encoder(self._schema)
        return encoder


class KafkaTransactionalSink(KafkaSink, TransactionalSink):
    """Writes rows and the position of their queue in one transaction: readers with ``read_committed`` see each row once.

    Each upstream queue has a producer of its own, named after it: whoever opens it anew fences the one before, so that a
    process that was thought dead cannot write behind the back of its successor. The broker forgets positions that were
    not written for ``offsets.retention.minutes`` (seven days by default).
    """

    concurrent = True

    def __init__(self, settings: KafkaSinkSettings) -> None:
        super().__init__(settings)
        self._producers: dict[Queue, TransactionalProducer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_producers": {}}

    def last_offset(self, queue: Queue) -> Position | None:
        return self._of(queue).position()

    def batch_insert(self, batch: SinkBatch) -> None:
        try:
            self._of(batch.queue).write(self.records(batch), batch.last)
        except Fenced:
            self.queue_removed(batch.queue)
            raise

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
        prefix = self._own.transactional_id or f"headrace-{self._own.topic}"
        return f"{prefix}-{hashlib.sha256(queue.id.encode()).hexdigest()[:20]}"


def _key(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str | int | float | bool):
        return str(value).encode()
    raise JobError(f"a key of type {type(value).__name__} cannot be written", plugin="kafka", option="key")
