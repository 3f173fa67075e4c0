"""Runs the contract suites on the verb and on formats; what options may not be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
import pytest
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract, OperatorContract
from headrace_logpresets.operator import ParseLog
from preset_lines import at, windows_event
from test_golden_lines import decoded, parsed


class TestParseLog(OperatorContract):
    schema = {"message": "string", "host": "string"}
    rows_out = "one"

    def make_spec(self) -> ParseLog:
        return ParseLog("nginx-access")

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        lines = (
            '192.0.2.{n} - - [15/Jan/2026:10:23:45 +0000] "GET /é{n} HTTP/1.1" 200 {n} "-" "curl"',
            '192.0.2.{n} - - [99/Jan/2026:10:23:45 +0000] "GET /{n} HTTP/1.1" 200 {n} "-" "curl"',
            '192.0.2.{n} - - [15/Jan/2026:10:23:45 +0000] "GET',
            "",
            None,
        )
        return [
            {"message": line and line.replace("{n}", str(n % 250)), "host": f"h{n}"}
            for n, line in ((n, lines[n % 5]) for n in range(first, first + count))
        ]

    def bad_row(self) -> dict[str, Any]:
        return {"message": "no such log", "host": "h"}

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"message": "int64"}


class TestParseLogThatReplacesColumns(TestParseLog):
    schema = {"message": "string", "severity": "string", "host": "string"}

    def make_spec(self) -> ParseLog:
        return ParseLog("nginx-error", overwrite=["severity", "host"], timezone="Europe/Vienna")

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        lines = ("2026/01/15 10:23:45 [error] 8#7: text {n}", "2026/01/15", None)
        return [
            {"message": line and line.replace("{n}", str(n)), "severity": "old", "host": "h"}
            for n, line in ((n, lines[n % 3]) for n in range(first, first + count))
        ]

    def bad_row(self) -> dict[str, Any]:
        return {"message": "no such log", "severity": "s", "host": "h"}


class TestVpcFlowCodec(CodecContract):
    schema = {"account_id": "string", "srcaddr": "string", "bytes": "int64", "start": "timestamp"}
    encodes = False

    def make_codec(self) -> hr.Codec:
        codec: hr.Codec = default_registry().find("codec", "aws-vpc-flow")()
        return codec

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "account_id": f"a{number}é",
            "srcaddr": None if number % 3 == 1 else f"10.0.0.{number % 250}",
            "bytes": None if number % 4 == 2 else number,
            "start": at(2026, 1, 15, 10, number % 60),
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        address, size = ("-" if row[name] is None else row[name] for name in ("srcaddr", "bytes"))
        begin = int(row["start"].timestamp())
        return f"2 {row['account_id']} eni {address} - - - - - {size} {begin} {begin} - OK".encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"2 a eni - - - - - - - x 1 - OK", b"2 a eni - - - - - - - 99999999999999999999 1 - OK", b"\xff"]


class TestCloudTrailCodec(CodecContract):
    schema = {"timestamp": "timestamp", "event_name": "string", "user_name": "string", "read_only": "boolean"}
    encodes = False

    def make_codec(self) -> hr.Codec:
        codec: hr.Codec = default_registry().find("codec", "aws-cloudtrail")()
        return codec

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "timestamp": at(2026, 1, 15, 10, number % 60),
            "event_name": f"Do{number}é",
            "user_name": None if number % 3 == 1 else f"u{number}",
            "read_only": None if number % 4 == 2 else number % 2 == 0,
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        event: dict[str, Any] = {"eventTime": row["timestamp"].isoformat(), "eventName": row["event_name"]}
        if row["user_name"] is not None:
            event["userIdentity"] = {"userName": row["user_name"]}
        return json.dumps({**event, "readOnly": row["read_only"], "other": [1]}).encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"{}", b"[]", b'{"eventTime": "2026-01-15T10:23:45Z"}', b"\xff"]


def test_a_text_that_is_null_gives_nulls_and_the_column_of_texts_is_replaced() -> None:
    rows = parsed(["2026/01/15 10:23:45 [error] 8#7: a text", None], "nginx-error")
    assert [(row["message"], row["severity"]) for row in rows] == [("a text", "error"), (None, None)]


def test_times_without_a_zone_are_of_the_zone_that_is_named() -> None:
    (row,) = parsed(["2026/07/15 10:23:45 [error] 8#7: a"], "nginx-error", timezone="Europe/Vienna")
    assert row["timestamp"] == at(2026, 7, 15, 8, 23, 45)


def test_hours_that_a_zone_leaves_out_or_has_twice_are_times() -> None:
    rows = [parsed([f"{day} [error] 8#7: a"], "nginx-error", timezone="Europe/Vienna")[0]["timestamp"]
            for day in ("2026/03/29 02:30:00", "2026/10/25 02:30:00")]  # fmt: skip
    assert rows == [at(2026, 3, 29, 1, 30), at(2026, 10, 25, 0, 30)]


def test_times_without_a_year_need_one() -> None:
    line = "Jan 15 10:23:45 web-1 sshd[9]: Invalid user oracle from 192.0.2.77 port 40022"
    (bad,) = decoded("sshd", [line]).bad
    assert bad.reason == "field 'timestamp': the time \"Jan 15 10:23:45\" has no year: set the option year"
    assert decoded("sshd", [line.replace("Jan 15 10:23:45", "2026-01-15T10:23:45Z")]).bad == ()


def test_abbreviations_of_zones_need_the_zone() -> None:
    line = "2026-01-15 10:23:45.123 CET [4711] LOG:  text"
    (bad,) = decoded("postgresql", [line]).bad
    assert bad.reason == "field 'timestamp': the zone 'CET' is an abbreviation: set timezone to that of the server"
    found = decoded("postgresql", [line], timezone="Europe/Vienna")
    assert found.frame["timestamp"].to_list() == [at(2026, 1, 15, 9, 23, 45, 123000)]


def test_only_columns_that_are_read_are_converted() -> None:
    codec = default_registry().find("codec", "nginx-error")()
    assert decoded("nginx-error", ["2026/99/15 10:23:45 [error] 8#7: a"]).bad
    schema = codec.default_schema()
    from headrace.flow.messages import Bodies

    found = codec.decoder(schema, ["message"]).decode(Bodies.of([b"2026/01/15 10:23:45 [error] 8#7: a"]))
    assert found.frame.to_dicts() == [{"message": "a"}]


def test_events_of_windows_that_are_another_provider_s_or_have_no_numbers_are_bad() -> None:
    events = [
        windows_event("Other", 1, {"ProcessId": "1"}),
        windows_event("Microsoft-Windows-Sysmon", 1, {"ProcessId": "many"}),
        windows_event("Microsoft-Windows-Sysmon", 1, {"ProcessId": "0x10"}),
        windows_event("Microsoft-Windows-Sysmon", 255, {}),
    ]
    found = decoded("windows-sysmon", events)
    assert [(bad.row, bad.reason) for bad in found.bad] == [
        (0, "an event of 'Other', not of 'Microsoft-Windows-Sysmon'"),
        (1, "ProcessId: expected int64, found 'many'"),
    ]
    assert found.frame["process_id"].to_list() == [16, None]


def test_objects_that_are_no_events_are_bad() -> None:
    objects = [
        '{"Records": []}',
        '{"eventName": "X", "eventTime": "soon"}',
        '{"eventName": "X", "eventTime": "2026-01-15T10:23:45Z"}',
        '{"awsAccountId": "1", "digestStartTime": "2026-01-15T10:23:45Z", "digestS3Object": "o", "logFiles": []}',
        '{"eventTime": "2026-01-15T10:23:45Z", "eventCategory": "Insight"}',
    ]
    found = decoded("aws-cloudtrail", objects)
    assert [bad.row for bad in found.bad] == [0, 1, 3, 4]
    missing = "'eventName' or 'insightDetails.insightType' is missing, which every event has"
    assert found.bad[3].reason == missing
    assert found.bad[0].reason == "'eventTime' is missing, which every event has"
    assert found.frame["event_name"].to_list() == ["X"]


@pytest.mark.parametrize(
    ("preset", "options", "said"),
    [
        ("nginx-acess", {}, "there is no preset 'nginx-acess'; did you mean 'nginx-access'"),
        ("nginx-access", {"fields": "ECS"}, "unknown value 'ECS': expected 'plain', 'ecs' or 'ocsf'"),
        ("nginx-access", {"header": True}, "the preset 'nginx-access' does not use this option"),
        ("nginx-access", {"timezone": "Europe/Vienna"}, "the preset 'nginx-access' does not use this option"),
        ("nginx-error", {"timezone": "Vienna"}, "there is no time zone 'Vienna'"),
        ("sshd", {"year": 0}, "0 is not a year"),
        ("nginx-error", {"year": 2026}, "the preset 'nginx-error' does not use this option"),
    ],
)
def test_options_that_are_refused(preset: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(hr.OptionError) as raised:
        ParseLog(preset, **options)
    assert said.split(";")[0] in str(raised.value)
    assert "did you mean" not in said or "nginx-access" in str(raised.value)


def test_records_that_ausearch_has_interpreted_are_bad() -> None:
    """They have no quotes: a name of a user may look like other fields there."""
    line = "type=USER_LOGIN msg=audit(03/28/2013 14:36:03.243:24287) : pid=1 uid=root msg='op=login acct=a hostname=b exe=/c res=failed' "
    (bad,) = decoded("auditd", [line]).bad
    assert "timestamp" in bad.reason


def test_a_schema_with_another_type_or_column_is_refused() -> None:
    codec = default_registry().find("codec", "nginx-access")()
    with pytest.raises(hr.OptionError, match="no column 'status'"):
        codec.decoder(hr.Schema.of({"status": "int64"}))
    with pytest.raises(hr.OptionError, match="'response' has a different type"):
        codec.decoder(hr.Schema.of({"response": "string"}))


def test_columns_that_are_there_already_are_refused() -> None:
    before = hr.Schema.of({"message": "string", "user": "string", "event": "int64"})
    with pytest.raises(hr.PlanError, match="field 'event' of the preset is a column already"):
        ParseLog("sshd").output_schema(before)
    with pytest.raises(hr.PlanError, match="'event' cannot be replaced by a field of another type"):
        ParseLog("sshd", overwrite=["event", "user"]).output_schema(before)
    with pytest.raises(hr.PlanError, match="'usr' in overwrite is not a field"):
        ParseLog("sshd", overwrite="usr").output_schema(before)
    with pytest.raises(hr.PlanError, match="unknown column 'line'"):
        ParseLog("sshd", on="line").output_schema(before)
