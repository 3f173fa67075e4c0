"""Topics that a runtime of several instances makes for itself on the broker of a job's source: for shuffles and state."""

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

    Used by one thread. Records of one process keep their order in a queue; when an answer of the broker was lost, a run of
    them may be there twice.
    """

    #: The largest record that ``append`` takes. Who has more to say divides it.
    max_record_bytes: int

    @abstractmethod
    def create(self, topic: str, queues: int) -> None:
        """Make a topic unless it is there; it can be written and read on return. Several instances may do it at once.

        Raises JobError when it exists with another number of queues, RetriableError when the broker is away.
        """

    @abstractmethod
    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        """Append records to the queue of that number, in order. They are durable when ``flush`` has returned.

        Does not raise because the broker is away: they are kept until ``flush``.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything appended is durable.

        Raises RetriableError when the broker is away: what may be missing is kept and sent again, in order, by the next
        ``flush``. Raises JobError when the broker refuses it for good.
        """

    @abstractmethod
    def source(self, topic: str, group: str) -> GroupSource:
        """Return a source of the topic that can join ``group`` and begins queues without commit at EARLIEST.

        Its ``queues`` are all of the topic, its readers give the bodies as they were appended. The caller sets its
        ``node_name`` and closes it.
        """

    @abstractmethod
    def number_of(self, queue: Queue) -> int:
        """Return the number, as in ``append``, of a queue that a source of a topic has."""

    def trim(self, topic: str, queue: int, before: int) -> None:
        """Let the broker forget the records of a queue before an offset. The default leaves it to its retention."""

    def close(self) -> None:
        """Give back connections, after a last flush if it is possible. May be called twice."""


def is_own_topic(name: str) -> bool:
    """Return whether a topic's name is one that a runtime makes for itself: ``headrace-<job>-<shuffle>-<hash>``, ``…-state``."""
    return _OWN_TOPIC.fullmatch(name) is not None
