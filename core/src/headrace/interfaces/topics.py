"""Topics that several instances of a job create on the broker of its source, for shuffles and state."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

_OWN_TOPIC = re.compile(r"headrace-.+-[0-9a-f]{8}(-state)?")

if TYPE_CHECKING:
    from headrace.flow.messages import Queue
    from headrace.interfaces.source import GroupSource


class Topics(ABC):
    """Durable topics with a fixed number of queues, each an ordered log of records. Given by ``GroupSource.topics``.

    One thread uses it. Records of one process keep their order in a queue. If an answer of the broker was lost,
    consecutive records may be stored twice.
    """

    #: The largest record that ``append`` accepts. The caller splits larger ones.
    max_record_bytes: int

    @abstractmethod
    def create(self, topic: str, queues: int) -> None:
        """Create a topic unless it exists. On return it can be written and read. Several instances may call it at the
        same time.

        Raises JobError if it exists with another number of queues, RetriableError if the broker is not available.
        """

    @abstractmethod
    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        """Append records to the queue of that number, in order. They are durable when ``flush`` has returned.

        It does not raise while the broker is not available: records are kept until ``flush``.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything appended is durable.

        Raises RetriableError if the broker is not available: records that may be missing are kept and sent again, in
        order, by the next ``flush``. Raises JobError if the broker refuses them permanently.
        """

    @abstractmethod
    def source(self, topic: str, group: str) -> GroupSource:
        """Return a source of the topic that can join ``group``. Queues without a commit begin at EARLIEST.

        Its ``queues`` are all queues of the topic; its readers give the bodies as they were appended. The caller sets
        its ``node_name`` and closes it.
        """

    @abstractmethod
    def number_of(self, queue: Queue) -> int:
        """Return the number of a queue of a topic's source, as ``append`` takes it."""

    def trim(self, topic: str, queue: int, before: int) -> None:
        """Tell the broker to delete the records of a queue before an offset. The default leaves that to the broker's
        retention.
        """

    def close(self) -> None:
        """Flush if possible, and close connections. May be called twice."""


def is_own_topic(name: str) -> bool:
    """Return whether a topic's name is one of those that a runtime creates: ``headrace-<job>-<shuffle>-<hash>``,
    ``…-state``.
    """
    return _OWN_TOPIC.fullmatch(name) is not None
