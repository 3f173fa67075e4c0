"""Topics of which the broker keeps the last message of each key (``cleanup.policy=COMPACTION``), as tables: ``format="upsert"``."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count

import headrace as hr
import pytest
from headrace_rocketmq import Client, Message

from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions

pytestmark = [pytest.mark.servers, pytest.mark.slow]

#: The broker compacts files that are full, so they are small, and it looks often.
COMPACTING = {
    "compactionScheduleInternal": "500", "compactionMappedFileSize": "16384", "compactionCqMappedFileSize": "4000",
}  # fmt: skip
ROUNDS, KEYS = 30, 20


@pytest.mark.timeout(900)
def test_a_compacted_topic_is_a_table(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str]
) -> None:
    server = start_rocketmq_server(RocketMQOptions(config=COMPACTING))
    topic = fresh_name("accounts")
    with Client(server.name_server) as client:
        [queue] = client.create_topic(topic, 1, attributes={"cleanup.policy": "COMPACTION"})
        for balance in range(ROUNDS):
            for number in range(KEYS):
                body = {"number": number, "balance": balance, "note": "x" * 200}
                client.send(topic, Message(json.dumps(body).encode(), keys=[str(number)]))
        assert client.latest_offsets([queue]) == {queue: ROUNDS * KEYS}
    runs = count()

    def read(*, changes: bool = False) -> list[tuple[int, int]]:
        """Read all that the topic has, each time as another group."""
        stream = hr.stream("bank", f"run{next(runs)}").from_rocketmq(
            topic, name_servers=server.name_server, format="upsert", key="number", start="earliest", normalize=False,
            schema={"number": "int64", "balance": "int64"},
        )  # fmt: skip
        return stream.normalize_changes().collect(changes=changes).select("number", "balance").rows()

    wanted = [(number, ROUNDS - 1) for number in range(KEYS)]
    assert sorted(read()) == wanted
    # Each kept message of a key is a change.
    eventually(lambda: len(read(changes=True)) < ROUNDS * KEYS / 2, "the topic is compacted")
    assert sorted(read()) == wanted
