"""Producers of kafka-python."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import kafka
import msgspec
from headrace.flow.messages import Position
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    KafkaError,
    ProducerFencedError,
    TopicAlreadyExistsError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from headrace_kafka.errors import UNKNOWN_TOPIC, NoSuchTopic, not_writable, of_code, unreachable
from headrace_kafka.kafka_python_client import kafka_python_error, kafka_python_properties, made
from headrace_kafka.own_thread import OwnThread
from headrace_kafka.producer import Fenced, Producer, Record, TopicKeeper, TransactionalProducer
from headrace_kafka.settings import KafkaSinkSettings, milliseconds

T = TypeVar("T")
logger = logging.getLogger(__name__)
_FENCED = (ProducerFencedError, InvalidProducerEpochError, InvalidProducerIdMappingError)
_GRACE_SECONDS = 5.0
_CLOSE_SECONDS = 5.0


class _Writing:
    """Common to both producers."""

    def __init__(self, settings: KafkaSinkSettings, **reserved: Any) -> None:
        self._settings = settings
        self._closed = self._failed = False
        self._own_thread = OwnThread("headrace kafka-python producer")
        self._seconds = settings.delivery_timeout.total_seconds()
        compression = None if settings.compression == "none" else settings.compression
        properties = kafka_python_properties(
            settings,
            {
                "acks": "all",
                "enable_idempotence": True,
                "linger_ms": milliseconds(settings.linger),
                "delivery_timeout_ms": milliseconds(settings.delivery_timeout),
                **reserved,
            },
        )
        properties.setdefault("compression_type", compression)
        properties.setdefault("max_block_ms", milliseconds(settings.connect_timeout))
        properties.setdefault(
            "request_timeout_ms",
            max(1, min(30_000, milliseconds(settings.delivery_timeout) - milliseconds(settings.linger))),
        )
        properties.setdefault("batch_size", 256 * 1024)
        self._producer: Any = made(kafka.KafkaProducer, properties, settings)

    def _write(self, by_topic: Mapping[str, Sequence[Record]]) -> None:
        """Send records and wait until all are acknowledged. Raises the error of the first one that was not."""
        send = self._producer.send

        def write() -> None:
            futures = [
                send(topic, value=record.value, key=record.key, partition=record.partition)
                for topic, records in by_topic.items()
                for record in records
            ]
            deadline = time.monotonic() + self._seconds + _GRACE_SECONDS
            for future in futures:  # flush() fails when a batch was split because it is too large
                future.get(timeout=max(0.0, deadline - time.monotonic()))

        topics = ", ".join(by_topic)
        self._called(write, about=msgspec.structs.replace(self._settings, topic=topics or self._settings.topic))

    def _called(
        self, action: Callable[[], T], seconds: float | None = None, *, about: KafkaSinkSettings | None = None
    ) -> T:
        """Make a call, some of which would wait for ever while no broker answers. Raises RetriableError then."""
        try:
            return self._own_thread.call(action, (seconds or self._seconds) + 2 * _GRACE_SECONDS)
        except TimeoutError as error:
            raise unreachable(self._settings, str(error)) from error
        except (KafkaError, ConnectionError, ValueError) as error:
            raise self._translated(error, about or self._settings) from error

    def _translated(self, error: BaseException, settings: KafkaSinkSettings) -> HeadraceError:
        if getattr(error, "errno", None) == UNKNOWN_TOPIC:
            # It existed when the job began: brokers that are starting do not know their topics for a while.
            return RetriableError(f"topic {settings.topic!r} does not exist any more", plugin="kafka", option="topic")
        if isinstance(error, ValueError):
            # The sink has seen that there is such a partition: this producer does not know it yet.
            return RetriableError(str(error), plugin="kafka", option="partition")
        return kafka_python_error(error, settings)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._called(self._close_producer, _CLOSE_SECONDS)
        except HeadraceError as error:
            logger.debug("while closing a producer: %s", error.message)  # everything that counts was acknowledged
        self._own_thread.end()

    def _close_producer(self) -> None:
        if self._failed:
            # It has undelivered records, and would try to deliver them for ever, in its own thread.
            self._producer._sender.force_close()
            self._producer._sender.join(_CLOSE_SECONDS)
        self._producer.close(timeout=_CLOSE_SECONDS)


class KafkaPythonProducer(_Writing, Producer):
    """A plain producer of kafka-python."""

    @property
    def topic(self) -> str:
        return self._settings.topic

    def write_to(self, records: Mapping[str, Sequence[Record]]) -> None:
        self._failed = True
        self._write(records)
        self._failed = False

    def close(self) -> None:
        self._close()


class KafkaPythonTransactionalProducer(_Writing, TransactionalProducer):
    """A transactional producer of kafka-python."""

    def __init__(self, settings: KafkaSinkSettings, name: str) -> None:
        timeout_ms = milliseconds(settings.delivery_timeout) + 30_000
        super().__init__(settings, transactional_id=name, transaction_timeout_ms=timeout_ms)
        self._name = name
        self._place = TopicPartition(settings.topic, 0)
        self._failed = True
        try:
            self._called(self._producer.init_transactions)
            self.position = self._committed()
            self._failed = False
        except BaseException:
            self.close()
            raise

    def write(self, records: Sequence[Record], last: Position) -> None:
        self._failed = True
        self._called(self._producer.begin_transaction)
        try:
            self._write({self._settings.topic: records})
        except (DataError, JobError):
            self._called(self._producer.abort_transaction)
            self._failed = False
            raise
        offsets = {self._place: OffsetAndMetadata(last.offset, str(last.index), -1)}

        def commit() -> None:
            self._producer.send_offsets_to_transaction(offsets, self._name)
            self._producer.commit_transaction()

        self._called(commit)
        self._failed = False
        self.position = last

    def close(self) -> None:
        self._close()

    def _translated(self, error: BaseException, settings: KafkaSinkSettings) -> HeadraceError:
        if isinstance(error, _FENCED):
            return Fenced("another producer has taken over its transactions", plugin="kafka")
        found = super()._translated(error, settings)
        if isinstance(found, DataError | RetriableError) or getattr(error, "errno", None) in (29, 30, 53):
            return found
        # Other errors are fatal only for this producer; its successor may succeed.
        return RetriableError(found.message, plugin="kafka")

    def _committed(self) -> Position | None:
        """Return what the group of the producer's name has committed."""
        properties = kafka_python_properties(
            self._settings,
            {"group_id": self._name, "enable_auto_commit": False, "isolation_level": "read_committed"},
        )
        consumer: Any = made(kafka.KafkaConsumer, properties, self._settings)
        timeout_ms = milliseconds(self._settings.connect_timeout)
        try:
            found = self._called(lambda: consumer.committed(self._place, metadata=True, timeout_ms=timeout_ms))
        finally:
            consumer.close(autocommit=False, timeout_ms=timeout_ms)
        return None if found is None or found.offset < 0 else Position(found.offset, int(found.metadata or 0))


class KafkaPythonTopicKeeper(TopicKeeper):
    """Creates and checks the topic with kafka-python's admin client."""

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings
        self._own_thread = OwnThread("headrace kafka-python admin")
        self._admin: Any = made(KafkaAdminClient, kafka_python_properties(settings, {}), settings)

    def partition_count(self) -> int:
        found = self._described()
        if not {"WRITE", "ALL"} & set(found.get("authorized_operations") or ("ALL",)):
            raise not_writable(self._settings)
        return len(found["partitions"])

    def all_led(self) -> bool:
        return all(partition["leader_id"] >= 0 for partition in self._described()["partitions"])

    def _described(self) -> Any:
        topic = self._settings.topic
        [found] = self._called(lambda: self._admin.describe_topics([topic]))
        code = found["error_code"]
        if code == UNKNOWN_TOPIC:
            raise NoSuchTopic(f"there is no topic {topic!r} at {self._settings.servers}", plugin="kafka")
        if code:
            raise of_code(code, kafka.errors.for_code(code).description, self._settings)
        return found

    def topic_names(self) -> Sequence[str]:
        return self._called(lambda: self._admin.list_topics())

    def create_topic(self, configs: Mapping[str, str] | None = None) -> None:
        settings = self._settings
        wanted = {
            settings.topic: {
                "num_partitions": settings.partitions,
                "replication_factor": settings.replication_factor,
                "configs": dict(configs or {}),
            }
        }
        try:
            self._called(lambda: self._admin.create_topics(wanted, wait_for_metadata=True))
        except HeadraceError as error:
            if not isinstance(error.__cause__, TopicAlreadyExistsError):
                error.option = error.option or "create_topic"
                raise

    def forget(self, topic: str, partition: int, before: int) -> None:
        self._called(lambda: self._admin.delete_records({TopicPartition(topic, partition): before}))

    def close(self) -> None:
        self._admin.close()
        self._own_thread.end()

    def _called(self, action: Callable[[], T]) -> T:
        try:
            return self._own_thread.call(action, self._settings.connect_timeout.total_seconds())
        except TimeoutError as error:
            raise unreachable(self._settings, str(error)) from error
        except (KafkaError, ConnectionError) as error:
            raise kafka_python_error(error, self._settings) from error
