"""The consumer of kafka-python: pure Python, works everywhere, and takes some forty times the CPU per record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import kafka
from headrace.errors import did_you_mean
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import NoSuchTopic, kafka_python_error
from headrace_kafka.settings import KafkaSourceSettings, kafka_python_properties

T = TypeVar("T")


class KafkaPythonConsumer(ConsumerDriver):
    """One consumer of kafka-python. Rebalances stop the world: all partitions are revoked and assigned anew."""

    def __init__(self, settings: KafkaSourceSettings, *, with_headers: bool) -> None:
        self._settings = settings
        self._with_headers = with_headers
        self._closed = False
        self._consumer = self._call(
            lambda: kafka.KafkaConsumer(
                group_id=settings.group_id,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level=settings.isolation,
                session_timeout_ms=int(settings.session_timeout.total_seconds() * 1000),
                heartbeat_interval_ms=max(100, int(settings.session_timeout.total_seconds() * 300)),
                fetch_max_wait_ms=100,
                **kafka_python_properties(settings),
            )
        )

    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        if not self._consumer.assignment() and not self._consumer.subscription():
            return []
        polled = self._call(
            lambda: self._consumer.poll(timeout_ms=int(timeout_seconds * 1000), max_records=max_records)
        )
        found = [self._fetched(Partition(*partition), records) for partition, records in polled.items()]
        got = {one.partition for one in found}
        for partition in self._consumer.assignment():
            # Markers of transactions give no record, but move the position.
            if Partition(*partition) not in got and partition not in self._consumer.paused():
                position = self._call(lambda partition=partition: self._consumer.position(partition, timeout_ms=0))
                found.append(Fetched(Partition(*partition), next_offset=position))
        return found

    def assign(self, partition: Partition, offset: int) -> None:
        self._consumer.assign([*self._consumer.assignment(), TopicPartition(*partition)])
        self.seek(partition, offset)

    def unassign(self, partition: Partition) -> None:
        self._consumer.assign([one for one in self._consumer.assignment() if one != TopicPartition(*partition)])

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        consumer = self._consumer

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                given = [Partition(*one) for one in assigned]
                for partition, offset in callbacks.assigned(given).items():
                    consumer.seek(TopicPartition(*partition), offset)

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                callbacks.revoked([Partition(*one) for one in revoked])

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                callbacks.lost([Partition(*one) for one in lost])

        self._call(lambda: consumer.subscribe(list(topics), listener=Listener()))

    def pause(self, partition: Partition) -> None:
        self._consumer.pause(TopicPartition(*partition))

    def resume(self, partition: Partition) -> None:
        self._consumer.resume(TopicPartition(*partition))

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def partitions(self, topic: str) -> list[Partition]:
        numbers = self._call(lambda: self._consumer.partitions_for_topic(topic))
        if not numbers:
            names = [name for name in self._call(self._consumer.topics) if not name.startswith("__")]
            raise NoSuchTopic(
                f"there is no topic {topic!r} at {self._settings.servers}",
                plugin="kafka",
                option="topic",
                hint=did_you_mean(topic, names, known="topics"),
            )
        return [Partition(topic, number) for number in sorted(numbers)]

    def bounds(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        low = self._call(lambda: self._consumer.beginning_offsets([one]))[one]
        high = self._call(lambda: self._consumer.end_offsets([one]))[one]
        return low, high

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        one = TopicPartition(*partition)
        found = self._call(lambda: self._consumer.offsets_for_times({one: milliseconds}))[one]
        return None if found is None else int(found.offset)

    def committed(self, partition: Partition) -> int | None:
        found = self._call(lambda: self._consumer.committed(TopicPartition(*partition)))
        return None if found is None else int(getattr(found, "offset", found))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = {
            TopicPartition(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()
        }
        self._call(lambda: self._consumer.commit(wanted))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close(autocommit=False)

    def _fetched(self, partition: Partition, records: list[Any]) -> Fetched:
        headers = [dict(one.headers or ()) for one in records] if self._with_headers else None
        return Fetched(
            partition,
            [one.offset for one in records],
            [one.value or b"" for one in records],
            [one.timestamp for one in records],
            [one.key for one in records],
            headers,
        )

    def _call(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (KafkaError, OSError) as error:
            raise kafka_python_error(error, self._settings) from error
