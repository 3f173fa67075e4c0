"""The Kafka source: partitions are queues; alone, or as a member of a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec
import numpy as np
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, OptionError, RetriableError, did_you_mean
from headrace.interfaces.metrics import SOURCE_RENEWALS
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, Reader, StartAt, StartPosition
from headrace.interfaces.topics import Topics
from numpy.typing import NDArray

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import NoSuchTopic
from headrace_kafka.settings import KafkaSourceSettings, driver_name
from headrace_kafka.shared_consumer import Buffer, SharedConsumer
from headrace_kafka.table_options import SOURCE_TABLES

logger = logging.getLogger(__name__)

#: What is taken from records only if the job wants it, and the header field that it becomes.
_COSTLY_FIELDS = {"times": "time", "keys": "key", "headers": "headers"}


class KafkaSource(GroupSource):
    """Reads topics of a Kafka cluster. One consumer serves all partitions that a process reads.

    Only its readers are thread-safe: ``queues``, ``open``, ``join`` and the like are called by one thread at a time.
    """

    Settings: ClassVar[type[Settings]] = KafkaSourceSettings
    table_options = SOURCE_TABLES
    group_options: ClassVar[frozenset[str]] = frozenset(
        {"group", "instance_id", "session_timeout", "metadata_interval"}
    )

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.settings: KafkaSourceSettings = settings
        self.time_delay = settings.time_delay
        self._shared: SharedConsumer | None = None
        self._known_topics: set[str] = set()
        self._listener: GroupListener | None = None
        #: Partitions that the group has assigned and whose broker did not answer when reading should begin.
        self._late: set[Partition] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None, "_listener": None, "_late": set()}

    def check(self) -> None:
        driver_name(self.settings)
        self._given_offsets()

    def queues(self) -> Collection[Queue]:
        shared = self._consumer()
        found: list[Partition] = []
        for topic in self.settings.topics:
            try:
                found += shared.ask(lambda driver, topic=topic: driver.partitions(topic))  # type: ignore[misc]
            except NoSuchTopic as error:
                if topic not in self._known_topics:
                    raise
                logger.warning("%s", error.message)  # it was deleted, and so were its queues
            else:
                self._known_topics.add(topic)
        self._check_given_offsets(found)
        return [Queue(str(partition)) for partition in found]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        shared = self._consumer()
        partition = Partition.parse(queue.name)
        offset = self._first_offset(shared, partition, start)
        return KafkaReader(shared, shared.begin(partition, offset), offset, self.settings)

    def join(self, listener: GroupListener) -> None:
        if self.settings.instance_id is not None and self._shared is not None:
            # The present consumer has no instance id: brokers refuse requests and commits with such an id before it has joined.
            self._shared.close()
            self._shared = None
        shared = self._consumer(member=True)

        def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
            self._late |= set(partitions) - set(self._opened(listener, partitions))
            return shared.begins(partitions)

        def revoked(partitions: Sequence[Partition], *, lost: bool = False) -> None:
            self._late -= set(partitions)
            listener.revoked([self._queue(partition) for partition in partitions], lost=lost)

        self._listener = listener
        shared.subscribe(
            self.settings.topics,
            GroupCallbacks(assigned, revoked, lambda partitions: revoked(partitions, lost=True)),
        )

    def poll_group(self, timeout: timedelta) -> None:
        shared = self._consumer()
        shared.fill(timeout.total_seconds())
        if self._late and self._listener is not None:
            for partition in self._opened(self._listener, sorted(self._late)):
                shared.begin_late(partition)
                self._late.discard(partition)

    def leave(self) -> None:
        self.close()

    def memberships(self) -> Collection[str]:
        servers = ",".join(sorted(self.settings.servers.replace(" ", "").split(",")))
        group = self.settings.group_of(self.reader_name)
        return [f"group {group!r} of Kafka at {servers} for topic {topic!r}" for topic in self.settings.topics]

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        if positions:
            offsets = {Partition.parse(queue.name): position.offset for queue, position in positions.items()}
            self._consumer().ask(lambda driver: driver.commit(offsets))

    def committed(self, queue: Queue) -> ReadPosition | None:
        offset = self._consumer().ask(lambda driver: driver.committed(Partition.parse(queue.name)))
        return None if offset is None else ReadPosition(offset)

    def begins_with(self, queue: Queue) -> str | None:
        return Partition.parse(queue.name).topic

    def topics(self) -> Topics:
        from headrace_kafka.topics import KafkaTopics

        return KafkaTopics(self.settings)

    def close(self) -> None:
        if self._shared is not None:
            try:
                self._shared.close()  # the listener may still commit
            finally:
                self._shared, self._listener, self._late = None, None, set()

    def _opened(self, listener: GroupListener, partitions: Sequence[Partition]) -> list[Partition]:
        """Hand out partitions one by one and return which were taken: a partition whose broker is not available waits for the next time."""
        taken = []
        for partition in partitions:
            try:
                listener.assigned([self._queue(partition)])
            except RetriableError as error:
                logger.warning("partition %s cannot be read yet: %s", partition, error.message)
            else:
                taken.append(partition)
        return taken

    def _queue(self, partition: Partition) -> Queue:
        return Queue(str(partition), self.node_name)

    def _consumer(self, *, member: bool = False) -> SharedConsumer:
        if self._shared is None:
            settings = msgspec.structs.replace(
                self.settings,
                group=self.settings.group_of(self.reader_name),
                instance_id=self.settings.instance_id if member else None,
            )
            driver = make_driver(settings, self.header_fields)
            self._shared = SharedConsumer(
                driver,
                max_buffered_bytes=self.settings.max_buffered_bytes,
                renew=lambda: self._renewed(settings),
            )
        return self._shared

    def _renewed(self, settings: KafkaSourceSettings) -> ConsumerDriver:
        driver = make_driver(settings, self.header_fields)
        self.meter.add(SOURCE_RENEWALS, 1)
        return driver

    def _first_offset(self, shared: SharedConsumer, partition: Partition, start: StartPosition) -> int:
        low, high = shared.ask(lambda driver: driver.bounds(partition))
        if isinstance(start, ReadPosition):
            if not low <= start.offset <= high:
                raise lost_offset(partition, start.offset, low, high)
            return start.offset
        given = self._given_offsets().get(partition)
        if given is not None:
            if not low <= given <= high:
                raise OptionError(
                    f"offset {given} is not in partition {partition}: it holds {low} to {high}",
                    plugin="kafka",
                    option="offsets",
                )
            return given
        if isinstance(start, StartAt):
            moment = milliseconds_from(start.time)
            found = shared.ask(lambda driver: driver.offset_at(partition, moment))
            return high if found is None else found
        return low if start is EARLIEST else high

    def _given_offsets(self) -> Mapping[Partition, int]:
        """Return the offsets that the options give, by partition. Raises OptionError."""
        topics = self.settings.topics
        found = {}
        for name, offset in (self.settings.offsets or {}).items():
            if str(name).isdecimal() and len(topics) == 1:
                partition = Partition(topics[0], int(name))
            elif isinstance(name, str) and name.rpartition("-")[0] in topics and name.rpartition("-")[2].isdecimal():
                partition = Partition.parse(name)
            else:
                raise OptionError(
                    f"{name!r} is not a partition of {', '.join(topics)}",
                    plugin="kafka",
                    option="offsets",
                    hint=f"write it as {topics[0] + '-0'!r}" + (" or 0" if len(topics) == 1 else ""),
                )
            found[partition] = offset
        return found

    def _check_given_offsets(self, existing: Collection[Partition]) -> None:
        for partition in self._given_offsets():
            if partition not in existing and partition.topic in self._known_topics:
                hint = did_you_mean(str(partition), map(str, existing), known="partitions")
                raise OptionError(f"there is no partition {partition}", plugin="kafka", option="offsets", hint=hint)


class KafkaReader(OffsetReader):
    """Reads one partition through the process's consumer."""

    def __init__(self, shared: SharedConsumer, buffer: Buffer, offset: int, settings: KafkaSourceSettings) -> None:
        super().__init__(offset)
        self._shared = shared
        self._buffer = buffer
        self._skips_tombstones = settings.tombstones == "skip"

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        try:
            taken = self._shared.take(self._buffer, max_records, timeout.total_seconds())
        except DataError as error:
            raise self._explained(error) from error
        if taken is None:
            self._next = self._shared.position(self._buffer, self._next)
            return None
        self._next = int(taken.offsets[-1]) + 1
        if taken.tombstones is not None and self._skips_tombstones:
            return self._batch(taken, np.flatnonzero(~taken.tombstones))
        return self._batch(taken)

    def seek(self, position: ReadPosition) -> None:
        self._shared.seek(self._buffer, position.offset)
        super().seek(position)

    @property
    def earliest(self) -> int:
        return self._bounds()[0]

    @property
    def latest(self) -> int:
        return self._bounds()[1]

    def close(self) -> None:
        self._shared.end(self._buffer)

    def _bounds(self) -> tuple[int, int]:
        return self._shared.ask(lambda driver: driver.bounds(self._buffer.partition))

    def _batch(self, taken: Fetched, rows: NDArray[np.int64] | None = None) -> RawBatch:
        """Return the records, or some of them, in the form of the runtime."""
        times = None if taken.times is None else taken.times * 1000
        if rows is None:
            return RawBatch(
                taken.offsets,
                ReadPosition(self._next),
                bodies=taken.bodies,
                times=times,
                keys=taken.keys,
                headers=taken.headers,
            )
        return RawBatch(
            taken.offsets[rows],
            ReadPosition(self._next),
            bodies=taken.bodies.take(rows),
            times=None if times is None else times[rows],
            keys=None if taken.keys is None else [taken.keys[row] for row in rows],
            headers=None if taken.headers is None else [taken.headers[row] for row in rows],
        )

    def _explained(self, error: DataError) -> DataError:
        """Return the error with the offsets that the partition has now, if the error says that the offset does not exist any more."""
        low, high = self._bounds()
        if low <= self._next <= high:
            return error
        return lost_offset(self._buffer.partition, self._next, low, high)


def lost_offset(partition: Partition, offset: int, low: int, high: int) -> DataError:
    """Return the error for a position that a partition does not reach, or no longer holds."""
    happened = (
        "records were removed (by retention, or by hand) before they were read"
        if offset < low
        else "the topic was created again, or has lost records"
    )
    return DataError(
        f"offset {offset} is not in partition {partition}, which holds {low} to {high}: {happened}",
        plugin="kafka",
        queue=str(partition),
        offset=offset,
        hint="to continue with what is there, start with another group, and with a new checkpoint directory if the job has one",
    )


def milliseconds_from(moment: datetime) -> int:
    """Return the first whole millisecond since the epoch that is not before a moment."""
    return -((datetime.fromtimestamp(0, UTC) - moment) // timedelta(milliseconds=1))


def make_driver(settings: KafkaSourceSettings, header_fields: Collection[str]) -> ConsumerDriver:
    """Return a consumer of the client library that the settings choose. It has reached the cluster."""
    wanted = {f"with_{name}": field in header_fields for name, field in _COSTLY_FIELDS.items()}
    if driver_name(settings) == "confluent":
        from headrace_kafka.driver_confluent import ConfluentConsumer

        return ConfluentConsumer(settings, **wanted)
    from headrace_kafka.driver_kafka_python import KafkaPythonConsumer

    return KafkaPythonConsumer(settings, **wanted)
