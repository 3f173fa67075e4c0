"""Topics that instances make for themselves are not offered to who mistypes the name of a topic."""

from __future__ import annotations

import pytest
from headrace.foundation.errors import JobError
from headrace.interfaces.topics import is_own_topic
from headrace_contract.memory_topics import MemoryBroker
from headrace_kafka.errors import public_topics
from headrace_light.shared.transport import topic_name

JOBS = ["shop.orders", "räume.größe", "n" * 200 + ".x", "a b.c/d"]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("behind", ["", "-state"])
def test_every_topic_of_a_shuffle_is_known_as_one(job: str, behind: str) -> None:
    assert is_own_topic(topic_name(job, "key_by") + behind)


@pytest.mark.parametrize("name", ["orders", "headrace-orders", "my-headrace-orders-5e678deb", "headrace-orders-2024"])
def test_topics_of_people_are_not(name: str) -> None:
    assert not is_own_topic(name)


def test_errors_leave_them_out() -> None:
    own = topic_name("shop.orders", "key_by")
    assert public_topics(["orders", "__consumer_offsets", own, own + "-state"]) == ["orders"]
    broker = MemoryBroker()
    broker.create("orders", 1)
    broker.create(own, 1)
    with pytest.raises(JobError, match="no topic 'xyz'") as caught:
        broker.count("xyz")
    assert caught.value.hint == "topics: orders"
