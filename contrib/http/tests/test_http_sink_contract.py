"""The contract suite for the sink, against a web server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from headrace_contract import SinkContract
from headrace_contract.tasks import Moment
from headrace_contract.values import ALL_TYPES
from headrace_http import HttpSink, HttpSinkSettings
from receiver import ReceiverChecks

from tests.json_values import as_json_value


class SinkChecks(ReceiverChecks, SinkContract):
    plugin = "http"
    refusing = 422
    # JSON has these in other forms, which test_http_sink.py shows.
    types: ClassVar[Sequence[str]] = [
        name for name in ALL_TYPES if name not in ("float32", "json") and "decimal" not in name
    ]
    more: ClassVar[Mapping[str, Any]] = {}
    crash_moments: ClassVar[Sequence[Moment]] = (Moment(1, "after"), Moment(3, "inside", 0.5), Moment(3, "after"))

    def make_sink(self) -> HttpSink:
        return HttpSink(HttpSinkSettings.of({"url": self.receiver.url, **self.more}, plugin="http"))

    def make_with_secret(self, secret: str) -> HttpSink:
        url = "http://127.0.0.1:1/"
        given = dict.fromkeys(("secret_path", "token", "api_key", "signature_key"), secret)
        return HttpSink(HttpSinkSettings.of({"url": url, **given}, plugin="http"))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return self.receiver.rows()

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: as_json_value(value) for name, value in row.items()}


class TestArrays(SinkChecks):
    """Rows in JSON arrays."""


@pytest.mark.slow
class TestLines(SinkChecks):
    """Rows as compressed lines, several requests at the same time."""

    more: ClassVar[Mapping[str, Any]] = {"body": "ndjson", "compress": True, "request_rows": 3, "parallel_requests": 3}
    types: ClassVar[Sequence[str]] = ("string",)
    crash_moments: ClassVar[Sequence[Moment]] = (Moment(3, "inside", 0.5),)


@pytest.mark.slow
class TestRows(SinkChecks):
    """A request for each row."""

    more: ClassVar[Mapping[str, Any]] = {"body": "row"}
    types: ClassVar[Sequence[str]] = ("string",)
    crash_moments: ClassVar[Sequence[Moment]] = (Moment(3, "inside", 0.5),)
