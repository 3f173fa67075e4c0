"""The contract suite for the sink, against a receiver over TCP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from headrace_contract import SinkContract
from headrace_contract.values import ALL_TYPES
from headrace_syslog import SyslogSink, SyslogSinkSettings
from syslog_receiver import Receiver, parsed

from tests.json_values import as_json_value


class TestSyslogSink(SinkContract):
    plugin = "syslog"
    longest_text = 10_000
    # JSON has these in other forms.
    types: ClassVar[Sequence[str]] = [
        name for name in ALL_TYPES if name not in ("float32", "json") and "decimal" not in name
    ]

    @pytest.fixture(autouse=True)
    def _receiver(self) -> Iterator[None]:
        self.receiver = Receiver()
        yield
        self.receiver.stop()

    def make_sink(self) -> SyslogSink:
        options = {"host": "127.0.0.1", "port": self.receiver.port, "message_bytes": 20_000}
        return SyslogSink(SyslogSinkSettings.of(options, plugin="syslog"))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        self.receiver.settle()
        return [json.loads(parsed(message).text or b"") for message in self.receiver.messages]

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: as_json_value(value) for name, value in row.items()}

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(10**9), "text": "x" * 20_000}

    def begin_outage(self) -> None:
        self.receiver.stop()

    def end_outage(self) -> None:
        self.receiver.start()
