"""The Kafka source: partitions are queues; alone, or as a member of a consumer group."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
from headrace.errors import DataError
from headrace.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.settings import Settings
from headrace.source import EARLIEST, GroupListener, GroupSource, Reader, StartAt, StartPosition

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.settings import KafkaSourceSettings, driver_name


class KafkaSource(GroupSource):
    """Reads topics of a Kafka cluster. One consumer serves all partitions that a process reads."""

    Settings: ClassVar[type[Settings]] = KafkaSourceSettings

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.settings = settings
        self._shared: SharedConsumer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}

    def check(self) -> None:
        driver_name(self.settings)

    def queues(self) -> Collection[Queue]:
        shared = self._consumer()
        return [Queue(str(partition)) for topic in self.settings.topics for partition in shared.partitions(topic)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        shared = self._consumer()
        partition = Partition.parse(queue.name)
        offset = self._first_offset(shared, partition, start)
        shared.begin(partition, offset)
        return KafkaReader(shared, partition, offset, self.settings)

    def join(self, listener: GroupListener) -> None:
        shared = self._consumer()

        def named(partitions: Sequence[Partition]) -> list[Queue]:
            return [Queue(str(partition), self.node_name) for partition in partitions]

        def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
            listener.assigned(named(partitions))
            return {partition: shared.begun_at(partition) for partition in partitions if shared.reads(partition)}

        shared.subscribe(
            self.settings.topics,
            GroupCallbacks(
                assigned,
                lambda partitions: listener.revoked(named(partitions)),
                lambda partitions: listener.revoked(named(partitions), lost=True),
            ),
        )

    def poll_group(self, timeout: timedelta) -> None:
        self._consumer().fill(timeout.total_seconds())

    def leave(self) -> None:
        self.close()

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        if positions:
            self._consumer().commit({Partition.parse(queue.name): p.offset for queue, p in positions.items()})

    def committed(self, queue: Queue) -> ReadPosition | None:
        offset = self._consumer().committed(Partition.parse(queue.name))
        return None if offset is None else ReadPosition(offset)

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _consumer(self) -> SharedConsumer:
        if self._shared is None:
            with_headers = "headers" in self.header_fields
            self._shared = SharedConsumer(make_driver(self.settings, with_headers=with_headers), self.settings)
        return self._shared

    def _first_offset(self, shared: SharedConsumer, partition: Partition, start: StartPosition) -> int:
        low, high = shared.bounds(partition)
        if isinstance(start, ReadPosition):
            if not low <= start.offset <= high:
                raise DataError(
                    f"offset {start.offset} is not in partition {partition}: it holds {low} to {high}",
                    plugin="kafka",
                    queue=str(partition),
                    offset=start.offset,
                    hint="records were removed by retention before they were read, or the topic was made anew; "
                    "to go on with what is there, start with a new checkpoint directory or another group",
                )
            return start.offset
        given = (self.settings.offsets or {}).get(str(partition.number))
        if given is not None:
            return min(max(given, low), high)
        if isinstance(start, StartAt):
            found = shared.offset_at(partition, int(start.time.timestamp() * 1000))
            return high if found is None else found
        return low if start is EARLIEST else high


@dataclass(slots=True)
class _Buffer:
    """Records of a partition that were fetched and not yet taken."""

    begun_at: int
    chunks: deque[Fetched] = field(default_factory=deque)
    records: int = 0
    #: Where the partition is known to go on when nothing is buffered.
    next_offset: int = 0
    paused: bool = False


class SharedConsumer:
    """One consumer for all readers of a process: sorts what comes into a buffer per partition.

    A partition whose buffer is full is paused until it is taken from. Thread-safe: one lock around the consumer.
    """

    def __init__(self, driver: ConsumerDriver, settings: KafkaSourceSettings) -> None:
        self._driver = driver
        self._limit = settings.max_buffered_records
        self._buffers: dict[Partition, _Buffer] = {}
        self._lock = threading.RLock()
        self._in_group = False

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        with self._lock:
            self._in_group = True
            self._driver.subscribe(topics, callbacks)

    def begin(self, partition: Partition, offset: int) -> None:
        with self._lock:
            self._buffers[partition] = _Buffer(offset, next_offset=offset)
            if not self._in_group:
                self._driver.assign(partition, offset)

    def end(self, partition: Partition) -> None:
        with self._lock:
            if self._buffers.pop(partition, None) is not None and not self._in_group:
                self._driver.unassign(partition)

    def reads(self, partition: Partition) -> bool:
        return partition in self._buffers

    def begun_at(self, partition: Partition) -> int:
        return self._buffers[partition].begun_at

    def take(self, partition: Partition, max_records: int, timeout_seconds: float) -> Fetched | None:
        """Return the next records of a partition, at most ``max_records``; fetch if none wait."""
        with self._lock:
            buffer = self._buffers.get(partition)
            if buffer is not None and not buffer.chunks:
                self.fill(timeout_seconds)
                buffer = self._buffers.get(partition)  # a rebalance may have come with it
            if buffer is None or not buffer.chunks:
                return None
            chunk = buffer.chunks[0]
            if len(chunk.offsets) > max_records:
                chunk = chunk.split(max_records)
            else:
                buffer.chunks.popleft()
            buffer.records -= len(chunk.offsets)
            if buffer.paused and buffer.records < self._limit // 2:
                buffer.paused = False
                self._driver.resume(partition)
            return chunk

    def next_offset(self, partition: Partition, taken: int) -> int:
        """Return where the partition goes on for a reader that has taken everything before ``taken``."""
        with self._lock:
            buffer = self._buffers.get(partition)
            if buffer is None or buffer.chunks:
                return taken
            return max(taken, buffer.next_offset)

    def fill(self, timeout_seconds: float) -> None:
        """Fetch once and sort what has come into the buffers."""
        with self._lock:
            for fetched in self._driver.fetch(10_000, timeout_seconds):
                buffer = self._buffers.get(fetched.partition)
                if buffer is None:
                    continue
                if fetched.offsets:
                    buffer.chunks.append(fetched)
                    buffer.records += len(fetched.offsets)
                    buffer.next_offset = fetched.offsets[-1] + 1
                if fetched.next_offset is not None:
                    buffer.next_offset = max(buffer.next_offset, fetched.next_offset)
                if buffer.records >= self._limit and not buffer.paused:
                    buffer.paused = True
                    self._driver.pause(fetched.partition)

    def seek(self, partition: Partition, offset: int) -> None:
        with self._lock:
            self._buffers[partition] = _Buffer(offset, next_offset=offset)
            self._driver.seek(partition, offset)

    def partitions(self, topic: str) -> list[Partition]:
        with self._lock:
            return self._driver.partitions(topic)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        with self._lock:
            return self._driver.bounds(partition)

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        with self._lock:
            return self._driver.offset_at(partition, milliseconds)

    def committed(self, partition: Partition) -> int | None:
        with self._lock:
            return self._driver.committed(partition)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        with self._lock:
            self._driver.commit(offsets)

    def close(self) -> None:
        with self._lock:
            self._buffers.clear()
            self._driver.close()


class KafkaReader(Reader):
    """Reads one partition through the process's consumer."""

    def __init__(
        self, shared: SharedConsumer, partition: Partition, offset: int, settings: KafkaSourceSettings
    ) -> None:
        self._shared = shared
        self._partition = partition
        self._next = offset
        self._settings = settings

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        taken = self._shared.take(self._partition, max_records, timeout.total_seconds())
        if taken is None:
            self._next = self._shared.next_offset(self._partition, self._next)
            return None
        self._next = taken.offsets[-1] + 1
        return RawBatch(
            np.array(taken.offsets, dtype=np.int64),
            ReadPosition(self._next),
            bodies=Bodies.of(taken.bodies),
            times=np.array(taken.times, dtype=np.int64) * 1000,
            keys=taken.keys,
            headers=taken.headers,
        )

    def seek(self, position: ReadPosition) -> None:
        self._shared.seek(self._partition, position.offset)
        self._next = position.offset

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next)

    @property
    def earliest(self) -> int:
        return self._shared.bounds(self._partition)[0]

    @property
    def latest(self) -> int:
        return self._shared.bounds(self._partition)[1]

    def close(self) -> None:
        self._shared.end(self._partition)


def make_driver(settings: KafkaSourceSettings, *, with_headers: bool) -> ConsumerDriver:
    """Return a consumer of the client library that the settings choose."""
    if driver_name(settings) == "confluent":
        from headrace_kafka.driver_confluent import ConfluentConsumer

        return ConfluentConsumer(settings, with_headers=with_headers)
    from headrace_kafka.driver_kafka_python import KafkaPythonConsumer

    return KafkaPythonConsumer(settings, with_headers=with_headers)
