"""What the simulated clients of Kafka have in common, and the one for administration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from tests.simulation.kafka_log import Log, failure

if TYPE_CHECKING:
    from tests.simulation.kafka import Kafka


class Client:
    def __init__(self, broker: Kafka) -> None:
        self.broker = broker
        #: It has forgotten the brokers, as librdkafka does when one says that there are none: it never reaches one again.
        self.is_stuck = False
        self.is_gone = False
        broker.clients.append(self)

    def request(self, what: str, seconds: float = 1.0) -> None:
        if self.is_stuck:
            self.broker.world.pause(int(seconds * 1e6))
            raise failure(ck.KafkaError._TRANSPORT)
        self.broker.ask(what, seconds)

    def list_topics(self, topic: str | None = None, timeout: float = 1.0) -> Any:
        self.request("list topics", timeout)
        logs = self.broker.logs
        names = [topic] if topic is not None else sorted(logs)
        unknown = ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(
                    error=None if name in logs else unknown, partitions=dict.fromkeys(range(len(logs.get(name, ()))))
                )
                for name in names
            },
            brokers={1: "b"},
        )


class _Answer:
    def __init__(self, result: Callable[[], Any]) -> None:
        self._result = result

    def result(self) -> Any:
        return self._result()


class AdminClient(Client):
    """Instead of ``confluent_kafka.admin.AdminClient``."""

    def poll(self, timeout: float) -> int:
        return 0

    def describe_topics(self, topics: Any, **options: Any) -> Mapping[str, _Answer]:
        [name] = topics.topic_names

        def described() -> Any:
            self.request(f"describe {name}")
            if name not in self.broker.logs:
                raise failure(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
            partitions = [SimpleNamespace(leader="b") for _ in self.broker.logs[name]]
            return SimpleNamespace(authorized_operations=None, partitions=partitions)

        return {name: _Answer(described)}

    def create_topics(self, topics: Sequence[Any], **options: Any) -> Mapping[str, _Answer]:
        [wanted] = topics

        def created() -> None:
            self.request(f"create {wanted.topic}")
            if wanted.topic in self.broker.logs:
                raise failure(ck.KafkaError.TOPIC_ALREADY_EXISTS)
            self.broker.logs[wanted.topic] = [Log() for _ in range(wanted.num_partitions)]

        return {wanted.topic: _Answer(created)}

    def list_consumer_group_offsets(self, groups: Sequence[Any], **options: Any) -> Mapping[Any, _Answer]:
        [group] = groups
        return {group: _Answer(lambda: self.request(f"offsets of {group.group_id}"))}

    def delete_records(self, places: Sequence[Any], **options: Any) -> Mapping[Any, _Answer]:
        [place] = places

        def deleted() -> None:
            self.request(f"trim {place.topic}-{place.partition} before {place.offset}")
            log = self.broker.log((place.topic, place.partition))
            if not log.first <= place.offset <= log.end:
                raise failure(ck.KafkaError.OFFSET_OUT_OF_RANGE)
            del log.entries[: place.offset - log.first]
            log.first = place.offset

        return {place: _Answer(deleted)}
