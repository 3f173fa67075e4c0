"""The consumer of confluent-kafka (librdkafka)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import itemgetter, ne
from typing import Any, TypeVar

import confluent_kafka as ck
import confluent_kafka.admin as ck_admin
import numpy as np
from headrace.foundation.errors import HeadraceError, RetriableError, did_you_mean
from numpy.typing import NDArray

from headrace_kafka.confluent_client import Troubles, confluent_error, confluent_properties, made
from headrace_kafka.confluent_liveness import Liveness
from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import UNKNOWN_TOPIC, NoSuchTopic, of_code, public_topics
from headrace_kafka.settings import KafkaSourceSettings, milliseconds

logger = logging.getLogger(__name__)
T = TypeVar("T")
_SECOND = itemgetter(1)
# Called through map(): at a million records a second even the lookup of a method counts.
_error, _partition, _topic = ck.Message.error, ck.Message.partition, ck.Message.topic
_offset, _value, _key, _timestamp = ck.Message.offset, ck.Message.value, ck.Message.key, ck.Message.timestamp


class ConfluentConsumer(ConsumerDriver):
    """One librdkafka consumer. Rebalances are cooperative: partitions that stay are read without a pause."""

    def __init__(self, settings: KafkaSourceSettings, *, with_times: bool, with_keys: bool, with_headers: bool) -> None:
        self._settings = settings
        self._with_times = with_times
        self._with_keys = with_keys
        self._with_headers = with_headers
        self._troubles = Troubles(settings)
        self._only_topic = settings.topics[0] if len(settings.topics) == 1 else None
        self._arrived: list[Any] = []
        self._failure: HeadraceError | None = None
        self._in_group = False
        self._in_callback = False
        self._admin: Any = None
        self._closed = False
        self._given_up = False
        self._liveness = Liveness(
            settings, self._troubles, lambda seconds: self._consumer.list_topics(settings.topics[0], timeout=seconds)
        )
        properties = confluent_properties(
            settings,
            {
                "group.id": settings.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # An offset that does not exist any more is an error, never a silent jump.
                "auto.offset.reset": "error",
                # Markers of transactions are not records: only the end of a partition shows that they were read.
                "enable.partition.eof": True,
                "isolation.level": settings.isolation,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": milliseconds(settings.session_timeout),
                "heartbeat.interval.ms": milliseconds(settings.heartbeat_interval),
                "group.instance.id": settings.instance_id,
                "topic.metadata.refresh.interval.ms": milliseconds(settings.metadata_interval),
                "error_cb": self._troubles.note,
            },
        )
        properties.setdefault("fetch.wait.max.ms", 100)
        properties.setdefault("queued.max.messages.kbytes", 65536)
        # With the default of one second, a partition pauses that long whenever librdkafka has enough records.
        properties.setdefault("fetch.queue.backoff.ms", 10)
        self._consumer: Any = made(ck.Consumer, properties, settings)
        try:
            self._ask(lambda seconds: self._consumer.list_topics(settings.topics[0], timeout=seconds))
        except BaseException:
            self.close()
            raise

    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        try:
            self._arrived += self._consumer.consume(max_records, 0)
            if not self._arrived and timeout_seconds > 0:
                # consume() would wait for as many records as it may give; poll() returns with the first.
                first = self._consumer.poll(timeout_seconds)
                if first is not None:
                    self._arrived.append(first)
                    self._arrived += self._consumer.consume(max_records, 0)
        except ck.KafkaException as error:
            raise confluent_error(error.args[0], self._settings) from error
        messages, self._arrived = self._arrived, []
        if messages:
            return self._sorted(messages)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._liveness.check()
        return ()

    def assign(self, partition: Partition, offset: int) -> None:
        self._call(self._consumer.incremental_assign, [ck.TopicPartition(*partition, offset)])

    def unassign(self, partition: Partition) -> None:
        self._call(self._consumer.incremental_unassign, [ck.TopicPartition(*partition)])

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        def assigned(consumer: Any, found: list[Any]) -> None:
            if self._given_up:
                return
            given = _partitions(found)
            with self._called_back():
                offsets = callbacks.assigned(given)
            consumer.incremental_assign([ck.TopicPartition(*one, offsets.get(one, ck.OFFSET_END)) for one in given])
            late = [ck.TopicPartition(*one) for one in given if one not in offsets]
            if late:
                consumer.pause(late)

        def revoked(consumer: Any, found: list[Any]) -> None:
            if self._given_up:
                return
            with self._called_back():
                callbacks.revoked(_partitions(found))
            self._drop_arrived(found)
            consumer.incremental_unassign(found)

        def lost(consumer: Any, found: list[Any]) -> None:
            if self._given_up:
                return
            with self._called_back():
                callbacks.lost(_partitions(found))
            self._drop_arrived(found)
            consumer.incremental_unassign(found)

        self._in_group = True
        self._call(self._consumer.subscribe, list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def begin_late(self, partition: Partition, offset: int) -> None:
        self.seek(partition, offset)
        self.resume(partition)

    def pause(self, partition: Partition) -> None:
        self._call(self._consumer.pause, [ck.TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        self._call(self._consumer.resume, [ck.TopicPartition(*partition)])

    def seek(self, partition: Partition, offset: int) -> None:
        if self._in_group:
            self._call(self._consumer.seek, ck.TopicPartition(*partition, offset))
        else:
            self.unassign(partition)
            self.assign(partition, offset)

    def partitions(self, topic: str) -> list[Partition]:
        lister = self._lister()
        found = self._ask(lambda seconds: lister.list_topics(topic, timeout=seconds)).topics[topic]
        if found.error is None:
            return [Partition(topic, number) for number in sorted(found.partitions)]
        if found.error.code() != UNKNOWN_TOPIC:
            raise confluent_error(found.error, self._settings)
        everything = self._ask(lambda seconds: lister.list_topics(timeout=seconds)).topics
        raise NoSuchTopic(
            f"there is no topic {topic!r} at {self._settings.servers}",
            plugin="kafka",
            option="topic",
            hint=did_you_mean(topic, public_topics(everything), known="topics"),
        )

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = self._ask(
            lambda seconds: _answered(
                self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), timeout=seconds, cached=False)
            )
        )
        return low, high

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        wanted = [ck.TopicPartition(*partition, milliseconds)]
        [found] = self._ask(lambda seconds: self._consumer.offsets_for_times(wanted, timeout=seconds))
        self._check(found)
        return found.offset if found.offset >= 0 else None

    def committed(self, partition: Partition) -> int | None:
        wanted = [ck.TopicPartition(*partition)]
        [found] = self._ask(lambda seconds: self._consumer.committed(wanted, timeout=seconds))
        self._check(found)
        return found.offset if found.offset >= 0 else None

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            answered = self._consumer.commit(offsets=wanted, asynchronous=False)
        except ck.KafkaException as error:
            self._liveness.not_committed(error.args[0])
            raise confluent_error(error.args[0], self._settings) from error
        for each in answered:
            self._check(each)
        self._liveness.committed()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def give_up(self) -> None:
        self._given_up = True
        # It may wait for brokers that it does not know any more.
        threading.Thread(target=self._close_late, name="headrace kafka close", daemon=True).start()

    def _close_late(self) -> None:
        try:
            self.close()
        except (ck.KafkaException, RuntimeError) as error:
            logger.debug("while closing a consumer that was given up: %s", error)

    @contextmanager
    def _called_back(self) -> Iterator[None]:
        self._in_callback = True
        try:
            yield
        finally:
            self._in_callback = False

    def _drop_arrived(self, partitions: Iterable[Any]) -> None:
        """Drop records of partitions that now belong to another member: if they come back, reading begins at the commit."""
        gone = {(one.topic, one.partition) for one in partitions}
        # In place: a rebalance may be announced while ``fetch`` adds to the list.
        self._arrived[:] = [one for one in self._arrived if (one.topic(), one.partition()) not in gone]

    def _lister(self) -> Any:
        """Return a client that can list topics.

        ``list_topics`` of a consumer that is just calling back makes the next callback abort the process: confluent-kafka
        2.16 keeps one state per client and thread, which the inner call clears.
        """
        if not self._in_callback:
            return self._consumer
        if self._admin is None:
            properties = confluent_properties(self._settings, {"error_cb": self._troubles.note})
            self._admin = made(ck_admin.AdminClient, properties, self._settings)
        return self._admin

    def _sorted(self, messages: list[Any]) -> Iterable[Fetched]:
        """Sort what came by partition: librdkafka gives it in runs, with errors and ends of partitions in between."""
        if not any(map(_error, messages)):
            self._troubles.clear()
            self._liveness.heard()
            return self._runs(messages)
        good = [message for message in messages if message.error() is None]
        told = [self._told(message, message.error()) for message in messages if message.error() is not None]
        return [*(self._runs(good) if good else ()), *(one for one in told if one is not None)]

    def _runs(self, messages: list[Any]) -> Iterator[Fetched]:
        """Yield the records of each run of one partition."""
        numbers: list[Any] = list(map(_partition, messages))
        topics: list[Any] | None = None if self._only_topic is not None else list(map(_topic, messages))
        for begin, end in run_bounds(numbers, topics):
            run = messages if end - begin == len(messages) else messages[begin:end]
            topic = self._only_topic or topics[begin]  # type: ignore[index]
            yield Fetched.of(
                Partition(topic, numbers[begin]),
                offsets_of(run),
                list(map(_value, run)),
                _times(run) if self._with_times else None,
                list(map(_key, run)) if self._with_keys else None,
                list(map(_headers, run)) if self._with_headers else None,
            )

    def _told(self, message: Any, error: Any) -> Fetched | None:
        """Return what a message without record says about its partition; keep what it says about the consumer."""
        code, topic = error.code(), message.topic()
        if topic is None or message.partition() is None or message.partition() < 0:
            if not error.retriable() or error.fatal():
                self._failure = confluent_error(error, self._settings)
            return None
        partition = Partition(topic, message.partition())
        offset = message.offset() if message.offset() is not None and message.offset() >= 0 else None
        if code == ck.KafkaError._PARTITION_EOF:
            self._troubles.clear()
            self._liveness.heard()
            return Fetched.nothing(partition, next_offset=offset)
        found = of_code(code, str(error.str()), self._settings, queue=str(partition), offset=offset)
        if isinstance(found, NoSuchTopic):
            return None  # it existed a moment ago; queues() shows when it was really removed
        return Fetched.nothing(partition, error=found)

    def _ask(self, request: Callable[[float], T]) -> T:
        since = time.monotonic()
        try:
            answer = self._troubles.asked(request, self._serve)
        except RetriableError as error:
            if error.option == "servers" and not self._in_callback:
                self._liveness.not_answered(since)
            raise
        self._liveness.heard()
        return answer

    def _serve(self) -> None:
        """Let librdkafka report errors. Records that come meanwhile are kept for ``fetch``; rebalances are left to ``fetch``."""
        if self._in_group:
            return
        for message in self._consumer.consume(1, 0):
            if message.error() is not None and message.topic() is None:
                self._troubles.note(message.error())
            else:
                self._arrived.append(message)

    def _call(self, method: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except ck.KafkaException as error:
            raise confluent_error(error.args[0], self._settings) from error

    def _check(self, answered: Any) -> None:
        if answered.error is not None:
            raise confluent_error(answered.error, self._settings, queue=f"{answered.topic}-{answered.partition}")


def _headers(message: Any) -> dict[str, bytes]:
    """Return a record's headers: of several with one name the last, and one without value as empty."""
    return {name: value or b"" for name, value in message.headers() or ()}


def offsets_of(run: list[Any]) -> NDArray[np.int64]:
    """Return the offsets of records of one partition. They are ascending; without gaps, the first and the last give all of them."""
    first, last = run[0].offset(), run[-1].offset()
    if last - first == len(run) - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(_offset, run), dtype=np.int64, count=len(run))


def _times(run: list[Any]) -> NDArray[np.int64]:
    return np.fromiter(map(_SECOND, map(_timestamp, run)), dtype=np.int64, count=len(run))


def run_bounds(numbers: list[int], topics: list[str] | None) -> list[tuple[int, int]]:
    """Return where each run of records of one partition begins and ends."""
    if topics is None and numbers.count(numbers[0]) == len(numbers):
        return [(0, len(numbers))]
    of_records = np.array(numbers, dtype=np.int64)
    changes = of_records[1:] != of_records[:-1]
    if topics is not None:
        changes |= np.fromiter(map(ne, topics[1:], topics), dtype=bool, count=len(topics) - 1)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(numbers)]
    return list(pairwise(cuts))


def _partitions(found: Iterable[Any]) -> list[Partition]:
    return [Partition(one.topic, one.partition) for one in found]


def _answered(bounds: Any) -> tuple[int, int]:
    """Return the bounds; librdkafka gives None where the time ran out."""
    if bounds is None:
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "no answer about the partition's offsets"))
    low, high = bounds
    return low, high
