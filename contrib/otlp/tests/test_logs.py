"""What becomes of log records: values, several rows of a body, both encodings alike, bodies that are bad."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import headrace as hr
import pytest
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySink, MemorySource
from headrace_otlp import OtlpLogsCodec, OtlpSettings
from headrace_otlp.codec import LOG_COLUMNS as COLUMNS
from log_messages import BEGIN, BEGIN_NANOS, as_json, pairs, request, value
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber


def decode(*bodies: bytes, columns: list[str] | None = None, **options: Any) -> hr.Decoded:
    codec = OtlpLogsCodec(OtlpSettings.of(options))
    schema = codec.default_schema()
    return codec.decoder(schema, columns).decode(hr.Bodies.of(bodies))


def two_resources() -> ExportLogsServiceRequest:
    made = request(
        LogRecord(
            time_unix_nano=BEGIN_NANOS + 1999,
            observed_time_unix_nano=BEGIN_NANOS + 5000,
            severity_number=SeverityNumber.SEVERITY_NUMBER_ERROR,
            severity_text="Error",
            event_name="login",
            body=value("failed"),
            attributes=pairs({"user": "alice", "tries": 3}),
            dropped_attributes_count=2,
            flags=1,
            trace_id=bytes(range(16)),
            span_id=bytes(range(8)),
        ),
        LogRecord(body=value({"a": [1, None, True]})),
        resource={"service.name": "shop", "host.name": "web-1"},
        scope="shop.login",
    )
    made.resource_logs[0].scope_logs[0].scope.version = "1.2"
    made.resource_logs[0].scope_logs[0].scope.attributes.extend(pairs({"x": 1}))
    made.resource_logs[0].scope_logs.add()  # a scope without records
    other = made.resource_logs.add().scope_logs.add()
    other.log_records.add().body.int_value = -5
    made.resource_logs.add()  # a resource without anything
    return made


def test_each_record_is_a_row_with_its_scope_and_resource() -> None:
    made = two_resources()
    empty = {name: None for name in COLUMNS} | {
        "dropped_attributes_count": 0, "flags": 0, "attributes": "{}", "scope_attributes": "{}", "resource_attributes": "{}",
    }  # fmt: skip
    of_scope = {
        "scope_name": "shop.login", "scope_version": "1.2", "scope_attributes": '{"x":1}', "service_name": "shop",
        "resource_attributes": '{"service.name":"shop","host.name":"web-1"}',
    }  # fmt: skip
    first = {
        "time": BEGIN + timedelta(microseconds=1), "observed_time": BEGIN + timedelta(microseconds=5), "severity_number": 17,
        "severity_text": "Error", "event_name": "login", "body": "failed", "attributes": '{"user":"alice","tries":3}',
        "dropped_attributes_count": 2, "flags": 1, "trace_id": "000102030405060708090a0b0c0d0e0f", "span_id": "0001020304050607",
    }  # fmt: skip
    wanted = [
        {**empty, **of_scope, **first},
        {**empty, **of_scope, "body": '{"a":[1,null,true]}'},
        {**empty, "body": "-5"},
    ]
    for body in (made.SerializeToString(), as_json(made)):
        decoded = decode(b"", body, b"{}", body)
        assert decoded.frame.to_dicts() == wanted * 2
        assert decoded.rows is not None
        assert decoded.rows.tolist() == [1, 1, 1, 3, 3, 3]
        assert not decoded.bad


VALUES = [
    ("text", "text"),
    ("", ""),
    ("17", "17"),
    (17, "17"),
    (2**63 - 1, "9223372036854775807"),
    (-(2**63), "-9223372036854775808"),
    (False, "false"),
    (1.5, "1.5"),
    (math.nan, "NaN"),
    (-math.inf, "-Infinity"),
    (b"\xff\xfe", "//4="),
    (b"", ""),
    ([], "[]"),
    ({}, "{}"),
    ([1, "a", [None]], '[1,"a",[null]]'),
    ({"b": {"c": b"\x00"}}, '{"b":{"c":"AA=="}}'),
    (None, None),
]


@pytest.mark.parametrize(("given", "body"), VALUES)
def test_values(given: Any, body: str | None) -> None:
    made = request(LogRecord(body=value(given), attributes=pairs({"it": given})))
    for sent in (made.SerializeToString(), as_json(made)):
        [row] = decode(sent, columns=["body", "attributes"]).frame.to_dicts()
        assert row["body"] == body
        [inner] = json.loads(row["attributes"]).values()
        assert (inner if type(inner) is str or inner is None else json.dumps(inner, separators=(",", ":"))) == body


def test_json_of_other_writers() -> None:
    """NULL for what is not given, numbers as texts or not, keys that are not known, blanks before the body."""
    record = {
        "timeUnixNano": BEGIN_NANOS, "severityNumber": None, "body": {"bytesValue": "_-8"}, "attributes": None, "later": [1],
        "flags": "7", "traceId": "", "droppedAttributesCount": 1,
    }  # fmt: skip
    text = json.dumps({"resourceLogs": [{"resource": None, "scopeLogs": [{"scope": None, "logRecords": [record]}]}]})
    for body, encoding in ((text, "auto"), (f" \n{text}", "json")):
        [row] = decode(body.encode(), encoding=encoding).frame.to_dicts()
        assert (row["time"], row["severity_number"], row["body"], row["flags"]) == (BEGIN, None, "/+8=", 7)
        assert (row["trace_id"], row["attributes"], row["dropped_attributes_count"]) == (None, "{}", 1)


def test_a_body_is_bad_whatever_is_wanted_of_it() -> None:
    wrong = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "q"}, {"severityText": "x"}]}]}]}'
    good = two_resources().SerializeToString()
    for columns in (["severity_text"], ["time"], []):
        decoded = decode(wrong, good, b"junk", columns=columns)
        assert decoded.rows is not None
        assert decoded.rows.tolist() == [1, 1, 1]
        assert decoded.frame.height == 3
        assert [each.row for each in decoded.bad] == [0, 2]
        assert "hexadecimal" in decoded.bad[0].reason
    [bad] = decode(good, max_body_bytes=10).bad
    assert "more than max_body_bytes = 10" in bad.reason
    [bad] = decode(b'{"resourceLogs": []}', encoding="protobuf").bad
    assert "Protocol Buffers" in bad.reason


def test_rows_of_a_job_and_dead_letters() -> None:
    made, sink, dead = two_resources(), MemorySink(), MemorySink()
    bodies = [made.SerializeToString(), b"junk", as_json(made)]
    stream = hr.stream("tests", "logs").from_(MemorySource({"q": bodies}), format="otlp-logs")
    stream = stream.where("severity_number >= 17").select(
        "service_name", "get_json_object(attributes, '$.user') AS user"
    )
    stream.dead_letters(lambda each: each.to(dead)).to(sink).run("light", show_progress=False)
    assert sink.rows == [{"service_name": "shop", "user": "alice"}] * 2
    [letter] = dead.rows
    assert "no ExportLogsServiceRequest" in str(letter)


def test_what_a_schema_may_say() -> None:
    assert default_registry().find("codec", "otlp-logs") is OtlpLogsCodec
    codec = OtlpLogsCodec(OtlpSettings())
    codec.decoder(hr.Schema.of({"time": "timestamp_ntz", "attributes": "string"}))
    with pytest.raises(hr.OptionError, match="no column 'severity'"):
        codec.decoder(hr.Schema.of({"severity": "int64"}))
    with pytest.raises(hr.OptionError, match="cannot be Int64"):
        codec.decoder(hr.Schema.of({"body": "int64"}))
    with pytest.raises(hr.PlanError, match="can only be read"):
        codec.encoder(None)
