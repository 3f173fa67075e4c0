"""Broken topics for each check: they fail that check, and no other but those named in ``also``."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.source import Reader, StartPosition
from headrace_contract import MemoryBroker, MemoryTopics, MemoryTopicSource, TopicsContract

from contract_samples.broken import Fault


class Topics(Fault, TopicsContract):
    """The contract of broken MemoryTopics; ``kind`` is what it makes."""

    patience = timedelta(seconds=5)
    several_processes = False
    kind: ClassVar[type[MemoryTopics]] = MemoryTopics
    broker: MemoryBroker | None

    def begin(self, tmp_path: Path) -> None:
        super().begin(tmp_path)
        self.broker = MemoryBroker()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "broker": None}

    def make_topics(self) -> MemoryTopics:
        self.broker = self.broker or MemoryBroker()
        return self.kind(self.broker)

    def begin_outage(self) -> None:
        assert self.broker is not None
        self.broker.begin_outage()

    def end_outage(self) -> None:
        assert self.broker is not None
        self.broker.end_outage()


class BrokenCount(Topics):
    breaks = "test_create_makes_just_so_many_queues"

    class kind(MemoryTopics):
        def create(self, topic: str, queues: int) -> None:
            super().create(topic, max(2, queues))


class BrokenTwice(Topics):
    breaks = "test_create_twice_is_harmless"

    class kind(MemoryTopics):
        def create(self, topic: str, queues: int) -> None:
            if topic in self._broker.topic_names():
                raise JobError(f"{topic} is there already")
            super().create(topic, queues)


class BrokenNumber(Topics):
    breaks = "test_another_number_of_queues_is_refused"

    class kind(MemoryTopics):
        def create(self, topic: str, queues: int) -> None:
            with contextlib.suppress(JobError):
                super().create(topic, queues)


class BrokenOrder(Topics):
    breaks = "test_order_in_each_queue"

    class kind(MemoryTopics):
        def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
            super().append(topic, queue, bodies[::-1] if len(bodies) == 4 else bodies)


class BrokenBodies(Topics):
    breaks = "test_bodies_are_unchanged"

    class kind(MemoryTopics):
        def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
            super().append(topic, queue, [b if len(b) > 1000 else b.replace(b"\r\n", b"\n") for b in bodies])


class BrokenMany(Topics):
    breaks = "test_many_records"

    class kind(MemoryTopics):
        def flush(self) -> None:
            del self._waiting[15:]
            super().flush()


class BrokenLargest(Topics):
    breaks = "test_the_largest_records"

    class kind(MemoryTopics):
        def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
            super().append(topic, queue, [body[:500_000] for body in bodies])


class BrokenFlush(Topics):
    """Only who created a topic can write to it."""

    breaks = "test_flush_makes_durable"

    class kind(MemoryTopics):
        def __init__(self, broker: MemoryBroker) -> None:
            super().__init__(broker)
            self.created: set[str] = set()

        def create(self, topic: str, queues: int) -> None:
            super().create(topic, queues)
            self.created.add(topic)

        def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
            if topic in self.created:
                super().append(topic, queue, bodies)


class BrokenClose(Topics):
    breaks = "test_close_flushes"

    class kind(MemoryTopics):
        def close(self) -> None:
            self._waiting.clear()


class BrokenKill(Topics):
    """Everything is gone with the process."""

    breaks = "test_a_kill_loses_nothing_flushed"
    several_processes = True


class BrokenOutage(Topics):
    breaks = "test_an_outage_loses_nothing"

    class kind(MemoryTopics):
        def flush(self) -> None:
            try:
                super().flush()
            except RetriableError:
                self._waiting.clear()
                raise


class BrokenGroup(Topics):
    """Everybody is alone in a group."""

    breaks = "test_a_group_shares_the_queues"

    class kind(MemoryTopics):
        def source(self, topic: str, group: str) -> MemoryTopicSource:
            return super().source(topic, group + secrets.token_hex(4))


class BrokenPosition(Topics):
    breaks = "test_a_source_goes_on_where_another_was"

    class kind(MemoryTopics):
        def source(self, topic: str, group: str) -> MemoryTopicSource:
            return _Skipping(super().source(topic, group).settings)


class _Skipping(MemoryTopicSource):
    """Leaves out the record at a position."""

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        reader = super().open(queue, start)
        if isinstance(start, ReadPosition) and start.offset < reader.latest:
            reader.seek(ReadPosition(start.offset + 1))
        return reader


class BrokenTrim(Topics):
    breaks = "test_trim_is_harmless"

    class kind(MemoryTopics):
        def trim(self, topic: str, queue: int, before: int) -> None:
            super().trim(topic, queue, before + 1)
