"""``to_otlp``: what a receiver decodes is what the rows said; errors, and the contract of sinks."""

from __future__ import annotations

import gzip
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_contract import SinkContract
from headrace_contract.tasks import Moment
from headrace_otlp.otlp_sink import OtlpSink, OtlpSinkSettings
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "http" / "tests"))
from receiver import Receiver, ReceiverChecks, receiving

from tests.effort import examples

LOGS = {
    "time": "timestamp", "observed_time": "timestamp", "severity_number": "int64", "severity_text": "string",
    "event_name": "string", "body": "string", "attributes": "json", "dropped_attributes_count": "int64", "flags": "int64",
    "trace_id": "string", "span_id": "string", "scope_name": "string", "scope_version": "string", "scope_attributes": "json",
    "service_name": "string", "resource_attributes": "json",
}  # fmt: skip
SPANS = {
    "start_time": "timestamp", "end_time": "timestamp", "duration_ns": "int64", "name": "string", "kind": "string",
    "status": "string", "status_message": "string", "trace_id": "string", "span_id": "string", "parent_span_id": "string",
    "trace_state": "string", "flags": "int64", "attributes": "json", "events": "json", "links": "json",
    "dropped_attributes_count": "int64", "dropped_events_count": "int64", "dropped_links_count": "int64",
    "scope_name": "string", "scope_version": "string", "scope_attributes": "json", "service_name": "string",
    "resource_attributes": "json",
}  # fmt: skip


def sent(receiver: Receiver, rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str], **options: Any) -> list[Any]:
    """Send rows by a job; return the dead letters' reasons."""
    letters = MemorySink()
    bodies = [json.dumps(row).encode() for row in rows]
    stream = hr.stream("test", "otlp").from_(MemorySource({"q": bodies}), format="json", schema=schema)
    stream = stream.dead_letters(lambda bad: bad.to(letters))
    stream.to_otlp(receiver.url, retry_timeout="20 s", **options).run("light", show_progress=False)
    return [row["reason"] for row in letters.rows]


def read_again(receiver: Receiver, signal: str) -> list[dict[str, Any]]:
    """Return what the format of the signal makes of the requests."""
    sink = MemorySink()
    source = MemorySource({"q": [request.body for request in receiver.stored]})
    hr.stream("test", "again").from_(source, format=f"otlp-{signal}").to(sink).run("light", show_progress=False)
    return list(sink.rows)


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
COUNTS = st.integers(0, 2**32 - 1)
TIMES = st.none() | st.integers(1, 4_000_000_000).map(lambda n: f"{1970 + n % 100}-01-02T03:04:05.{n % 10**6:06}Z")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text("abc.é", min_size=1, max_size=4), VALUES, max_size=3)
TRACE_IDS, SPAN_IDS = (st.none() | st.binary(min_size=size, max_size=size).map(bytes.hex) for size in (16, 8))
SHARED = {
    "scope_name": TEXTS, "scope_version": TEXTS, "scope_attributes": OBJECTS, "service_name": TEXTS,
    "resource_attributes": OBJECTS, "attributes": OBJECTS, "dropped_attributes_count": COUNTS, "flags": COUNTS,
    "trace_id": TRACE_IDS, "span_id": SPAN_IDS,
}  # fmt: skip
LOG_ROWS = st.fixed_dictionaries(
    {"time": TIMES, "observed_time": TIMES, "severity_number": st.none() | st.integers(1, 24), "severity_text": TEXTS,
     "event_name": TEXTS, "body": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), **SHARED}
)  # fmt: skip
SPAN_ROWS = st.fixed_dictionaries(
    {"start_time": TIMES, "end_time": TIMES, "name": TEXTS, "kind": st.sampled_from(["server", "internal", "unspecified"]),
     "status": st.sampled_from(["unset", "ok", "error"]), "status_message": TEXTS, "parent_span_id": SPAN_IDS, "trace_state": TEXTS,
     "dropped_events_count": COUNTS, "dropped_links_count": COUNTS,
     "events": st.lists(st.fixed_dictionaries({"time_unix_nano": st.integers(0, 2**63), "name": st.text("ab", max_size=2),
                                               "attributes": OBJECTS, "dropped_attributes_count": COUNTS}), max_size=2),
     "links": st.lists(st.fixed_dictionaries({"trace_id": TRACE_IDS, "span_id": SPAN_IDS, "trace_state": TEXTS, "flags": COUNTS,
                                              "attributes": OBJECTS, "dropped_attributes_count": COUNTS}), max_size=2), **SHARED}
)  # fmt: skip


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its JSON read, so that the order of names does not count."""
    found = dict(row)
    for name in ("attributes", "scope_attributes", "resource_attributes", "events", "links"):
        if isinstance(found.get(name), str):
            found[name] = json.loads(found[name])
    for name in ("time", "observed_time", "start_time", "end_time"):
        if hasattr(found.get(name), "isoformat"):
            found[name] = found[name].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    found.pop("duration_ns", None)
    return found


def as_sent(row: Mapping[str, Any]) -> dict[str, Any]:
    resource = dict(row["resource_attributes"])
    if row["service_name"] is not None:
        resource["service.name"] = row["service_name"]
    return {**row, "resource_attributes": resource}


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(LOG_ROWS, min_size=1, max_size=6))
def test_logs_are_read_as_they_were(rows: list[dict[str, Any]]) -> None:
    with receiving() as receiver:
        assert sent(receiver, rows, LOGS, request_rows=4) == []
        assert _equal([plain(row) for row in read_again(receiver, "logs")], [as_sent(row) for row in rows])


def _equal(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Compare without regard to the order, which changes where requests are put together by resource."""
    left = list(found)
    for row in wanted:
        match = next((each for each in left if each == {**each, **row}), None)
        assert match is not None, (row, left)
        left.remove(match)
    return not left


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(SPAN_ROWS, min_size=1, max_size=4))
def test_spans_are_read_as_they_were(rows: list[dict[str, Any]]) -> None:
    schema = {name: kind for name, kind in SPANS.items() if name != "duration_ns"}
    with receiving() as receiver:
        assert sent(receiver, rows, schema, signal="traces") == []
        assert _equal([plain(row) for row in read_again(receiver, "traces")], [as_sent(row) for row in rows])


def test_what_a_receiver_decodes_with_the_official_messages() -> None:
    schema = {
        "time": "timestamp",
        "body": "string",
        "rule_id": "string",
        "count": "int64",
        "tags": "array<string>",
        "more": "json",
    }
    rows = [
        {"time": "2026-01-01T00:00:00Z", "body": f"b{n}", "rule_id": "r", "count": n, "tags": ["a"], "more": {"x": 1.5}}
        for n in range(3)
    ]
    with receiving() as receiver:
        assert sent(receiver, rows, schema, service_name="detection", token="t") == []
        [request] = receiver.stored
    assert request.headers["content-encoding"] == "gzip"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["authorization"] == "Bearer t"
    message = ExportLogsServiceRequest.FromString(gzip.decompress(request.raw))
    [of_resource] = message.resource_logs
    assert [(each.key, each.value.string_value) for each in of_resource.resource.attributes] == [
        ("service.name", "detection")
    ]
    [of_scope] = of_resource.scope_logs
    assert [each.body.string_value for each in of_scope.log_records] == ["b0", "b1", "b2"]
    values = {each.key: each.value for each in of_scope.log_records[2].attributes}
    assert (values["rule_id"].string_value, values["count"].int_value) == ("r", 2)
    assert values["tags"].array_value.values[0].string_value == "a"
    assert values["more"].kvlist_value.values[0].value.double_value == 1.5


def test_rows_without_a_form_are_dead_letters_and_the_others_arrive() -> None:
    rows: list[dict[str, Any]] = [{"body": str(n), "trace_id": None, "attributes": {}, "flags": 0} for n in range(6)]
    rows[1]["trace_id"], rows[2]["attributes"], rows[4]["flags"] = "12", [1], -1
    schema = {"body": "string", "trace_id": "string", "attributes": "json", "flags": "int64"}
    with receiving() as receiver:
        reasons = sent(receiver, rows, schema)
        bodies = [row["body"] for row in read_again(receiver, "logs")]
    assert bodies == ["0", "3", "5"]
    assert len(reasons) == 3
    assert "no id of 32 hexadecimal digits" in reasons[0]
    assert "not a JSON object" in reasons[1]
    assert "no form as a record" in reasons[2]


def test_what_a_receiver_leaves_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    partial = ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(rejected_log_records=2, error_message="too old")
    )
    with (
        receiving(lambda request: (200, {}, partial.SerializeToString())) as receiver,
        caplog.at_level(logging.WARNING),
    ):
        assert sent(receiver, [{"body": "a"}], {"body": "string"}) == []
        assert len(receiver.requests) == 1, "OTLP forbids to send it again"
    assert "did not send 2 records: too old" in caplog.text


def test_wrong_columns_and_options() -> None:
    stream = hr.stream("test", "otlp").from_(
        MemorySource({"q": []}), format="json", schema={"time": "string", "flags": "string"}
    )
    with pytest.raises(hr.OptionError, match="'time' is String, but in OpenTelemetry it is timestamp"):
        stream.to_otlp("http://127.0.0.1:1/v1/logs")
    with pytest.raises(hr.OptionError, match="columns are not known"):
        stream.map(lambda row: row).to_otlp("http://127.0.0.1:1/v1/logs")
    with pytest.raises(hr.OptionError, match="expected 'logs'"):
        stream.to_otlp("http://127.0.0.1:1/v1/metrics", signal="metrics")


class TestOtlpSink(ReceiverChecks, SinkContract):
    """Rows as log records whose attributes are the columns."""

    plugin = "otlp"
    refusing = 400
    types: ClassVar[Sequence[str]] = ("string", "boolean", "int64")
    crash_moments: ClassVar[Sequence[Moment]] = (Moment(3, "inside", 0.5),)

    def make_sink(self) -> OtlpSink:
        return OtlpSink(OtlpSinkSettings.of({"url": self.receiver.url}, plugin="otlp"))

    def make_with_secret(self, secret: str) -> OtlpSink:
        return OtlpSink(OtlpSinkSettings.of({"url": "http://127.0.0.1:1/", "token": secret}, plugin="otlp"))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        found = []
        for request in self.receiver.stored:
            for of_resource in ExportLogsServiceRequest.FromString(request.body).resource_logs:
                for of_scope in of_resource.scope_logs:
                    found += [_row(record.attributes) for record in of_scope.log_records]
        return found


def _row(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)
