"""Which sources of one job would take each other's queues."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource


def memberships(topic: str, **options: str) -> set[str]:
    given = {"topic": topic, "name_servers": "127.0.0.1:1", **options}
    source = RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))
    source.reader_name = "job.orders"
    return set(source.memberships())


def test_sources_of_one_group_take_each_others_queues_whatever_their_topics() -> None:
    """A broker assigns the queues of each topic of a group to all of its members: those of other topics would not read them."""
    assert memberships("orders", group="shop") & memberships("payments", group="shop")
    assert memberships("orders", group="shop", name_servers="a:1;b:1") & memberships(
        "orders", group="shop", name_servers="b:1; a:1"
    )


def test_sources_with_groups_of_their_own_do_not() -> None:
    def each() -> Iterator[set[str]]:
        yield memberships("orders")
        yield memberships("payments")
        yield memberships("orders", group="shop")
        yield memberships("orders", group="shop", name_servers="b:1")

    assert not any(one & other for one, other in combinations(each(), 2))
