"""What the sink needs of a client library: producers, plain and transactional."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from headrace.errors import DataError, HeadraceError, RetriableError
from headrace.messages import Position
from headrace.sink import StaleWriterError

from headrace_kafka.errors import NoSuchTopic, confluent_error, kafka_python_error
from headrace_kafka.settings import KafkaSinkSettings, confluent_properties, driver_name, kafka_python_properties

T = TypeVar("T")


class Record(NamedTuple):
    """One record to write; without a partition the key, or the producer, chooses."""

    value: bytes
    key: bytes | None = None
    partition: int | None = None


class Fenced(StaleWriterError):
    """Another producer with the same transactional id has begun: this one may write no more."""


class Producer(ABC):
    """Writes records and waits for the brokers' word. Used by one thread at a time."""

    @abstractmethod
    def write(self, records: Sequence[Record]) -> None:
        """Write records and wait until all replicas have them. Raises RetriableError or JobError; DataError for one record."""

    @abstractmethod
    def partition_count(self) -> int:
        """Return how many partitions the topic has. Raises NoSuchTopic."""

    @abstractmethod
    def create_topic(self) -> None:
        """Create the topic; nothing happens when it exists."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. May be called twice."""


class TransactionalProducer(ABC):
    """Writes the rows of one upstream queue in transactions, each with the position behind it.

    The position is kept as a committed offset of a group of its own (partition 0 of the topic, the row's index as
    metadata), which the broker makes visible together with the records.
    """

    @abstractmethod
    def write(self, records: Sequence[Record], last: Position) -> None:
        """Write records and position in one transaction. Raises Fenced when another producer has taken over."""

    @abstractmethod
    def position(self) -> Position | None:
        """Return the position of the last committed transaction."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. May be called twice."""


def make_producer(settings: KafkaSinkSettings) -> Producer:
    """Return a producer of the client library that the settings choose."""
    return ConfluentProducer(settings) if driver_name(settings) == "confluent" else KafkaPythonProducer(settings)


def make_transactional_producer(settings: KafkaSinkSettings, name: str) -> TransactionalProducer:
    """Return a producer whose transactions are called ``name``; takes over from an earlier one of that name."""
    if driver_name(settings) == "confluent":
        return ConfluentTransactionalProducer(settings, name)
    return KafkaPythonTransactionalProducer(settings, name)


def _confluent_properties(settings: KafkaSinkSettings) -> dict[str, Any]:
    return {
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": settings.compression,
        "linger.ms": settings.linger.total_seconds() * 1000,
        "queue.buffering.max.messages": 2_000_000,
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": 30_000,
        **confluent_properties(settings),
    }


class _ConfluentWriting:
    """Common to both producers of confluent-kafka."""

    def __init__(self, settings: KafkaSinkSettings, properties: dict[str, Any]) -> None:
        import confluent_kafka

        self._settings = settings
        self._failed: list[Any] = []
        self._producer = confluent_kafka.Producer({**properties, "error_cb": lambda _: None})
        self._exception = confluent_kafka.KafkaException

    def _write(self, records: Sequence[Record]) -> None:
        topic, produce = self._settings.topic, self._producer.produce
        self._failed.clear()
        for record in records:
            named: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            while True:
                try:
                    produce(topic, record.value, record.key, on_delivery=self._delivered, **named)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except self._exception as error:
                    raise confluent_error(error, self._settings) from error
        left = self._producer.flush(60)
        if self._failed:
            raise confluent_error(self._exception(self._failed[0]), self._settings)
        if left:
            raise RetriableError(f"{left} records were not acknowledged within 60 s", plugin="kafka")

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _call(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except self._exception as error:
            inner = error.args[0]
            if inner.code() in (-144, 90, 47, 48, 67):  # fenced; invalid epoch, mapping, transaction timed out
                raise Fenced(f"producer was fenced: {inner.str()}", plugin="kafka") from error
            raise confluent_error(error, self._settings) from error


class ConfluentProducer(_ConfluentWriting, Producer):
    """A plain producer of confluent-kafka."""

    def __init__(self, settings: KafkaSinkSettings) -> None:
        super().__init__(settings, _confluent_properties(settings))

    def write(self, records: Sequence[Record]) -> None:
        self._write(records)

    def partition_count(self) -> int:
        timeout = self._settings.connect_timeout.total_seconds()
        metadata = self._call(lambda: self._producer.list_topics(self._settings.topic, timeout=timeout))
        found = metadata.topics[self._settings.topic]
        if found.error is not None:
            raise confluent_error(self._exception(found.error), self._settings)
        return len(found.partitions)

    def create_topic(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        settings = self._settings
        admin = AdminClient(confluent_properties(settings))
        wanted = NewTopic(settings.topic, settings.partitions, settings.replication_factor)
        [future] = admin.create_topics([wanted], request_timeout=settings.connect_timeout.total_seconds()).values()
        try:
            future.result()
        except self._exception as error:
            if error.args[0].code() != 36:  # it exists
                raise confluent_error(error, settings) from error

    def close(self) -> None:
        self._producer.flush(5)


class ConfluentTransactionalProducer(_ConfluentWriting, TransactionalProducer):
    """A transactional producer of confluent-kafka, with the consumer that knows its group's offset."""

    def __init__(self, settings: KafkaSinkSettings, name: str) -> None:
        import confluent_kafka

        super().__init__(settings, {**_confluent_properties(settings), "transactional.id": name})
        self._timeout = max(10.0, settings.connect_timeout.total_seconds())
        self._place = confluent_kafka.TopicPartition
        self._call(lambda: self._producer.init_transactions(self._timeout))
        self._consumer = confluent_kafka.Consumer(
            {**confluent_properties(settings), "group.id": name, "isolation.level": "read_committed"}
        )

    def write(self, records: Sequence[Record], last: Position) -> None:
        self._call(self._producer.begin_transaction)
        try:
            self._write(records)
            place = self._place(self._settings.topic, 0, last.offset, str(last.index))
            group = self._consumer.consumer_group_metadata()
            self._call(lambda: self._producer.send_offsets_to_transaction([place], group, self._timeout))
            self._call(lambda: self._producer.commit_transaction(self._timeout))
        except Fenced:
            raise
        except HeadraceError:
            self._call(lambda: self._producer.abort_transaction(self._timeout))
            raise

    def position(self) -> Position | None:
        wanted = [self._place(self._settings.topic, 0)]
        [found] = self._call(lambda: self._consumer.committed(wanted, timeout=self._timeout))
        if found.error is not None:
            raise confluent_error(self._exception(found.error), self._settings)
        return None if found.offset < 0 else Position(found.offset, int(found.metadata or 0))

    def close(self) -> None:
        self._consumer.close()


class _KafkaPythonWriting:
    """Common to both producers of kafka-python."""

    def __init__(self, settings: KafkaSinkSettings, **more: Any) -> None:
        import kafka

        self._settings = settings
        compression = None if settings.compression == "none" else settings.compression
        self._producer = self._call(
            lambda: kafka.KafkaProducer(
                acks="all",
                enable_idempotence=True,
                compression_type=compression,
                linger_ms=int(settings.linger.total_seconds() * 1000),
                **kafka_python_properties(settings),
                **more,
            )
        )

    def _write(self, records: Sequence[Record]) -> None:
        topic = self._settings.topic
        futures = []
        for record in records:
            futures.append(
                self._call(
                    lambda record=record: self._producer.send(  # type: ignore[misc]
                        topic, value=record.value, key=record.key, partition=record.partition
                    )
                )
            )
        self._call(lambda: self._producer.flush(timeout=60))
        for future in futures:
            self._call(lambda future=future: future.get(timeout=60))  # type: ignore[misc]

    def _call(self, action: Callable[[], T]) -> T:
        from kafka.errors import KafkaError, ProducerFencedError

        try:
            return action()
        except ProducerFencedError as error:
            raise Fenced(f"producer was fenced: {error}", plugin="kafka") from error
        except (KafkaError, OSError) as error:
            if type(error).__name__ == "MessageSizeTooLargeError":
                raise DataError(str(error), plugin="kafka") from error
            raise kafka_python_error(error, self._settings) from error


class KafkaPythonProducer(_KafkaPythonWriting, Producer):
    """A plain producer of kafka-python."""

    def write(self, records: Sequence[Record]) -> None:
        self._write(records)

    def partition_count(self) -> int:
        found = self._call(lambda: self._producer.partitions_for(self._settings.topic))
        if not found:
            raise NoSuchTopic(
                f"there is no topic {self._settings.topic!r} at {self._settings.servers}",
                plugin="kafka",
                option="topic",
                hint="create it, correct its name, or pass create_topic=True",
            )
        return len(found)

    def create_topic(self) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic
        from kafka.errors import TopicAlreadyExistsError

        settings = self._settings
        admin = self._call(lambda: KafkaAdminClient(**kafka_python_properties(settings)))
        try:
            wanted = NewTopic(settings.topic, settings.partitions, settings.replication_factor)
            self._call(lambda: admin.create_topics([wanted]))
        except HeadraceError as error:
            if not isinstance(error.__cause__, TopicAlreadyExistsError):
                raise
        finally:
            admin.close()

    def close(self) -> None:
        self._producer.close(timeout=5)


class KafkaPythonTransactionalProducer(_KafkaPythonWriting, TransactionalProducer):
    """A transactional producer of kafka-python."""

    def __init__(self, settings: KafkaSinkSettings, name: str) -> None:
        import kafka

        super().__init__(settings, transactional_id=name)
        self._name = name
        self._call(self._producer.init_transactions)
        self._consumer = self._call(
            lambda: kafka.KafkaConsumer(
                group_id=name,
                enable_auto_commit=False,
                isolation_level="read_committed",
                **kafka_python_properties(settings),
            )
        )

    def write(self, records: Sequence[Record], last: Position) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        self._call(self._producer.begin_transaction)
        try:
            self._write(records)
            offsets = {TopicPartition(self._settings.topic, 0): OffsetAndMetadata(last.offset, str(last.index), -1)}
            self._call(lambda: self._producer.send_offsets_to_transaction(offsets, self._name))
            self._call(self._producer.commit_transaction)
        except Fenced:
            raise
        except HeadraceError:
            self._call(self._producer.abort_transaction)
            raise

    def position(self) -> Position | None:
        from kafka.structs import TopicPartition

        found = self._call(lambda: self._consumer.committed(TopicPartition(self._settings.topic, 0), metadata=True))
        return None if found is None or found.offset < 0 else Position(found.offset, int(found.metadata or 0))

    def close(self) -> None:
        self._producer.close(timeout=5)
        self._consumer.close(autocommit=False)
