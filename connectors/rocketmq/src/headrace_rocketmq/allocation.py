"""How the queues of a topic are assigned to the members of a consumer group.

There is no leader: each member computes the same result from the same sorted queues and member ids. So all members of a
group, in whatever language, must use the same rule. These two give what the Java client's AllocateMessageQueueAveragely
and AllocateMessageQueueConsistentHash give.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence

from headrace_rocketmq.routes import MessageQueue

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(own member id, sorted queues, sorted member ids including one's own) → one's own queues."""

_VIRTUAL_NODES = 10


def averagely(member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Equal shares of neighbouring queues; the first members get one more if the number cannot be divided evenly.

    With fewer queues than members, the last members get none and wait. Each member that joins or leaves moves many queues.
    Raises ValueError if `member` is not among `members`.
    """
    index = members.index(member)
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])


def consistent_hash(member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Each queue goes to the next member on a ring of hashes: few queues move when a member comes or goes.

    Shares are uneven: with few queues some members get none. Raises ValueError if `member` is not among `members`.
    """
    if member not in members:
        raise ValueError(f"{member!r} is not among the members {list(members)}")
    ring: dict[int, str] = {}
    for name in members:
        for number in range(_VIRTUAL_NODES):
            ring[_hash(f"{name}-{number}")] = name
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        at = bisect_left(places, _hash(text))
        return ring[places[at % len(places)]]

    return [queue for queue in queues if owner(queue) == member]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
