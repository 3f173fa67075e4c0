"""The contract suite for the RocketMQ sink, at least once and idempotent, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace.interfaces.source import EARLIEST
from headrace_contract import Moment, SinkContract
from headrace_rocketmq.settings import RocketMQSinkSettings, RocketMQSourceSettings
from headrace_rocketmq.sink import RocketMQSink
from headrace_rocketmq.source import RocketMQSource

from .reading import ServedByRocketMQ, settle

pytestmark = pytest.mark.servers


class RocketMQSinkChecks(ServedByRocketMQ, SinkContract):
    """A topic of two queues per check; rows as JSON. Read by our own source, which the client's tests stand behind."""

    plugin = "rocketmq"
    delivery: ClassVar[str]
    # Starting a process costs a second: three moments inside an insert, not five.
    crash_moments = (
        Moment(1, "after"),
        Moment(3, "before"),
        *(Moment(3, "inside", fraction) for fraction in (0.3, 0.6, 0.9)),
        Moment(3, "after"),
    )

    def make(self, **options: Any) -> RocketMQSink:
        given = {
            "topic": self.unique_name,
            "name_servers": self.server.name_server,
            "delivery": self.delivery,
            "request_timeout": "3 s",
            **options,
        }
        return RocketMQSink(RocketMQSinkSettings.of(given, plugin="rocketmq"))

    def make_sink(self) -> RocketMQSink:
        return self.make(create_topic=True, queues=2)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        settle(self.client)
        given = {
            "topic": self.unique_name,
            "name_servers": self.server.name_server,
            "deduplicate": self.delivery == "idempotent",
        }
        source = RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))
        rows: list[Mapping[str, Any]] = []
        for queue in source.queues():
            reader = source.open(queue, EARLIEST)
            end = reader.latest
            while reader.position.offset < end:
                raw = reader.poll(1000, timedelta(seconds=1))
                rows += map(json.loads, raw.bodies or ()) if raw is not None else ()
            reader.close()
        source.close()
        return rows

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(0), "text": "x" * 5_000_000}

    def make_sink_without_target(self) -> RocketMQSink:
        return self.make(topic="no_such_topic")

    def make_with_secret(self, secret: str) -> RocketMQSink:
        return self.make(name_servers="127.0.0.1:1", request_timeout="300 ms", access_key="u", secret_key=secret)


class TestRocketMQSink(RocketMQSinkChecks):
    delivery = "at_least_once"


class TestIdempotentSink(RocketMQSinkChecks):
    delivery = "idempotent"
