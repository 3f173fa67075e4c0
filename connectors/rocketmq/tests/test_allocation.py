"""How members share out queues."""

from __future__ import annotations

import pytest
from headrace_rocketmq import MessageQueue, averagely, consistent_hash
from headrace_rocketmq.allocation import Allocation
from hypothesis import given
from hypothesis import strategies as st

members_strategy = st.lists(st.text("abc@#0123", min_size=1, max_size=8), min_size=1, max_size=8, unique=True).map(
    sorted
)


def make_queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("topic", f"broker-{number % 2}", number // 2) for number in range(count)]


@given(members_strategy, st.integers(0, 40), st.sampled_from([averagely, consistent_hash]))
def test_each_queue_has_exactly_one_owner(members: list[str], count: int, allocation: Allocation) -> None:
    queues = sorted(make_queues(count))
    shares = [allocation(member, queues, members) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues


@given(members_strategy, st.integers(0, 40))
def test_average_shares_differ_by_one_at_most(members: list[str], count: int) -> None:
    sizes = [len(averagely(member, make_queues(count), members)) for member in members]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("members", "expected"),
    [  # as the Java client's AllocateMessageQueueAveragely shares out eight queues
        (3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (8, [[0], [1], [2], [3], [4], [5], [6], [7]]),
        (10, [[0], [1], [2], [3], [4], [5], [6], [7], [], []]),
    ],
)
def test_average_shares_are_neighbours(members: int, expected: list[list[int]]) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(8)]
    names = [f"m{number}" for number in range(members)]
    assert [[queue.queue_id for queue in averagely(name, queues, names)] for name in names] == expected


@given(members_strategy.filter(lambda members: len(members) > 1), st.integers(0, 40), st.data())
def test_when_a_member_leaves_only_its_queues_move(members: list[str], count: int, data: st.DataObject) -> None:
    queues = make_queues(count)
    gone = data.draw(st.sampled_from(members))
    rest = [member for member in members if member != gone]
    for member in rest:
        before = consistent_hash(member, queues, members)
        assert set(before) <= set(consistent_hash(member, queues, rest))


def test_the_ring_is_that_of_the_java_client() -> None:
    # MD5("a-0") begins with 31a2fa4e…; places on the ring are the first four bytes, unsigned, of each name's hash.
    queues = [MessageQueue("topic", "broker", number) for number in range(6)]
    owners = {queue.queue_id: name for name in ("c1", "c2") for queue in consistent_hash(name, queues, ["c1", "c2"])}
    assert owners == _ring_owners(["c1", "c2"], 6)


def _ring_owners(members: list[str], count: int) -> dict[int, str]:
    """The rule written down once more, plainly: the owner is the next of the members' ten places, going round."""
    from hashlib import md5

    def place(text: str) -> int:
        return int(md5(text.encode()).hexdigest()[:8], 16)

    places = [(place(f"{member}-{number}"), member) for member in members for number in range(10)]
    owners = {}
    for number in range(count):
        at = place(f"MessageQueue [topic=topic, brokerName=broker, queueId={number}]")
        owners[number] = min(places, key=lambda entry: (entry[0] < at, entry[0]))[1]
    return owners


@pytest.mark.parametrize("allocation", [averagely, consistent_hash])
def test_a_stranger_has_no_share(allocation: Allocation) -> None:
    with pytest.raises(ValueError):
        allocation("stranger", make_queues(2), ["a", "b"])
