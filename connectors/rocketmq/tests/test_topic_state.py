"""State in topics of RocketMQ: the contract of state stores, on a real broker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace.interfaces.state_store import StateStore
from headrace_contract import StateStoreContract, StorePerShuffle
from headrace_light.shared.topic_state import TopicStateStore
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.servers.rocketmq import RocketMQServer

pytestmark = pytest.mark.servers


class _Noting(TopicStateStore):
    """Notes what was saved, as a group does by its commits: brokers may show it a moment later."""

    def __init__(self, noted: dict[str, int], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._noted = noted

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        super().save(shard, version, delta, snapshot=snapshot)
        self._noted[shard] = version


class TestRocketMQTopicState(StateStoreContract):
    """A topic for each shuffle."""

    patience = timedelta(seconds=120)

    def begin(self, tmp_path: Path) -> None:
        super().begin(tmp_path)
        self.noted: dict[str, int] = {}

    @pytest.fixture(autouse=True)
    def _server(self, rocketmq_server: RocketMQServer) -> None:
        self.name_server = rocketmq_server.name_server

    def make_store(self) -> StateStore:
        given: dict[str, Any] = {"topic": "input", "name_servers": self.name_server}
        topics = RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq")).topics()
        name, noted = self.unique_name, self.noted

        def make(shuffle: str) -> StateStore:
            return _Noting(noted, topics, f"{name}_{shuffle}", 12, noted.get)

        return StorePerShuffle(make, topics.close)
