"""Runs the contract suite on the format, in both encodings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from headrace_contract import CodecContract
from headrace_otlp import OtlpLogsCodec, OtlpSettings
from log_messages import BEGIN, BEGIN_NANOS, as_json, pairs, request, value
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber


class LogsContract(CodecContract):
    schema: ClassVar = {
        "time": "timestamp",
        "severity_number": "int64",
        "body": "string",
        "attributes": "json",
        "trace_id": "string",
        "service_name": "string",
        "scope_name": "string",
    }
    encodes = False
    several_rows = True
    one_line = False

    def make_codec(self) -> OtlpLogsCodec:
        return OtlpLogsCodec(OtlpSettings())

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "time": BEGIN + timedelta(microseconds=number),
            "severity_number": number % 24 or None,
            "body": None if number % 5 == 4 else f"line {number}\n é",
            "attributes": f'{{"number":{number},"ratio":0.5,"text":"é\\n"}}',
            "trace_id": None if number % 3 == 2 else f"{number:032x}" if number else None,
            "service_name": None if number % 4 == 3 else f"service {number}",
            "scope_name": None if number % 6 == 5 else f"scope {number}",
        }

    def make_message(self, row: dict[str, Any]) -> ExportLogsServiceRequest:
        microseconds = (row["time"] - BEGIN) // timedelta(microseconds=1)
        number = int(row["attributes"].partition(":")[2].partition(",")[0])
        record = LogRecord(
            time_unix_nano=BEGIN_NANOS + 1000 * microseconds,
            severity_number=SeverityNumber.ValueType(row["severity_number"] or 0),
            body=value(row["body"]),
            attributes=pairs({"number": number, "ratio": 0.5, "text": "é\n"}),
            trace_id=bytes.fromhex(row["trace_id"] or ""),
        )
        resource = None if row["service_name"] is None else {"service.name": row["service_name"]}
        return request(record, resource=resource, scope=row["scope_name"] or "")


class TestProtobuf(LogsContract):
    def make_body(self, row: dict[str, Any]) -> bytes:
        return bytes(self.make_message(row).SerializeToString())

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(1))
        return [b"\x0a", b"no request", good[:-1], good.replace(b"line", b"l\xffne"), b"[]", b"\n{"]


class TestJson(LogsContract):
    def make_body(self, row: dict[str, Any]) -> bytes:
        return as_json(self.make_message(row))

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"{",
            b"{}{}",
            b'{"resourceLogs": {}}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": "text"}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "xyz"}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "-1"}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "1e3"}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"severityNumber": "INFO"}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"intValue": "9223372036854775808"}}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"doubleValue": "much"}}]}]}]}',
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": "a"}}]}]}]}',
        ]
