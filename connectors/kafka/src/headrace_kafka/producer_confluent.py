"""Producers of confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import confluent_kafka as ck
import msgspec
from confluent_kafka import admin as ck_admin
from headrace.flow.messages import Position
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError

from headrace_kafka.confluent_client import Troubles, confluent_error, confluent_properties, made
from headrace_kafka.errors import TOPIC_EXISTS, UNKNOWN_TOPIC, NoSuchTopic, not_writable
from headrace_kafka.producer import Fenced, Producer, Record, TopicKeeper, TransactionalProducer
from headrace_kafka.settings import KafkaSinkSettings, milliseconds

T = TypeVar("T")
#: The key, or the producer, selects the partition (RD_KAFKA_PARTITION_UA).
_NO_PARTITION = -1
_QUEUE_FULL = ck.KafkaError._QUEUE_FULL
#: Fenced; invalid producer epoch, id mapping, transaction state: another producer has the transactional id now.
_FENCED = {ck.KafkaError._FENCED, 47, 48, 49, 90}
_GRACE_SECONDS = 5.0
_ABORT_SECONDS = 1.0


def _properties(settings: KafkaSinkSettings, troubles: Troubles, **reserved: Any) -> dict[str, Any]:
    properties = confluent_properties(
        settings,
        {
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": settings.compression,
            "linger.ms": settings.linger.total_seconds() * 1000,
            "delivery.timeout.ms": milliseconds(settings.delivery_timeout),
            # Successes need no callback: flush() says when nothing is left.
            "delivery.report.only.error": True,
            "error_cb": troubles.note,
            **reserved,
        },
    )
    # The same key goes to the same partition as with Kafka's own clients and with kafka-python.
    properties.setdefault("partitioner", "murmur2_random")
    properties.setdefault("queue.buffering.max.messages", 2_000_000)
    return properties


class _Writing:
    """Common to both producers."""

    def __init__(self, settings: KafkaSinkSettings, **reserved: Any) -> None:
        self._settings = settings
        self._troubles = Troubles(settings)
        #: The errors of records that were not acknowledged, and their topics.
        self._failed: list[tuple[Any, str]] = []
        self._closed = False
        self._producer: Any = made(ck.Producer, _properties(settings, self._troubles, **reserved), settings)
        # The second request goes to the broker itself, not to the address of the first contact: what librdkafka needs
        # of it next (an id for the producer) would wait for half a second if it were not connected.
        try:
            for _ in range(2):
                self._ask(lambda seconds: self._producer.list_topics(settings.topic, timeout=seconds))
        except BaseException:
            self.close()
            raise

    def _write(self, by_topic: Mapping[str, Sequence[Record]]) -> None:
        """Send records and wait until all are acknowledged. Raises the error of the first one that was not."""
        self._failed.clear()
        deadline = time.monotonic() + self._settings.delivery_timeout.total_seconds()
        refusal: tuple[Any, str] | None = None
        for topic, records in by_topic.items():
            for partition, messages in _messages(records).items():
                refused = self._hand_over(topic, messages, partition, deadline)
                refusal = refusal if refused is None else (refused, topic)
        left = self._served(self._producer.flush, max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS)
        if self._failed:
            raise self._translated(*self._failed[0])
        if refusal is not None:  # only now: nothing of this call may be left for the next one
            raise confluent_error(refusal[0], self._about(refusal[1]))
        if left:
            raise RetriableError(self._not_acknowledged(left), plugin="kafka")
        self._troubles.clear()

    def _hand_over(self, topic: str, waiting: list[dict[str, Any]], partition: int, deadline: float) -> Any:
        """Give messages to librdkafka, waiting while it has enough. Return the first error for one that it refuses."""
        refusal: Any = None
        while waiting:
            self._producer.produce_batch(topic, waiting, partition=partition, on_delivery=self._undelivered)
            refused = [(message, message.pop("_error")) for message in waiting if "_error" in message]
            refusal = refusal or next((error for _, error in refused if error.code() != _QUEUE_FULL), None)
            waiting = [message for message, error in refused if error.code() == _QUEUE_FULL]
            if waiting:
                if time.monotonic() > deadline:
                    raise RetriableError(self._not_acknowledged(len(waiting)), plugin="kafka")
                self._served(self._producer.poll, 0.1)
        return refusal

    def _served(self, method: Callable[[float], int], seconds: float) -> int:
        """Let librdkafka call our callbacks. Raises errors that it reports as fatal."""
        try:
            return method(seconds)
        except ck.KafkaException as error:
            raise self._translated(error.args[0]) from error
        except SystemError as error:
            # The library calls further callbacks while the exception of a fatal error is already being raised.
            raise self._broken(error) from error

    def _broken(self, error: SystemError) -> HeadraceError:
        """Return the fatal error behind a failed call of the library that does not name it."""
        if isinstance(error.__cause__, ck.KafkaException):
            return self._translated(error.__cause__.args[0])
        return RetriableError(f"the producer failed and cannot be used any more: {error}", plugin="kafka")

    def _undelivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append((error, message.topic()))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._producer.purge()
            with contextlib.suppress(
                ck.KafkaException, SystemError
            ):  # which records were purged, and why, is not needed
                self._producer.flush(0)

    def _about(self, topic: str) -> KafkaSinkSettings:
        """Return the settings as an error about a topic shows them."""
        return msgspec.structs.replace(self._settings, topic=topic)

    def _translated(self, error: Any, topic: str | None = None) -> HeadraceError:
        settings = self._settings if topic is None else self._about(topic)
        if error.code() in (ck.KafkaError._MSG_TIMED_OUT, ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT):
            return self._troubles.error()
        if error.code() in (UNKNOWN_TOPIC, ck.KafkaError._UNKNOWN_TOPIC):
            # It existed when the job began: brokers that are starting do not know their topics for a while.
            return RetriableError(f"topic {settings.topic!r} does not exist any more", plugin="kafka", option="topic")
        return confluent_error(error, settings)

    def _not_acknowledged(self, count: int) -> str:
        seconds = self._settings.delivery_timeout.total_seconds()
        return f"Kafka at {self._settings.servers} did not acknowledge {count} records within {seconds:g} s"

    def _ask(self, request: Callable[[float], T]) -> T:
        return self._troubles.asked(request, lambda: self._producer.poll(0))


def _messages(records: Sequence[Record]) -> Mapping[int, list[dict[str, Any]]]:
    """Return what is to be written, by partition: ``produce_batch`` takes no partition per message."""
    found: dict[int, list[dict[str, Any]]] = {}
    for value, key, partition in records:
        message = {"value": value} if key is None else {"value": value, "key": key}
        found.setdefault(_NO_PARTITION if partition is None else partition, []).append(message)
    return found


class ConfluentProducer(_Writing, Producer):
    """A plain producer of confluent-kafka."""

    @property
    def topic(self) -> str:
        return self._settings.topic

    def write_to(self, records: Mapping[str, Sequence[Record]]) -> None:
        self._write(records)


class ConfluentTransactionalProducer(_Writing, TransactionalProducer):
    """A transactional producer of confluent-kafka."""

    def __init__(self, settings: KafkaSinkSettings, name: str) -> None:
        timeout_ms = milliseconds(settings.delivery_timeout) + 30_000
        super().__init__(settings, **{"transactional.id": name, "transaction.timeout.ms": timeout_ms})
        self._place = (settings.topic, 0)
        self._timeout = settings.connect_timeout.total_seconds()
        try:
            self._ask(self._producer.init_transactions)
            self._group, self.position = self._group_and_position(name)
        except BaseException:
            self.close()
            raise

    def write(self, records: Sequence[Record], last: Position) -> None:
        try:
            self._producer.begin_transaction()
            try:
                self._write({self._settings.topic: records})
            except (DataError, JobError):
                self._producer.abort_transaction(self._timeout)
                raise
            place = ck.TopicPartition(*self._place, last.offset, str(last.index))
            self._producer.send_offsets_to_transaction([place], self._group, self._timeout)
            self._producer.commit_transaction(self._timeout)
        except ck.KafkaException as error:
            raise self._translated(error.args[0]) from error
        self.position = last

    def _broken(self, error: SystemError) -> HeadraceError:
        if not isinstance(error.__cause__, ck.KafkaException):
            try:
                self._producer.abort_transaction(_ABORT_SECONDS)  # raises the fatal error, if there is one
            except ck.KafkaException as fatal:
                return self._translated(fatal.args[0])
        return super()._broken(error)

    def _translated(self, error: Any, topic: str | None = None) -> HeadraceError:
        if error.code() in _FENCED:
            return Fenced("another producer has taken over its transactions", plugin="kafka")
        found = super()._translated(error, topic)
        if isinstance(found, DataError | RetriableError) or error.code() in (29, 30, 53):
            return found
        # Other errors are fatal only for this producer; its successor may succeed.
        return RetriableError(found.message, plugin="kafka")

    def _group_and_position(self, name: str) -> tuple[Any, Position | None]:
        """Return the group's metadata, which librdkafka gives to consumers only, and what it has committed."""
        properties = {"group.id": name, "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer: Any = made(
            ck.Consumer,
            confluent_properties(self._settings, {**properties, "error_cb": self._troubles.note}),
            self._settings,
        )
        try:
            wanted = [ck.TopicPartition(*self._place)]
            [found] = self._ask(lambda seconds: consumer.committed(wanted, timeout=seconds))
            if found.error is not None:
                raise confluent_error(found.error, self._settings)
            position = None if found.offset < 0 else Position(found.offset, int(found.metadata or 0))
            return consumer.consumer_group_metadata(), position
        finally:
            consumer.close()


class ConfluentTopicKeeper(TopicKeeper):
    """Creates and checks the topic with confluent-kafka's admin client."""

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings
        self._troubles = Troubles(settings)
        properties = confluent_properties(settings, {"error_cb": self._troubles.note})
        self._admin: Any = made(ck_admin.AdminClient, properties, settings)
        self._names = list(self._ask(lambda seconds: self._admin.list_topics(timeout=seconds)).topics)

    def partition_count(self) -> int:
        described = self._described()
        allowed = {operation.name for operation in described.authorized_operations or ()}
        if allowed and not allowed & {"WRITE", "ALL"}:
            raise not_writable(self._settings)
        return len(described.partitions)

    def all_led(self) -> bool:
        return all(partition.leader is not None for partition in self._described().partitions)

    def _described(self) -> Any:
        topic = self._settings.topic
        [future] = self._admin.describe_topics(
            ck.TopicCollection([topic]),
            include_authorized_operations=True,
            request_timeout=self._settings.connect_timeout.total_seconds(),
        ).values()
        try:
            return future.result()
        except ck.KafkaException as error:
            if error.args[0].code() == UNKNOWN_TOPIC:
                raise NoSuchTopic(f"there is no topic {topic!r} at {self._settings.servers}", plugin="kafka") from error
            raise confluent_error(error.args[0], self._settings) from error

    def topic_names(self) -> Sequence[str]:
        return self._names

    def create_topic(self, configs: Mapping[str, str] | None = None) -> None:
        settings = self._settings
        wanted = ck_admin.NewTopic(  # type: ignore[attr-defined]
            settings.topic, settings.partitions, settings.replication_factor, config=dict(configs or {})
        )
        seconds = settings.connect_timeout.total_seconds()
        [future] = self._admin.create_topics([wanted], operation_timeout=seconds, request_timeout=seconds).values()
        try:
            future.result()
        except ck.KafkaException as error:
            if error.args[0].code() != TOPIC_EXISTS:
                found = confluent_error(error.args[0], settings)
                found.option = found.option or "create_topic"
                raise found from error

    def forget(self, topic: str, partition: int, before: int) -> None:
        seconds = self._settings.connect_timeout.total_seconds()
        place = ck.TopicPartition(topic, partition, before)
        [future] = self._admin.delete_records([place], operation_timeout=seconds, request_timeout=seconds).values()
        try:
            future.result()
        except ck.KafkaException as error:
            raise confluent_error(error.args[0], msgspec.structs.replace(self._settings, topic=topic)) from error

    def close(self) -> None:
        """Nothing to do: the client ends with its last reference."""

    def _ask(self, request: Callable[[float], T]) -> T:
        return self._troubles.asked(request, lambda: self._admin.poll(0))
