"""Topics that a runtime of several instances creates on the source's cluster: for shuffles and state."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from headrace.flow.messages import Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace.interfaces.topics import Topics

from headrace_kafka.driver import Partition
from headrace_kafka.errors import NoSuchTopic
from headrace_kafka.producer import Producer, Record, TopicKeeper, make_producer, make_topic_keeper
from headrace_kafka.settings import KafkaSinkSettings, KafkaSourceSettings, driver_name

if TYPE_CHECKING:
    from headrace_kafka.source import KafkaSource

logger = logging.getLogger(__name__)
#: The size of a record besides its body, and the growth of a batch that cannot be compressed.
_OVERHEAD_BYTES = 100_000
#: The default of Kafka's brokers, set on our topics: an administrator may have lowered the value of the cluster.
_MESSAGE_BYTES = 1_048_588
#: Records are removed by ``trim`` only: unread records and state never become too old.
_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(_MESSAGE_BYTES),
}
_LOOK_SECONDS = 0.05


class KafkaTopics(Topics):
    """Topics on the cluster of a source, with its connection options and its driver.

    Records are appended to their partition by an idempotent producer that waits for all replicas in sync. When ``flush`` fails,
    unacknowledged records are written again by a new producer. Then records may be there twice, and a late request of the old
    producer may even arrive after those of the new one.
    """

    max_record_bytes = _MESSAGE_BYTES - _OVERHEAD_BYTES

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        #: The records that are not known to be durable, in order, by topic.
        self._waiting: dict[str, list[Record]] = {}
        self._trimmer: TopicKeeper | None = None
        self._trims_fail = False

    def create(self, topic: str, queues: int) -> None:
        with closing(make_topic_keeper(self._sink_settings(topic, partitions=queues))) as keeper:
            try:
                found = keeper.partition_count()
            except NoSuchTopic:
                keeper.create_topic(_CONFIGS)
                found = self._until_made(keeper, topic)
        if found != queues:
            raise JobError(
                f"topic {topic!r} at {self._settings.servers} has {found} partitions, not {queues}",
                plugin="kafka",
                hint="the number of shards of a job is fixed: use the previous number, or give the job another name",
            )

    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        largest = max(map(len, bodies), default=0)
        if largest > self.max_record_bytes:
            raise JobError(
                f"a record of {largest} bytes is larger than max_record_bytes ({self.max_record_bytes})",
                plugin="kafka",
                queue=str(Partition(topic, queue)),
            )
        if bodies:
            self._waiting.setdefault(topic, []).extend(Record(body, None, queue) for body in bodies)

    def flush(self) -> None:
        if not self._waiting:
            return
        try:
            if self._producer is None:
                self._producer = make_producer(self._sink_settings(next(iter(self._waiting))))
            self._producer.write_to(self._waiting)
        except DataError as error:
            self._drop_producer()
            raise JobError(
                f"the brokers refuse a record: {error.message}",
                plugin="kafka",
                queue=error.queue,
                hint=f"the topic's max.message.bytes has to be {_MESSAGE_BYTES} or more",
            ) from error
        except HeadraceError:
            self._drop_producer()  # it may hold records, and does not know which of them were written
            raise
        self._waiting = {}

    def source(self, topic: str, group: str) -> KafkaSource:
        from headrace_kafka.source import KafkaSource

        source = KafkaSource(msgspec.structs.replace(self._settings, topic=topic, group=group, offsets=None))
        source.start = EARLIEST
        return source

    def number_of(self, queue: Queue) -> int:
        return Partition.parse(queue.name).number

    def trim(self, topic: str, queue: int, before: int) -> None:
        """Let the brokers remove records. An error is logged once: a later call removes more."""
        if before <= 0:
            return
        try:
            if self._trimmer is None:
                self._trimmer = make_topic_keeper(self._sink_settings(topic))
            self._trimmer.forget(topic, queue, before)
        except HeadraceError as error:
            self._drop_trimmer()
            log = logger.debug if self._trims_fail else logger.warning
            log("old records of %s are not removed: %s", Partition(topic, queue), error)
            self._trims_fail = True
        else:
            self._trims_fail = False

    def close(self) -> None:
        try:
            self.flush()
        except HeadraceError as error:
            count = sum(map(len, self._waiting.values()))
            logger.warning("%d records for %s may be lost: %s", count, ", ".join(self._waiting), error.message)
        self._waiting = {}
        self._drop_producer()
        self._drop_trimmer()

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _drop_trimmer(self) -> None:
        trimmer, self._trimmer = self._trimmer, None
        if trimmer is not None:
            trimmer.close()

    def _until_made(self, keeper: TopicKeeper, topic: str) -> int:
        """Wait until the brokers know a new topic and lead its partitions, and return how many it has."""
        seconds = self._settings.connect_timeout.total_seconds()
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = keeper.partition_count()
                if keeper.all_led():
                    return found
            except NoSuchTopic:
                pass  # the broker that was asked has not heard of it yet
            if time.monotonic() > deadline:
                raise RetriableError(
                    f"topic {topic!r} was created, but has no leaders after {seconds:g} s", plugin="kafka"
                )
            time.sleep(_LOOK_SECONDS)

    def _sink_settings(self, topic: str, partitions: int = 1) -> KafkaSinkSettings:
        """Return the settings of a producer that reaches the cluster as the source does."""
        own = self._settings
        shared = set(own.__struct_fields__) & set(KafkaSinkSettings.__struct_fields__)
        given = {name: getattr(own, name) for name in shared}
        given |= {"topic": topic, "partitions": partitions, "conf": _shared_conf(own), "linger": timedelta(0)}
        return KafkaSinkSettings(**given)


def _shared_conf(settings: KafkaSourceSettings) -> dict[str, Any] | None:
    """Return the properties of the source that a producer may be given too: how to reach the cluster is among them."""
    if settings.conf is None or driver_name(settings) == "confluent":  # which ignores those of consumers
        return settings.conf
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient

    known = set(KafkaProducer.DEFAULT_CONFIG) & set(KafkaAdminClient.DEFAULT_CONFIG)
    return {name: value for name, value in settings.conf.items() if name in known}
