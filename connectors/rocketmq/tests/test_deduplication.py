"""Row ids: what is taken for a repetition, in memory and on a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import polars as pl
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.source import EARLIEST, Reader
from headrace_rocketmq import Client, Message
from headrace_rocketmq.deduplication import SeenRows, upstream_name, without_row_ids
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource
from hypothesis import given
from hypothesis import strategies as st

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

A, B = upstream_name("ns.job.sink", "source/topic/broker/0"), upstream_name("ns.job.sink", "a b:c#dead")


def ids(upstream: str, *places: tuple[int, int]) -> list[str | None]:
    return [f"{upstream}:{offset}:{index}" for offset, index in places]


def test_names_are_escaped() -> None:
    assert A == "hr:ns.job.sink/source/topic/broker/0"
    assert B == "hr:ns.job.sink/a%20b%3Ac%23dead"


def test_the_second_copy_is_left_out() -> None:
    seen = SeenRows()
    assert seen.fresh(ids(A, (0, 0), (0, 1), (1, 0), (0, 1), (1, 0), (2, 0))).tolist() == [1, 1, 1, 0, 0, 1]
    assert seen.fresh(ids(A, (1, 0), (2, 0), (2, 1))).tolist() == [0, 0, 1]


def test_queues_and_writers_are_kept_apart() -> None:
    seen = SeenRows()
    other = upstream_name("ns.other.sink", "source/topic/broker/0")
    assert seen.fresh(ids(A, (5, 0)) + ids(B, (1, 0)) + ids(other, (1, 0)) + ids(A, (4, 0))).tolist() == [1, 1, 1, 0]


def test_other_messages_are_left_alone() -> None:
    keys = [None, "", "k1 k2", "hr:x", "hr:x:1", f"k {A}:1:1", f"hr:x:{2**70}:0", "hr:x:-1:0"]
    assert SeenRows().fresh(keys * 2).all()
    assert SeenRows().fresh([]).tolist() == []


def test_further_keys_do_not_matter() -> None:
    assert SeenRows().fresh([f"{A}:1:0 order-7", f"{A}:1:0 order-8"]).tolist() == [1, 0]


def test_row_ids_are_no_keys() -> None:
    keys = pl.Series(["a b", f"{A}:1:0", f"{A}:1:0 order-7", None, "hr:odd", ""])
    assert without_row_ids(keys).to_list() == ["a b", None, "order-7", None, "hr:odd", None]


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 6), st.integers(0, 2)), max_size=30), st.integers(0, 30)
)
def test_it_is_the_running_maximum_however_cut(rows: list[tuple[str, int, int]], cut: int) -> None:
    seen, greatest, expected = SeenRows(), dict[str, tuple[int, int]](), []
    for upstream, offset, index in rows:
        expected.append((offset, index) > greatest.get(upstream, (-1, -1)))
        greatest[upstream] = max((offset, index), greatest.get(upstream, (-1, -1)))
    keys: list[str | None] = [f"{upstream}:{offset}:{index}" for upstream, offset, index in rows]
    assert [*seen.fresh(keys[:cut]).tolist(), *seen.fresh(keys[cut:]).tolist()] == expected


def drained(reader: Reader) -> list[bytes]:
    found: list[bytes] = []
    end = reader.latest
    while reader.position.offset < end:
        raw = reader.poll(7, timedelta(seconds=1))
        if raw is not None and raw.bodies is not None:
            found += raw.bodies
    return found


@pytest.mark.servers
class TestOnABroker:
    @pytest.fixture
    def queue(self, client: Client, topic: str) -> Queue:
        """A queue with rows 0–199 of A, 150–249 again, mixed with other messages, 600 in all."""
        [queue] = client.create_topic(topic, 1)
        numbers = [*range(200), *range(150, 250)]
        order = random.Random(7)
        sent: list[Message] = []
        while numbers:
            if order.random() < 0.5 and len(sent) + len(numbers) < 600:
                sent.append(Message(b"other"))
            else:
                number = numbers.pop(0)
                sent.append(Message(b"%d" % number, keys=f"{A}:{number}:0"))
        client.send_many(topic, sent)
        eventually(lambda: client.latest_offsets([queue])[queue] == len(sent), "all is there")
        self.places = {message.body: place for place, message in reversed(list(enumerate(sent)))}
        self.repeated_from = max(place for place, message in enumerate(sent) if message.body == b"150")
        self.last_of_first_copies = self.places[b"199"]
        return Queue(str(queue))

    @pytest.fixture
    def make(self, rocketmq_server: RocketMQServer, topic: str) -> Callable[..., RocketMQSource]:
        def make(**options: object) -> RocketMQSource:
            given = {"topic": topic, "name_servers": rocketmq_server.name_server, "deduplicate": True, **options}
            return RocketMQSource(RocketMQSourceSettings.of(given))

        return make

    def test_each_row_comes_once(self, queue: Queue, make: Callable[..., RocketMQSource]) -> None:
        source = make()
        found = [body for body in drained(source.open(queue, EARLIEST)) if body != b"other"]
        assert found == [b"%d" % number for number in range(250)]
        source.close()

    @pytest.mark.parametrize("window", [100_000, 400, 0])
    def test_a_restart_looks_back_as_far_as_it_may(
        self, queue: Queue, make: Callable[..., RocketMQSource], window: int
    ) -> None:
        """The reader starts where the repetitions begin: it drops those whose first copy lies within its window."""
        source = make(deduplicate_window=window)
        reader = source.open(queue, ReadPosition(self.repeated_from))
        found = [int(body) for body in drained(reader) if body != b"other"]
        assert found == list(range(150 if window == 0 else 200, 250))
        reader.seek(ReadPosition(self.repeated_from))  # reading again gives the same again
        assert [int(body) for body in drained(reader) if body != b"other"] == found
        source.close()
