"""Consumer groups on a real broker: shares, hand-over, commits, locks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from headrace_rocketmq import Client, Consumer, Filter, Message, MessageQueue, Start, consistent_hash
from headrace_rocketmq.errors import ClientClosedError, ConfigurationError, TopicNotFoundError

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

from .reading import PATIENCE_S, bodies, bodies_by_queue, poll_messages

NOT_LONG = timedelta(milliseconds=20)


class Member:
    """A consumer with its client, and a record of what it was told."""

    def __init__(self, name_server: str, group: str, topic: str, **options: object) -> None:
        self.client = Client(name_server)
        self.events: list[tuple[str, list[MessageQueue]]] = []
        self.received: list[bytes] = []
        self.consumer = self.client.consumer(
            group,
            topic,
            on_assigned=lambda queues: self.events.append(("assigned", sorted(queues))),
            on_revoked=lambda queues: self.events.append(("revoked", sorted(queues))),
            **options,  # type: ignore[arg-type]
        )

    def poll(self) -> None:
        for batch in self.consumer.poll(100, NOT_LONG):
            self.received += batch.bodies

    def vanish(self) -> None:
        """End as if killed: the connections break, nothing is said."""
        for connection in self.consumer._session.pool.open_connections():
            connection.fail("the process was killed")
        self.consumer._session.close()

    def leave(self) -> None:
        self.consumer.close()
        self.client.close()


@pytest.fixture
def join(rocketmq_server: RocketMQServer, topic: str, consumer_group: str) -> Iterator[Callable[..., Member]]:
    """Make a member of the test's group; it leaves after the test."""
    with ExitStack() as stack:

        def make(**options: object) -> Member:
            member = Member(rocketmq_server.name_server, consumer_group, topic, **options)
            stack.callback(member.leave)
            return member

        yield make


def settle(members: Collection[Member], queues: Collection[MessageQueue], shares: list[int]) -> None:
    """Poll all members until they hold all queues, once each, in shares of these sizes (in any order)."""

    def is_settled() -> bool:
        for member in members:
            member.poll()
        held = [queue for member in members for queue in member.consumer.queues]
        sizes = sorted(len(member.consumer.queues) for member in members)
        return sorted(held) == sorted(queues) and sizes == sorted(shares)

    eventually(is_settled, f"shares of {shares}")


def test_one_member_reads_everything_and_goes_on_where_it_committed(
    client: Client, topic: str, consumer_group: str
) -> None:
    queues = client.create_topic(topic, 4)
    sent = [b"%d" % number for number in range(1000)]
    client.send_many(topic, [Message(body, queue_key=str(number)) for number, body in enumerate(sent)])
    with client.consumer(consumer_group, topic) as consumer:
        assert sorted(bodies(poll_messages(consumer, 1000))) == sorted(sent)
        assert consumer.queues == queues
        consumer.commit()
        assert client.committed_offsets(consumer_group, queues) == client.latest_offsets(queues)
        client.send_many(topic, [Message(b"polled, not committed")] * 3)
        poll_messages(consumer, 3)
    with client.consumer(consumer_group, topic) as consumer:
        assert bodies(poll_messages(consumer, 3)) == [b"polled, not committed"] * 3


def test_committing_chosen_offsets(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"%d" % number) for number in range(10)], queue=queue)
    with client.consumer(consumer_group, topic) as consumer:
        poll_messages(consumer, 10)
        consumer.commit({queue: 4})
        with pytest.raises(ConfigurationError, match="this consumer does not own"):
            consumer.commit({MessageQueue(topic, queue.broker_name, 1): 4})
        with pytest.raises(ConfigurationError, match="this consumer does not own"):
            consumer.commit({MessageQueue("other", queue.broker_name, 0): 4})
    with client.consumer(consumer_group, topic) as consumer:
        assert bodies(poll_messages(consumer, 6)) == [b"%d" % number for number in range(4, 10)]


def test_starting_with_the_earliest_message(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"old")] * 3, queue=queue)
    with client.consumer(consumer_group, topic, start=Start.EARLIEST) as consumer:
        assert bodies(poll_messages(consumer, 3)) == [b"old"] * 3


def test_starting_with_the_next_message(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"old")] * 3, queue=queue)
    eventually(lambda: client.latest_offsets([queue])[queue] == 3, "all in the queue")
    with client.consumer(consumer_group, topic, start=Start.LATEST) as consumer:
        assert consumer.poll(1, NOT_LONG) == []
        assert consumer.queues == [queue]
        client.send_many(topic, [Message(b"new")] * 2, queue=queue)
        assert bodies(poll_messages(consumer, 2)) == [b"new"] * 2


def test_starting_at_a_moment(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"old")] * 3, queue=queue)
    stored_ms = poll_messages(client.reader({queue: 0}), 3)[-1].store_timestamps_ms[-1]
    moment = datetime.fromtimestamp(stored_ms / 1000, UTC) + timedelta(milliseconds=1)
    eventually(lambda: datetime.now(UTC) > moment, "the next millisecond")
    client.send_many(topic, [Message(b"new")] * 2, queue=queue)
    eventually(lambda: client.latest_offsets([queue])[queue] == 5, "all in the queue")
    with client.consumer(consumer_group, topic, start=moment) as consumer:
        assert bodies(poll_messages(consumer, 2)) == [b"new"] * 2


def test_what_was_committed_comes_before_where_to_start(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"%d" % number) for number in range(5)], queue=queue)
    client.create_group(consumer_group)
    client.commit_offsets(consumer_group, {queue: 3})
    with client.consumer(consumer_group, topic, start=Start.LATEST) as consumer:
        assert bodies(poll_messages(consumer, 2)) == [b"3", b"4"]


def test_seeking_when_assigned(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"%d" % number) for number in range(5)], queue=queue)

    def seek(queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            consumer.seek(queue, 4)

    with client.consumer(consumer_group, topic, on_assigned=seek) as consumer:
        assert bodies(poll_messages(consumer, 1)) == [b"4"]


def test_members_share_and_take_over(client: Client, topic: str, join: Callable[..., Member]) -> None:
    queues = client.create_topic(topic, 6)
    first = join()
    settle([first], queues, [6])
    second = join()
    settle([first, second], queues, [3, 3])
    third = join()
    settle([first, second, third], queues, [2, 2, 2])
    second.leave()
    settle([first, third], queues, [3, 3])
    assert second.events[-1][0] == "revoked"
    third.vanish()
    settle([first], queues, [6])


def test_what_members_are_told_adds_up(client: Client, topic: str, join: Callable[..., Member]) -> None:
    queues = client.create_topic(topic, 4)
    first = join()
    settle([first], queues, [4])
    second = join()
    settle([first, second], queues, [2, 2])
    first.leave()
    settle([second], queues, [4])
    for member in (first, second):
        held: set[MessageQueue] = set()
        for what, changed in member.events:
            if what == "assigned":
                assert held.isdisjoint(changed)
                held |= set(changed)
            else:
                assert set(changed) <= held
                held -= set(changed)
        assert held == set(member.consumer.queues)


def test_members_without_a_queue_stand_by(client: Client, topic: str, join: Callable[..., Member]) -> None:
    queues = client.create_topic(topic, 2)
    members = [join() for _ in range(3)]
    settle(members, queues, [1, 1, 0])
    standing_by = next(member for member in members if not member.consumer.queues)
    reading = [member for member in members if member is not standing_by]
    reading[0].vanish()
    settle([reading[1], standing_by], queues, [1, 1])
    client.send_many(topic, [Message(b"x", queue_key=str(number)) for number in range(20)])

    def all_received() -> bool:
        standing_by.poll()
        reading[1].poll()
        return len(standing_by.received + reading[1].received) == 20

    eventually(all_received, "all messages read by the two that are left")


def test_a_queue_that_is_added_is_taken(client: Client, topic: str, join: Callable[..., Member]) -> None:
    client.create_topic(topic, 1)
    member = join()
    settle([member], client.queues(topic), [1])
    queues = client.create_topic(topic, 3)
    second = join()  # all members look again, which they do every 20 s anyhow
    settle([member, second], queues, [2, 1])


def test_shares_by_consistent_hash(client: Client, topic: str, join: Callable[..., Member]) -> None:
    queues = client.create_topic(topic, 8)
    members = [join(allocation=consistent_hash) for _ in range(2)]
    ids = sorted(member.consumer.member_id for member in members)
    expected = [len(consistent_hash(member, queues, ids)) for member in ids]
    settle(members, queues, expected)


def test_nothing_is_lost_while_members_come_and_go(client: Client, topic: str, join: Callable[..., Member]) -> None:
    queues = client.create_topic(topic, 6)
    total = 3000
    sending = threading.Thread(
        target=lambda: [
            client.send_many(topic, [Message(b"%d" % number, queue_key=str(number)) for number in range(at, at + 100)])
            for at in range(0, total, 100)
        ]
    )
    received: set[bytes] = set()

    def poll_and_commit(member: Member) -> None:
        member.poll()
        received.update(member.received)
        member.consumer.commit()

    members = [join()]
    sending.start()
    for step in range(6):
        members.append(join())
        for _ in range(5):
            for member in members:
                poll_and_commit(member)
        gone = members.pop(0)
        gone.vanish() if step % 2 else gone.leave()

    def is_complete() -> bool:
        poll_and_commit(members[0])
        return len(received) == total

    eventually(is_complete, f"all {total} messages")
    sending.join(PATIENCE_S)
    assert received == {b"%d" % number for number in range(total)}
    settle(members, queues, [6])


def test_exclusive_members_never_hold_one_queue_together(
    client: Client, topic: str, join: Callable[..., Member]
) -> None:
    queues = client.create_topic(topic, 4)
    members = [join(exclusive=True), join(exclusive=True)]
    held_together: list[MessageQueue] = []

    def is_settled() -> bool:
        for member in members:
            member.poll()
            held = [queue for each in members for queue in each.consumer.queues]
            held_together.extend({queue for queue in held if held.count(queue) > 1})
        return sorted(held) == queues and {len(member.consumer.queues) for member in members} == {2}

    eventually(is_settled, "two queues each")
    members.pop().leave()
    settle(members, queues, [4])
    assert held_together == []


def test_an_exclusive_member_waits_until_the_other_let_go(
    client: Client, topic: str, join: Callable[..., Member]
) -> None:
    queues = client.create_topic(topic, 2)
    first = join(exclusive=True)
    settle([first], queues, [2])
    second = join(exclusive=True)
    # The first does not poll, so it cannot have given up anything.
    for _ in range(20):
        second.poll()
        assert second.consumer.queues == []
    settle([first, second], queues, [1, 1])


def test_filters_and_several_topics(client: Client, topic: str, consumer_group: str) -> None:
    topics = [topic, f"{topic}-2"]
    for name in topics:
        client.create_topic(name, 2)
        client.send_many(name, [Message(f"{name} {tag}".encode(), tag=tag) for tag in ("a", "b", "c")])
    with client.consumer(consumer_group, topics, message_filter=Filter.by_tags("a", "c")) as consumer:
        received = sorted(bodies(poll_messages(consumer, 4)))
    assert received == sorted(f"{name} {tag}".encode() for name in topics for tag in ("a", "c"))


def test_two_consumers_of_one_client(client: Client, topic: str, consumer_group: str) -> None:
    queues = client.create_topic(topic, 2)
    with client.consumer(consumer_group, topic) as first, client.consumer(consumer_group, topic) as second:

        def share() -> bool:
            first.poll(10, NOT_LONG)
            second.poll(10, NOT_LONG)
            return sorted(first.queues + second.queues) == queues and len(first.queues) == 1

        eventually(share, "one queue each")


def test_a_rebalance_ends_a_long_poll_of_a_member_that_stands_by(
    client: Client, topic: str, join: Callable[..., Member]
) -> None:
    queues = client.create_topic(topic, 1)
    members = [join(), join()]
    settle(members, queues, [1, 0])
    standing_by, holder = sorted(members, key=lambda member: len(member.consumer.queues))
    polled = threading.Event()
    received: list[bytes] = []

    def poll_long() -> None:
        received.extend(bodies(standing_by.consumer.poll(10, timedelta(seconds=60))))
        polled.set()

    thread = threading.Thread(target=poll_long)
    thread.start()
    holder.leave()
    client.send(topic, Message(b"for the heir"))
    assert polled.wait(PATIENCE_S)
    thread.join()
    assert received == [b"for the heir"]


def test_a_listener_that_fails_does_not_keep_queues(client: Client, topic: str, consumer_group: str) -> None:
    client.create_topic(topic, 1)

    def fail(_queues: Collection[MessageQueue]) -> None:
        raise RuntimeError("the sink is gone")

    consumer: Consumer = client.consumer(consumer_group, topic, on_revoked=fail)
    eventually(lambda: bool(consumer.poll(1, NOT_LONG)) or bool(consumer.queues), "the queue")
    with pytest.raises(RuntimeError, match="the sink is gone"):
        consumer.close()
    assert consumer.queues == []
    with pytest.raises(ClientClosedError):
        consumer.poll(1, NOT_LONG)
    with client.consumer(consumer_group, topic) as heir:
        eventually(lambda: bool(heir.poll(1, NOT_LONG)) or bool(heir.queues), "the queue is taken over")


def test_joining_for_an_unknown_topic(client: Client, topic: str, consumer_group: str) -> None:
    with pytest.raises(TopicNotFoundError, match=topic):
        client.consumer(consumer_group, topic)
    with pytest.raises(ConfigurationError, match="no topic"):
        client.consumer(consumer_group, [])


def test_committed_and_polled_offsets_by_queue(client: Client, topic: str, consumer_group: str) -> None:
    queues = client.create_topic(topic, 2)
    client.send_many(topic, [Message(b"a")] * 5, queue=queues[0])
    client.send_many(topic, [Message(b"b")] * 3, queue=queues[1])
    with client.consumer(consumer_group, topic) as consumer:
        batches = poll_messages(consumer, 8)
        assert {queue: len(found) for queue, found in bodies_by_queue(batches).items()} == {queues[0]: 5, queues[1]: 3}
        consumer.commit()
        consumer.commit()  # nothing new: nothing to do
    assert client.committed_offsets(consumer_group, queues) == {queues[0]: 5, queues[1]: 3}
