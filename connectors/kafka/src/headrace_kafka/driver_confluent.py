"""The consumer of confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck
from headrace.errors import HeadraceError, did_you_mean

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import NoSuchTopic, confluent_error
from headrace_kafka.settings import KafkaSourceSettings, confluent_properties


class ConfluentConsumer(ConsumerDriver):
    """One librdkafka consumer. Rebalances are cooperative: partitions that stay are read on."""

    def __init__(self, settings: KafkaSourceSettings, *, with_headers: bool) -> None:
        self._settings = settings
        self._with_headers = with_headers
        self._timeout = settings.connect_timeout.total_seconds()
        self._errors: list[HeadraceError] = []
        self._closed = False
        properties = {
            "group.id": settings.group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": settings.isolation,
            "session.timeout.ms": int(settings.session_timeout.total_seconds() * 1000),
            "partition.assignment.strategy": "cooperative-sticky",
            "queued.max.messages.kbytes": 65536,
            "fetch.wait.max.ms": 100,
            **confluent_properties(settings),
            "error_cb": self._note,
        }
        self._consumer = ck.Consumer(properties)

    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        try:
            messages = self._consumer.consume(max_records, timeout_seconds)
        except ck.KafkaException as error:
            raise confluent_error(error, self._settings) from error
        if not messages:
            if self._errors:
                raise self._errors.pop()
            return []
        self._errors.clear()
        return self._sorted(messages)

    def assign(self, partition: Partition, offset: int) -> None:
        self._call(self._consumer.incremental_assign, [ck.TopicPartition(*partition, offset)])

    def unassign(self, partition: Partition) -> None:
        self._call(self._consumer.incremental_unassign, [ck.TopicPartition(*partition)])

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        def assigned(consumer: Any, found: list[Any]) -> None:
            given = [Partition(one.topic, one.partition) for one in found]
            offsets = callbacks.assigned(given)
            consumer.incremental_assign([ck.TopicPartition(*one, offsets[one]) for one in given if one in offsets])

        def revoked(consumer: Any, found: list[Any]) -> None:
            callbacks.revoked([Partition(one.topic, one.partition) for one in found])
            consumer.incremental_unassign(found)

        def lost(consumer: Any, found: list[Any]) -> None:
            callbacks.lost([Partition(one.topic, one.partition) for one in found])
            consumer.incremental_unassign(found)

        self._call(self._consumer.subscribe, list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def pause(self, partition: Partition) -> None:
        self._call(self._consumer.pause, [ck.TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        self._call(self._consumer.resume, [ck.TopicPartition(*partition)])

    def seek(self, partition: Partition, offset: int) -> None:
        self._call(self._consumer.seek, ck.TopicPartition(*partition, offset))

    def partitions(self, topic: str) -> list[Partition]:
        metadata = self._call(self._consumer.list_topics, topic, timeout=self._timeout).topics[topic]
        if metadata.error is not None:
            raise self._no_such(topic, metadata.error)
        return [Partition(topic, number) for number in sorted(metadata.partitions)]

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = self._call(
            self._consumer.get_watermark_offsets, ck.TopicPartition(*partition), timeout=self._timeout, cached=False
        )
        return low, high

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        wanted = [ck.TopicPartition(*partition, milliseconds)]
        [found] = self._call(self._consumer.offsets_for_times, wanted, timeout=self._timeout)
        return found.offset if found.offset >= 0 else None

    def committed(self, partition: Partition) -> int | None:
        [found] = self._call(self._consumer.committed, [ck.TopicPartition(*partition)], timeout=self._timeout)
        if found.error is not None:
            raise confluent_error(ck.KafkaException(found.error), self._settings)
        return found.offset if found.offset >= 0 else None

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        for answered in self._call(self._consumer.commit, offsets=wanted, asynchronous=False):
            if answered.error is not None:
                raise confluent_error(ck.KafkaException(answered.error), self._settings)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _sorted(self, messages: list[Any]) -> list[Fetched]:
        """Sort messages by partition; librdkafka gives them in runs."""
        by_partition: dict[tuple[str, int], list[Any]] = {}
        ends: dict[Partition, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                by_partition.setdefault((message.topic(), message.partition()), []).append(message)
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                ends[Partition(message.topic(), message.partition())] = message.offset()
            else:
                raise confluent_error(ck.KafkaException(error), self._settings, message)
        found = []
        for key, own in by_partition.items():
            partition = Partition(*key)
            headers = [dict(one.headers() or ()) for one in own] if self._with_headers else None
            found.append(
                Fetched(
                    partition,
                    [one.offset() for one in own],
                    [one.value() or b"" for one in own],
                    [one.timestamp()[1] for one in own],
                    [one.key() for one in own],
                    headers,
                    ends.pop(partition, None),
                )
            )
        return found + [Fetched(partition, next_offset=end) for partition, end in ends.items()]

    def _call(self, method: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except ck.KafkaException as error:
            raise confluent_error(error, self._settings) from error

    def _no_such(self, topic: str, error: Any) -> HeadraceError:
        if error.code() != ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return confluent_error(ck.KafkaException(error), self._settings)
        names = [
            name for name in self._call(self._consumer.list_topics, timeout=self._timeout).topics if name[:2] != "__"
        ]
        return NoSuchTopic(
            f"there is no topic {topic!r} at {self._settings.servers}",
            plugin="kafka",
            option="topic",
            hint=did_you_mean(topic, names, known="topics"),
        )

    def _note(self, error: Any) -> None:
        """Keep what librdkafka tells beside the calls; it counts only if nothing comes for it."""
        if error.code() != ck.KafkaError._PARTITION_EOF:
            self._errors[:] = [confluent_error(ck.KafkaException(error), self._settings)]
