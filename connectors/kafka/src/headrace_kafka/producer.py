"""The interface that the sink needs from a client library: plain and transactional producers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.flow.messages import Position
from headrace.interfaces.sink import StaleWriterError

from headrace_kafka.settings import KafkaSinkSettings, driver_name


class Record(NamedTuple):
    """One record to write; without a partition the key, or the producer, chooses. No value: a tombstone."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None


class Fenced(StaleWriterError):
    """Another producer with the same transactional id has begun: this one must not write any more."""


class TopicKeeper(ABC):
    """Creates and checks the topic that is written to. When the constructor returns, it has reached the cluster."""

    @abstractmethod
    def partition_count(self) -> int:
        """Return how many partitions the topic has. Raises NoSuchTopic, and JobError when it may not be written to."""

    @abstractmethod
    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics that can be seen."""

    @abstractmethod
    def create_topic(self, configs: Mapping[str, str] | None = None) -> None:
        """Create the topic, with these properties of its own; nothing happens when it exists."""

    @abstractmethod
    def all_led(self) -> bool:
        """Return whether each partition of the topic has a broker that leads it, so that it can be written and read."""

    @abstractmethod
    def forget(self, topic: str, partition: int, before: int) -> None:
        """Let the brokers remove the records of a partition, of any topic, before an offset."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. May be called twice."""


class Producer(ABC):
    """Writes records and waits for the brokers' acknowledgement. Used by one thread at a time.

    After any error a producer may be unusable: close it and make another one.
    """

    def write(self, records: Sequence[Record]) -> None:
        """Write records to the topic of the settings and wait until all replicas have them.

        Raises RetriableError, JobError, or DataError when the brokers refuse a record. Some may be written then.
        """
        self.write_to({self.topic: records})

    @property
    @abstractmethod
    def topic(self) -> str:
        """The topic of the settings."""

    @abstractmethod
    def write_to(self, records: Mapping[str, Sequence[Record]]) -> None:
        """Write records to several topics at once. Raises as ``write``."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect, dropping what was not written. May be called twice."""


class TransactionalProducer(ABC):
    """Writes the rows of one upstream queue in transactions, each with the position after it. Used by one thread.

    The position is stored as the committed offset of a separate group (partition 0 of the topic, the row's index as
    metadata), which the broker makes visible together with the records. A new producer fences earlier producers with the same
    name, and completes or aborts their last transaction; so no other producer can have written between the ``position`` read
    then and what this one writes.

    After any error the producer may be unusable: close it and make another one, which finds out whether the last transaction was committed.
    """

    #: The position of the last committed transaction.
    position: Position | None

    @abstractmethod
    def write(self, records: Sequence[Record], last: Position) -> None:
        """Write records and position in one transaction.

        Raises Fenced when another producer has taken over, DataError when a record is refused and JobError for errors that a
        person must repair (both after aborting the transaction), else RetriableError.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect. A transaction that was not committed is aborted by the successor, or when it times out.

        May be called twice.
        """


def make_topic_keeper(settings: KafkaSinkSettings) -> TopicKeeper:
    """Return the object that creates and checks the topic, of the client library that the settings choose."""
    if driver_name(settings) == "confluent":
        from headrace_kafka.producer_confluent import ConfluentTopicKeeper

        return ConfluentTopicKeeper(settings)
    from headrace_kafka.producer_kafka_python import KafkaPythonTopicKeeper

    return KafkaPythonTopicKeeper(settings)


def make_producer(settings: KafkaSinkSettings) -> Producer:
    """Return a producer of the client library that the settings choose."""
    if driver_name(settings) == "confluent":
        from headrace_kafka.producer_confluent import ConfluentProducer

        return ConfluentProducer(settings)
    from headrace_kafka.producer_kafka_python import KafkaPythonProducer

    return KafkaPythonProducer(settings)


def make_transactional_producer(settings: KafkaSinkSettings, name: str) -> TransactionalProducer:
    """Return a producer whose transactions are called ``name``; it takes over from an earlier one of that name."""
    if driver_name(settings) == "confluent":
        from headrace_kafka.producer_confluent import ConfluentTransactionalProducer

        return ConfluentTransactionalProducer(settings, name)
    from headrace_kafka.producer_kafka_python import KafkaPythonTransactionalProducer

    return KafkaPythonTransactionalProducer(settings, name)
