"""Shared stages without an engine, on a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.flow.messages import Queue
from headrace_contract.memory_topics import MemoryBroker, MemoryTopics, MemoryTopicSettings, MemoryTopicSource
from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.shared.elasticity import Elasticity, Known
from headrace_light.shared.outages import SharedOutages
from headrace_light.shared.stages import SharedStages
from headrace_light.shared.topic_state import TopicStateStore
from headrace_light.shared.transport import Transport, topic_name
from stages_world import StagesWorld, at_once, bodies

SHARDS = 2
KEYS = ["a", "b", "a", "c", "a", "b"]


class SharedWorld:
    """A broker with a topic of events, and instances of a job that counts them per key. All write to one sink."""

    def __init__(self, queues: int = 1) -> None:
        self.broker = MemoryBroker()
        for _ in range(queues):
            self.broker.add_queue("events")
        self.broker.append("events", 0, bodies(KEYS))
        self.parts = StagesWorld(self._source())
        [self.queue, *_] = [Queue(queue.name, "events") for queue in self._source().queues()]
        [self.shuffle] = self.parts.plan.shuffles

    def _source(self) -> MemoryTopicSource:
        return MemoryTopicSource(MemoryTopicSettings(broker=self.broker.name, topic="events", group="job"))

    def elasticity(self) -> Elasticity:
        topics = MemoryTopics(self.broker)

        def store(directory: Path | None, name: str, shards: int, known: Known) -> TopicStateStore:
            return TopicStateStore(topics, name, shards, known)

        return Elasticity(topics, store, state_moves=True)

    def outages(self) -> SharedOutages:
        return SharedOutages("test.stages", self.parts.clock, 1.0)

    def transport(self) -> Transport:
        """Return a transport whose topics have been made."""
        made = Transport(self.parts.plan, self.parts.clock, MemoryTopics(self.broker), self.outages(), shards=SHARDS)
        made.open()
        return made

    @contextmanager
    def instance(self) -> Iterator[SharedStages]:
        """Give the stages of an instance that has joined the groups, and has the shards that are free."""
        host = self.parts.host()
        stages = SharedStages.of(self.parts.plan, host, StoredCheckpoint(), self.elasticity(), shards=SHARDS)
        try:
            stages.open()
            stages.join(at_once)
            stages.keep_up(idle=True)
            yield stages
        finally:
            stages.close()

    def records(self, shard: int) -> list[bytes]:
        """Return the records of a shard in the topic of the shuffle."""
        return list(self.broker.records(topic_name(self.parts.plan.job_name, self.shuffle), shard))


def settle(*instances: SharedStages) -> None:
    """Let instances work until none of them has anything to do."""
    for _ in range(50):
        worked = [stages.poll() for stages in instances]
        for stages in instances:
            stages.keep_up(idle=True)
        if not any(worked):
            return
    raise AssertionError("the instances do not come to rest")
