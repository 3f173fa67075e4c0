"""The consumer of kafka-python: pure Python, works everywhere, and takes many times the CPU per record."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import kafka
import numpy as np
from headrace.foundation.errors import DataError, did_you_mean
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import FencedInstanceIdError, KafkaError
from kafka.future import Future
from kafka.structs import OffsetAndMetadata, TopicPartition

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import UNKNOWN_TOPIC, NoSuchTopic, of_code, public_topics, unreachable
from headrace_kafka.kafka_python_client import kafka_python_error, kafka_python_properties, made
from headrace_kafka.own_thread import OwnThread
from headrace_kafka.settings import KafkaSourceSettings, milliseconds

T = TypeVar("T")
#: How much longer than its own time-out a call of the library may take before we continue without its result.
_GRACE_SECONDS = 2.0

#: How long a poll waits at least while the consumer joins its group: a poll of no time never completes the steps of joining.
_JOIN_WAIT_MS = 20


class KafkaPythonConsumer(ConsumerDriver):
    """One consumer of kafka-python. Rebalances stop all members: all partitions are revoked and assigned again."""

    fetch_records = 2000

    def __init__(self, settings: KafkaSourceSettings, *, with_times: bool, with_keys: bool, with_headers: bool) -> None:
        self._settings = settings
        self._with_times = with_times
        self._with_keys = with_keys
        self._with_headers = with_headers
        self._timeout_ms = milliseconds(settings.connect_timeout)
        self._own_thread = OwnThread("headrace kafka-python")
        self._polled: deque[Mapping[Any, list[Any]]] = deque()
        self._callback_error: BaseException | None = None
        self._admin: Any = None
        self._in_group = False
        self._closed = False
        properties = kafka_python_properties(
            settings,
            {
                "group_id": settings.group,
                "enable_auto_commit": False,
                # An offset that does not exist any more is an error, never a silent jump.
                "auto_offset_reset": "none",
                "allow_auto_create_topics": False,
                "isolation_level": settings.isolation,
                "partition_assignment_strategy": (RoundRobinPartitionAssignor,),
                "session_timeout_ms": milliseconds(settings.session_timeout),
                "heartbeat_interval_ms": milliseconds(settings.heartbeat_interval),
                "group_instance_id": settings.instance_id,
                "metadata_max_age_ms": milliseconds(settings.metadata_interval),
            },
        )
        properties.setdefault("fetch_max_wait_ms", 100)
        self._consumer: Any = made(kafka.KafkaConsumer, properties, settings)
        _finish_rebalances(self._consumer)
        self._fenced: list[FencedInstanceIdError] = []
        _tell_of_fencing(self._consumer, self._fenced.append)

    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        consumer = self._consumer
        if not self._in_group and not consumer.assignment():
            return
        if not self._polled:
            try:
                self._poll(max_records, timeout_seconds)
            except DataError as error:
                if error.queue is None:
                    raise
                yield Fetched.nothing(Partition.parse(error.queue), error=error)
        arrived = self._polled.popleft() if self._polled else {}
        for place, records in arrived.items():
            yield self._fetched(Partition(*place), records)
        # Markers of transactions are not records, but they move the position.
        for place in consumer.assignment() if not self._polled else ():
            if place not in arrived:
                position = self._called(lambda place=place: consumer.position(place, timeout_ms=0))  # type: ignore[misc]
                if position is not None:
                    yield Fetched.nothing(Partition(*place), next_offset=position)

    def assign(self, partition: Partition, offset: int) -> None:
        self._consumer.assign([*self._consumer.assignment(), TopicPartition(*partition)])
        self.seek(partition, offset)

    def unassign(self, partition: Partition) -> None:
        self._consumer.assign([one for one in self._consumer.assignment() if one != TopicPartition(*partition)])

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
            offsets = callbacks.assigned(partitions)
            for partition in partitions:
                self.seek(partition, offsets.get(partition, 0))
                if partition not in offsets:
                    self.pause(partition)
            return offsets

        def revoked(partitions: Sequence[Partition]) -> None:
            callbacks.revoked(partitions)
            self._drop_polled(partitions)

        def lost(partitions: Sequence[Partition]) -> None:
            callbacks.lost(partitions)
            self._drop_polled(partitions)

        listener = _Listener(self._in_callers_thread, GroupCallbacks(assigned, revoked, lost))
        self._in_group = True
        self._called(lambda: self._consumer.subscribe(list(topics), listener=listener))

    def begin_late(self, partition: Partition, offset: int) -> None:
        self.seek(partition, offset)
        self.resume(partition)

    def pause(self, partition: Partition) -> None:
        self._consumer.pause(TopicPartition(*partition))

    def resume(self, partition: Partition) -> None:
        self._consumer.resume(TopicPartition(*partition))

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def partitions(self, topic: str) -> list[Partition]:
        [found] = self._asked(lambda: self._administrator().describe_topics([topic]))
        code = found["error_code"]
        if code == UNKNOWN_TOPIC:
            names = self._asked(lambda: self._administrator().list_topics())
            raise NoSuchTopic(
                f"there is no topic {topic!r} at {self._settings.servers}",
                plugin="kafka",
                option="topic",
                hint=did_you_mean(topic, public_topics(names), known="topics"),
            )
        if code:
            raise of_code(code, kafka.errors.for_code(code).description, self._settings)
        return sorted(Partition(topic, one["partition_index"]) for one in found["partitions"])

    def bounds(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        low = self._asked(lambda: self._consumer.beginning_offsets([one], timeout_ms=self._timeout_ms))[one]
        high = self._asked(lambda: self._consumer.end_offsets([one], timeout_ms=self._timeout_ms))[one]
        return low, high

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        one = TopicPartition(*partition)
        found = self._asked(
            lambda: self._consumer.offsets_for_times({one: milliseconds}, timeout_ms=self._timeout_ms)
        )[one]  # fmt: skip
        return None if found is None else int(found.offset)

    def committed(self, partition: Partition) -> int | None:
        one = TopicPartition(*partition)
        found = self._asked(lambda: self._consumer.committed(one, timeout_ms=self._timeout_ms))
        return None if found is None else int(found)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*one): OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()}
        self._asked(lambda: self._consumer.commit(wanted, timeout_ms=self._timeout_ms))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._asked(lambda: self._consumer.close(autocommit=False, timeout_ms=self._timeout_ms))
            if self._admin is not None:
                self._asked(self._admin.close)
        finally:
            self._own_thread.end()
        self._raise_callback_error()

    def _poll(self, max_records: int, timeout_seconds: float) -> None:
        def poll() -> None:
            _let_resumed_partitions_in(self._consumer)
            joins = self._in_group and self._consumer._coordinator.need_rejoin()
            timeout_ms = max(round(timeout_seconds * 1000), _JOIN_WAIT_MS if joins else 0)
            self._polled.append(self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records))

        if self._in_group:
            self._asked(poll, timeout_seconds + self._settings.connect_timeout.total_seconds())
            self._raise_callback_error()
            if self._fenced:
                raise kafka_python_error(self._fenced[0], self._settings)
        else:
            self._called(poll)

    def _fetched(self, partition: Partition, records: list[Any]) -> Fetched:
        count = len(records)
        return Fetched.of(
            partition,
            np.fromiter((one.offset for one in records), dtype=np.int64, count=count),
            [one.value for one in records],
            np.fromiter((one.timestamp for one in records), dtype=np.int64, count=count) if self._with_times else None,
            [one.key for one in records] if self._with_keys else None,
            [{name: value or b"" for name, value in one.headers or ()} for one in records]
            if self._with_headers
            else None,
        )

    def _drop_polled(self, partitions: Sequence[Partition]) -> None:
        """Drop records of partitions that now belong to another member: if they come back, reading begins at the commit."""
        gone = {TopicPartition(*one) for one in partitions}
        for number, arrived in enumerate(self._polled):
            self._polled[number] = {place: records for place, records in arrived.items() if place not in gone}

    def _in_callers_thread(self, callback: Callable[[], object]) -> Future:
        """Have a callback called in the thread that waits in ``fetch`` or ``close``; these raise its exceptions."""
        answered = Future()
        loop = self._consumer._net

        def answer() -> None:
            try:
                callback()
            except BaseException as error:  # raised when the library's call has come back
                self._callback_error = error
            finally:
                with contextlib.suppress(RuntimeError, KafkaError):  # the loop has ended: no thread waits any more
                    loop.call_soon_threadsafe(lambda: answered.success(None))

        self._own_thread.ask(answer)
        return answered

    def _raise_callback_error(self) -> None:
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            raise error

    def _administrator(self) -> Any:
        if self._admin is None:
            properties = kafka_python_properties(self._settings, {})
            self._admin = made(KafkaAdminClient, properties, self._settings)
        return self._admin

    def _asked(self, action: Callable[[], T], timeout_seconds: float | None = None) -> T:
        """Make a call that may wait for ever. Raises RetriableError when it does."""
        seconds = timeout_seconds or self._settings.connect_timeout.total_seconds()
        try:
            return self._called(lambda: self._own_thread.call(action, seconds + _GRACE_SECONDS))
        except TimeoutError as error:
            raise unreachable(self._settings, str(error)) from error

    def _called(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (KafkaError, ConnectionError) as error:
            offsets = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
            place, offset = next(iter(offsets.items()), (None, None))
            queue = str(Partition(*place)) if isinstance(place, TopicPartition) else None
            raise kafka_python_error(
                error, self._settings, queue=queue, offset=offset if isinstance(offset, int) else None
            ) from error


class _Listener(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Called in the library's input/output thread, which continues to send heartbeats while we answer."""

    def __init__(
        self,
        in_callers_thread: Callable[[Callable[[], object]], Future],
        callbacks: GroupCallbacks,
    ) -> None:
        self._in_callers_thread = in_callers_thread
        self._callbacks = callbacks

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        await self._in_callers_thread(lambda: self._callbacks.assigned(_partitions(assigned)))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._in_callers_thread(lambda: self._callbacks.revoked(_partitions(revoked)))

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        await self._in_callers_thread(lambda: self._callbacks.lost(_partitions(lost)))


def _finish_rebalances(consumer: Any) -> None:
    """Make sure that a rebalance that has begun is finished, also when a time-out comes in between.

    Otherwise kafka-python 3.0 forgets a rebalance that the leader began because the topic's partitions changed: then it has no
    partitions, sends no heartbeats, and never asks again.
    """
    coordinator = consumer._coordinator
    need_rejoin = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: need_rejoin() or coordinator.rejoining


def _tell_of_fencing(consumer: Any, tell: Callable[[FencedInstanceIdError], None]) -> None:
    """Report that another consumer has joined under the same name.

    kafka-python 3.0 writes it to its log, sends no more heartbeats, and reads on.
    """
    coordinator = consumer._coordinator
    send = coordinator._send_heartbeat_request

    async def sending() -> object:
        try:
            return await send()
        except FencedInstanceIdError as error:
            tell(error)
            raise

    coordinator._send_heartbeat_request = sending


def _let_resumed_partitions_in(consumer: Any) -> None:
    """Let records that were set aside for paused partitions be read after these were resumed.

    kafka-python 3.0 looks at that only when it has no records under way, and takes records that were all given for that:
    if every partition has something set aside, nothing would ever be read again.
    """
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None


def _partitions(found: Iterable[Any]) -> list[Partition]:
    return sorted(Partition(*one) for one in found)
