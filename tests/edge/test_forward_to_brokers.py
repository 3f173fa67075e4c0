"""A box at the edge whose broker is away: all that senders were answered is in Kafka or RocketMQ when it is back, also after kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_buffer.log import RecordLog, WhenFull

from tests.edge.box import Box, arrived
from tests.eventually import eventually
from tests.servers.fixtures import StartKafkaServer, StartRocketMQServer

ROW_BYTES = 1_000


def forwards_all(
    server: Any, broker: str, servers: dict[str, str], fresh_name: Callable[[str], str], directory: Path
) -> None:
    topic = fresh_name("forward")
    box = Box(directory, broker, servers, topic)

    def there() -> list[int]:
        return arrived(broker, servers, topic, fresh_name("check"))

    try:
        box.send(100)
        eventually(lambda: len(set(there())) == 100, "what was sent while the broker was there", pause_seconds=0.2)
        server.stop()
        for _ in range(3):
            box.send(200)
            box.kill()
            box.start()
        box.send(100)
        server.start()
        eventually(lambda: len(set(there())) == box.sent, "everything", pause_seconds=0.2)
    finally:
        box.kill()
    assert sorted(set(there())) == list(range(800))


@pytest.mark.timeout(300)
def test_kafka_is_away(start_kafka_server: StartKafkaServer, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    server = start_kafka_server()
    forwards_all(server, "kafka", {"servers": server.bootstrap}, fresh_name, tmp_path)


@pytest.mark.timeout(300)
def test_rocketmq_is_away(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    server = start_rocketmq_server()
    forwards_all(server, "rocketmq", {"name_servers": server.name_server}, fresh_name, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
def test_a_full_buffer_drops_the_oldest_or_the_newest_and_counts(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str], tmp_path: Path, when_full: WhenFull
) -> None:
    """4 MB come while RocketMQ is away, and the buffer may have 2 MiB: one end of them arrives, without a gap; the rest is counted."""
    server, topic = start_rocketmq_server(), fresh_name("forward")
    servers = {"name_servers": server.name_server}
    box = Box(tmp_path, "rocketmq", servers, topic, buffer_max_bytes="2 MiB", when_full=when_full)

    def there() -> set[int]:
        return set(arrived("rocketmq", servers, topic, fresh_name("check")))

    try:
        box.send(1)
        eventually(lambda: there() == {0}, "the first record", pause_seconds=0.2)
        server.stop()
        for _ in range(40):
            box.send(100, pad="x" * ROW_BYTES, until=(200,) if when_full == "drop_oldest" else (200, 429))
        box.kill()
        box.start()
        server.start()
        last = max if when_full == "drop_oldest" else min
        wanted = box.sent - 1 if when_full == "drop_oldest" else 1
        eventually(lambda: last(there() - {0}, default=-1) == wanted, "one end of the records", pause_seconds=0.2)
        box.send(1)
        eventually(lambda: box.sent - 1 in there(), "a record after the outage", pause_seconds=0.2)
    finally:
        box.kill()
    found = sorted(there() - {0, box.sent - 1})
    assert 1_000 < len(found) < 2_100
    first = box.sent - 1 - len(found) if when_full == "drop_oldest" else 1
    assert found == list(range(first, first + len(found)))
    dropped = 4_000 - len(found)
    log = RecordLog(tmp_path / "buffer", quota_bytes=2 * 1024**2, when_full=when_full)
    counted = log.status()
    log.close()
    if when_full == "drop_oldest":
        assert (counted.dropped_oldest, counted.dropped_newest) == (dropped, 0)
    else:  # saved once a second: the kill may lose the count of the last one
        assert counted.dropped_oldest == 0
        assert 0 < counted.dropped_newest <= dropped
