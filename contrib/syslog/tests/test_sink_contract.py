"""The contract suite for the sink, against a receiver over TCP."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
import pytest
from headrace_contract import SinkContract
from headrace_contract.values import ALL_TYPES
from headrace_syslog import SyslogSink, SyslogSinkSettings
from syslog_receiver import Receiver, parsed


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
        return {name: _as_read(value) for name, value in row.items()}

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(10**9), "text": "x" * 20_000}

    def begin_outage(self) -> None:
        self.receiver.stop()

    def end_outage(self) -> None:
        self.receiver.start()


def _as_read(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    if isinstance(value, dt.timedelta):
        return pl.Series([value]).dt.to_string("iso").item()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
