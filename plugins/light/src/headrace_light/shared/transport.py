"""Sends rows and messages to shards, which any instance may own: through the topics of the shuffles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal
from zlib import crc32

from headrace.flow.messages import Queue, QueueRemoved
from headrace.foundation.clock import Clock
from headrace.interfaces.source import GroupSource
from headrace.interfaces.topics import Topics
from headrace.plan.graph import Plan
from headrace.plan.stages import upstream_of
from headrace.runtime.lane import Shipment
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import ShardMessage

from headrace_light.shared.outages import SharedOutages
from headrace_light.shared.shuffle_records import encoded
from headrace_light.stages.routing import Pending, route, shard_counts

_FLUSH_SECONDS = 0.05


class Transport:
    """Writes to the topics of a job's shuffles; a topic has a queue for each shard. Used by the engine's thread.

    What is sent is durable after the next ``flush``.
    """

    def __init__(self, plan: Plan, clock: Clock, topics: Topics, outages: SharedOutages, *, shards: int) -> None:
        self._plan = plan
        self._clock = clock
        self._topics = topics
        self._outages = outages
        #: The number of shards per shuffle.
        self.shard_counts = shard_counts(plan, shards)
        self._topic_names = {name: topic_name(plan.job_name, name) for name in self.shard_counts}
        #: The sources and shuffles whose rows arrive, per shuffle and side.
        self.upstream = upstream_of(plan)
        #: The source that reads the topic of a shuffle; its node name is the name of the topic.
        self.sources: dict[str, GroupSource] = {}
        self._announced: set[Queue] = set()
        self._flushed_seconds = clock.monotonic()
        self._unflushed = False

    def open(self) -> None:
        """Create the missing topics. Raises JobError; RetriableError when the broker is away: call it again then."""
        for name, count in self.shard_counts.items():
            if name in self.sources:
                continue
            topic = self.topic_of(name)
            self._topics.create(topic, count)
            source = self._topics.source(topic, topic)
            source.node_name = topic
            self.sources[name] = source

    def close(self) -> None:
        """Close the connections. May be called twice."""
        for source in self.sources.values():
            source.close()
        self._topics.close()

    def topic_of(self, shuffle: str) -> str:
        """Return the name of the topic of a shuffle."""
        return self._topic_names[shuffle]

    def number_of(self, queue: Queue) -> int:
        """Return the number of the shard whose records are in a queue of a shuffle's topic."""
        return self._topics.number_of(queue)

    # ------------------------------------------------------------------------------------------------ sending

    def ship(self, shipments: Iterable[Shipment]) -> None:
        """Send the shipments of lanes to shuffles. Messages about removed queues are left out: another instance may
        read the queue now.
        """
        pending: Pending = {}
        there = [each for each in shipments if not isinstance(each.content, QueueRemoved)]
        route(there, self._plan.shuffles, self.shard_counts, pending)
        self._send(pending)

    def tell_idle(self, queue: Queue) -> None:
        """Tell all shards that get rows of a source's queue not to wait for it."""
        self._send(self._to_all("idle", queue.source, [queue]))

    def tell_awake(self, queue: Queue) -> None:
        """Tell all shards that get rows of a source's queue to wait for it again."""
        self._send(self._to_all("added", queue.source, [queue]))

    def tell_time(self, shards: Iterable[Shard]) -> None:
        """Send records that contain only the time of the clock."""
        self._send({(shard.queue.source, shard.number): [] for shard in shards})

    def announce(self, shards: Iterable[Shard]) -> None:
        """Tell all shards about new queues, and ``shards`` about those of their queues that were removed.

        Raises RetriableError when a source is away; it is called again then.
        """
        existing = self.upstream_queues()
        for upstream_id, queues in existing.items():
            new = sorted(queues - self._announced)
            if new:
                self._send(self._to_all("added", upstream_id, new))
        self._announced = {queue for queues in existing.values() for queue in queues}
        for shard in shards:
            gone = [
                ShardMessage("removed", queue, side)
                for queue, side in shard.upstreams
                if queue.source in existing and queue not in existing[queue.source]
            ]
            if gone:
                self._send({(shard.queue.source, shard.number): gone})

    def upstream_queues(self) -> Mapping[str, set[Queue]]:
        """Return the existing queues, by source or shuffle. Raises RetriableError."""
        existing: dict[str, set[Queue]] = {}
        for source_id, node in self._plan.sources.items():
            existing[source_id] = {Queue(queue.name, source_id) for queue in node.source.queues()}
        for name, count in self.shard_counts.items():
            existing[name] = {Queue(str(number), name) for number in range(count)}
        return existing

    def _to_all(self, kind: Literal["added", "idle"], upstream_id: str, queues: Iterable[Queue]) -> Pending:
        pending: Pending = {}
        for name, sides in self.upstream.items():
            messages = [
                ShardMessage(kind, queue, side)
                for side, ids in enumerate(sides)
                if upstream_id in ids
                for queue in queues
            ]
            if messages:
                pending |= {(name, number): messages for number in range(self.shard_counts[name])}
        return pending

    def _send(self, pending: Mapping[tuple[str, int], list[ShardMessage]]) -> None:
        time_us = int(self._clock.now() * 1_000_000)
        for (name, number), messages in pending.items():
            records = encoded(messages, time_us, self._topics.max_record_bytes)
            self._topics.append(self._topic_names[name], number, records)
            self._unflushed = True

    # ---------------------------------------------------------------------------------------------- durability

    @property
    def unflushed(self) -> bool:
        """Whether something was sent that may not be durable yet."""
        return self._unflushed

    def flush_now(self) -> bool:
        """Make sent records durable; return True. Raises RetriableError."""
        self._topics.flush()
        return True

    def flush(self) -> bool:
        """Make sent records durable; return whether they are. Raises JobFailedError if the broker is not available for too long."""
        if not self._unflushed:
            return True
        self._flushed_seconds = self._clock.monotonic()
        if self._outages.trying("send to a shuffle", self.flush_now) is None:
            return False
        self._unflushed = False
        return True

    def flush_when_due(self, *, idle: bool) -> None:
        """Flush what waits when there is nothing else to do, or when it has waited long enough."""
        if self._unflushed and (idle or self._clock.monotonic() - self._flushed_seconds >= _FLUSH_SECONDS):
            self.flush()

    def trim(self, shard: Shard, *, before: int) -> None:
        """Let the broker remove records of a shard that no instance needs any more. Raises RetriableError."""
        self._topics.trim(self.topic_of(shard.queue.source), shard.number, before=before)


def topic_name(job: str, shuffle: str) -> str:
    """Return the name of the topic of a job's shuffle: of letters, digits, ``-`` and ``_``, which all brokers accept."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", f"headrace-{job}-{shuffle}")[:90]
    # A hash keeps jobs apart whose names become equal in this way.
    return f"{plain}-{crc32(f'{job}/{shuffle}'.encode()):08x}"
