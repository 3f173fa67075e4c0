"""What happens to Kafka from outside in tests: topics, records, readers. By confluent-kafka alone, not by the connector."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from tests.eventually import eventually

T = TypeVar("T")
# The package does not export these names for type checkers.
ck_admin: Any = admin
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Seen:
    """A record as a reader outside sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class KafkaWorld:
    """One cluster, as others see it."""

    def __init__(self, servers: str, **properties: Any) -> None:
        self.servers = servers
        self._properties = {"bootstrap.servers": servers, "log_level": 0, **properties}
        self._admin: Any = ck_admin.AdminClient(self._properties)
        self._producer: Any = None

    def close(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            self._producer.close()
        self._admin = self._producer = None

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it can be used."""
        wanted = ck_admin.NewTopic(topic, partitions, 1, config=config)
        [future] = self._admin.create_topics([wanted]).values()
        future.result()
        eventually(lambda: len(self.partitions(topic)) == partitions, f"{topic} has {partitions} partitions")

    def add_partitions(self, topic: str, count: int) -> None:
        """Raise a topic's number of partitions to ``count``."""
        [future] = self._admin.create_partitions([ck_admin.NewPartitions(topic, count)]).values()
        future.result()
        eventually(lambda: len(self.partitions(topic)) == count, f"{topic} has {count} partitions")
        if self._producer is not None:
            self._producer.close()  # it would know the new partitions in some minutes only
            self._producer = None

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        [future] = self._admin.delete_topics([topic]).values()
        future.result()
        eventually(lambda: topic not in self._admin.list_topics(timeout=10).topics, f"{topic} is gone")

    def config(self, topic: str) -> dict[str, str]:
        """Return the properties of a topic."""
        resource = ck_admin.ConfigResource(ck_admin.ResourceType.TOPIC, topic)
        [future] = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in future.result().items()}

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a leader; none when there is no such topic."""
        found = self._admin.list_topics(timeout=10).topics.get(topic)
        if found is None:
            return []
        return sorted(number for number, one in found.partitions.items() if one.leader >= 0)

    def write(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Append records; on return they can be read."""
        if self._producer is None:
            self._producer = ck.Producer(
                {
                    **self._properties,
                    "linger.ms": 1,
                    "queue.buffering.max.messages": 2_000_000,
                    "enable.idempotence": True,  # a server that goes away must not make it write twice
                }
            )
        failed: list[Any] = []
        for number, value in enumerate(values):
            key = None if keys is None else keys[number]
            self._producer.produce(
                topic, value, key, partition, headers=list(headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert self._producer.flush(180) == 0
        assert not failed, failed

    def write_transaction(
        self, topic: str, values: Iterable[bytes], *, partition: int = 0, commit: bool = True
    ) -> None:
        """Append records in a transaction of their own, which is committed or aborted."""
        producer = self.begin_transaction(topic, values, partition=partition)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        producer.close()

    def begin_transaction(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> Any:
        """Append records in a transaction, and return its producer."""
        producer: Any = ck.Producer({**self._properties, "transactional.id": f"world-{time.monotonic_ns()}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(30)
        return producer

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset."""
        [future] = self._admin.delete_records([ck.TopicPartition(topic, partition, before)]).values()
        future.result()

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets that a group has committed, by partition."""
        [future] = self._admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)]).values()
        return {one.partition: one.offset for one in future.result().topic_partitions if one.topic == topic}

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the offset behind the last record of each partition, markers included."""
        wanted = {ck.TopicPartition(topic, one): ck_admin.OffsetSpec.latest() for one in self.partitions(topic)}
        return {one.partition: future.result().offset for one, future in self._admin.list_offsets(wanted).items()}

    def read(self, topic: str, *, committed: bool = True) -> list[Seen]:
        """Return all records of a topic, in the order of (partition, offset): all that are there when it is called, and perhaps more.

        The client says that a partition has ended when a request at its end gets no record until its time is over, which is also the
        time that the broker has for the marker of a commit. While others write all the time, none does: there it is enough to have what
        was there at the beginning.
        """
        ends = self.ends(topic)
        consumer: Any = ck.Consumer(
            {
                **self._properties,
                "group.id": "world",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            left = {partition for partition, end in ends.items() if end > 0}
            consumer.assign([ck.TopicPartition(topic, one, 0) for one in left])
            found = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while left:
                assert time.monotonic() < deadline, f"partitions {left} of {topic} have no end"
                for message in consumer.consume(10_000, 0.2):
                    error = message.error()
                    if error is not None:
                        assert error.code() == ck.KafkaError._PARTITION_EOF, error
                        left.discard(message.partition())
                    else:
                        if message.offset() >= ends[message.partition()] - 1:
                            left.discard(message.partition())
                        found.append(
                            Seen(
                                message.partition(), message.offset(), message.key(), message.value(),
                                tuple(message.headers() or ()),
                            )
                        )  # fmt: skip
            return sorted(found, key=lambda one: (one.partition, one.offset))
        finally:
            consumer.close()
