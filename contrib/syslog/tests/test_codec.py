"""What messages of both standards become, and why others are refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.testing import MemorySource
from headrace_syslog import SyslogCodec

#: The end of a year, so that the nearest January is in the next one.
RECEIVED = dt.datetime(2026, 12, 30, 12, tzinfo=dt.UTC)


def decoded(
    bodies: Sequence[bytes],
    *,
    received: dt.datetime | None = RECEIVED,
    schema: Mapping[str, str] | None = None,
    headers: Sequence[Mapping[str, bytes]] | None = None,
    metadata: Mapping[str, str] | None = None,
    **options: Any,
) -> hr.Decoded:
    codec = SyslogCodec(SyslogCodec.Settings.of(options, plugin="syslog"))
    decoder = codec.record_decoder(codec.default_schema() if schema is None else hr.Schema.of(schema), None, metadata)
    times = None if received is None else np.full(len(bodies), round(received.timestamp() * 1e6), dtype=np.int64)
    offsets = np.arange(len(bodies), dtype=np.int64)
    return decoder.decode_records(
        hr.RawBatch(offsets, hr.ReadPosition(len(bodies)), hr.Bodies.of(bodies), times=times, headers=headers)
    )


def row_of(body: bytes, **options: Any) -> dict[str, Any]:
    """Return what a message says, without what it does not say."""
    found = decoded([body], **options)
    assert not found.bad
    return {name: value for name, value in found.frame.row(0, named=True).items() if value is not None}


def reason_of(body: bytes, **options: Any) -> str:
    found = decoded([b"<13>a good one", body], **options)
    assert [bad.row for bad in found.bad] == [1]
    assert found.frame.height == 1
    return found.bad[0].reason


def at(year: int, month: int, day: int, *clock: int) -> dt.datetime:
    hour, minute, second, micros = (*clock, 0, 0, 0, 0)[:4]
    return dt.datetime(year, month, day, hour, minute, second, micros, tzinfo=dt.UTC)


def test_a_message_of_rfc_5424() -> None:
    body = (
        b"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog 8710 ID47 "
        b'[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"][examplePriority@32473 class="high"] '
        b"\xef\xbb\xbfAn application event log entry\xe2\x80\xa6"
    )
    assert row_of(body) == {
        "facility": 20,
        "facility_name": "local4",
        "severity": 5,
        "severity_name": "notice",
        "version": 1,
        "timestamp": at(2003, 10, 11, 22, 14, 15, 3000),
        "host": "mymachine.example.com",
        "app": "evntslog",
        "process_id": "8710",
        "message_id": "ID47",
        "structured_data": '{"exampleSDID@32473":{"iut":"3","eventSource":"Application","eventID":"1011"},'
        '"examplePriority@32473":{"class":"high"}}',
        "message": "An application event log entry…",
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
         {"timestamp": at(2026, 10, 11, 22, 14, 15), "host": "mymachine", "app": "su",
          "message": "'su root' failed for lonvick on /dev/pts/8"}),
        (b"<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!\n",
         {"timestamp": at(2027, 2, 5, 17, 32, 18), "host": "10.0.0.99", "message": "Use the BFG!"}),
        (b"<13>Feb 05 17:32:18.25 host sub/app[a-b]: one: two",
         {"timestamp": at(2027, 2, 5, 17, 32, 18, 250_000), "host": "host", "app": "sub/app", "process_id": "a-b", "message": "one: two"}),
        (b"<13>Nov 26 23:52:20 root: without a host",
         {"timestamp": at(2026, 11, 26, 23, 52, 20), "app": "root", "message": "without a host"}),
        (b"<13>Nov 26 23:52:20 cron[1]: without a host",
         {"timestamp": at(2026, 11, 26, 23, 52, 20), "app": "cron", "process_id": "1", "message": "without a host"}),
        (b"<13>Nov 26 23:52:20 fe80::1 app[7] no colon",
         {"timestamp": at(2026, 11, 26, 23, 52, 20), "host": "fe80::1", "app": "app", "process_id": "7", "message": "no colon"}),
        (b"<13>2026-11-26T12:00:00.123456+01:00 host app: as rsyslog forwards",
         {"timestamp": at(2026, 11, 26, 11, 0, 0, 123_456), "host": "host", "app": "app", "message": "as rsyslog forwards"}),
        (b"<13>Nov 26 2019 23:52:20: %ASA-6-302013: Built",
         {"timestamp": at(2019, 11, 26, 23, 52, 20), "app": "%ASA-6-302013", "message": "Built"}),
        (b"<13>Nov 26 2019 23:52:20 asa : %ASA-6-302013: Built",
         {"timestamp": at(2019, 11, 26, 23, 52, 20), "host": "asa", "app": "%ASA-6-302013", "message": "Built"}),
        (b"<189>45: *Mar  1 18:46:11.123: %SYS-5-CONFIG_I: Configured",
         {"timestamp": at(2027, 3, 1, 18, 46, 11, 123_000), "app": "%SYS-5-CONFIG_I", "message": "Configured"}),
        (b"<13>app: no time", {"app": "app", "message": "no time"}),
        (b"<13>GET http://example.org/", {"message": "GET http://example.org/"}),
        (b"<13>", {"message": ""}),
    ],
)  # fmt: skip
def test_messages_as_of_rfc_3164(body: bytes, expected: Mapping[str, Any]) -> None:
    names = "timestamp", "host", "app", "process_id", "message_id", "structured_data", "message", "version"
    assert {name: value for name, value in row_of(body).items() if name in names} == expected


def test_all_priorities() -> None:
    frame = decoded([b"<%d>x" % priority for priority in range(192)]).frame
    assert (frame["facility"] * 8 + frame["severity"]).to_list() == list(range(192))
    assert frame["severity_name"].head(8).to_list() == [
        "emerg",
        "alert",
        "crit",
        "err",
        "warning",
        "notice",
        "info",
        "debug",
    ]
    assert frame["facility_name"].gather_every(8)[[0, 3, 10, 16, 23]].to_list() == [
        "kern", "daemon", "authpriv", "local0", "local7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (rb"[a]", {"a": {}}),
        (rb'[a b=""]', {"a": {"b": ""}}),
        (rb'[a b="\"\\\]\n[x"][c d="=\" e=\"f"]', {"a": {"b": '"\\]\\n[x'}, "c": {"d": '=" e="f'}}),
        (b'[a b="1" c="2" b="3"][d]', {"a": {"b": ["1", "3"], "c": "2"}, "d": {}}),
        (b'[a b="1"][c][a d="2"]', {"a": {"b": "1", "d": "2"}, "c": {}}),
        (b'[a\\ b="tab\tnewline\nnull\x00"]', {"a\\": {"b": "tab\tnewline\nnull\x00"}}),
        ('[ä b="c"]'.encode(), None),
    ],
)
def test_structured_data(written: bytes, expected: Mapping[str, Any] | None) -> None:
    found = decoded([b"<13>1 - - - - - - x", b"<13>1 - - - - - " + written + b" x", b"<13>y"])
    if expected is None:
        assert [bad.row for bad in found.bad] == [1]
        return
    assert not found.bad
    first, second, third = found.frame["structured_data"].to_list()
    assert (first, json.loads(second), third) == (None, expected, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", 'the message begins with no priority such as <13>: ""'),
        (b"<a>x", 'the message begins with no priority such as <13>: "<a>x"'),
        (b"<192>x", "the priority is 192; the largest is 191"),
        (b"<13>1 x", 'RFC 5424: a timestamp and a blank should stand at "x"'),
        (b"<13>1 - h a p m", 'RFC 5424: a message id and a blank should stand at "m"'),
        (b"<13>1 - h a p m [x y=z] " + b"z" * 100, 'RFC 5424: structured data should stand at "[x y=z] ' + "z" * 52 + '…"'),
        (b"<13>1 - h a p m -x", 'RFC 5424: a blank, and the message should stand at "x"'),
        (b"<13>1 2026-11-26T24:00:00Z h a p m -", 'there is no time "2026-11-26T24:00:00Z"'),
        (b"<13>1 2026-11-26T23:00:60Z h a p m -", 'there is no time "2026-11-26T23:00:60Z"'),
        (b"<13>1 0000-11-26T23:00:00Z h a p m -", 'there is no time "0000-11-26T23:00:00Z"'),
        (b"<13>1 2026-11-26T23:00:00+24:00 h a p m -", 'there is no time "2026-11-26T23:00:00+24:00"'),
        (b"<13>1 yesterday h a p m -", 'there is no time "yesterday"'),
        ("<١٣>x".encode(), 'the message begins with no priority such as <13>: "<١٣>x"'),
        ("<13>1 ٢٠٢٦-11-26T23:00:00Z h a p m -".encode(), 'there is no time "٢٠٢٦-11-26T23:00:00Z"'),
        ("<13>1 2026-11-26T23:00:00.٣Z h a p m -".encode(), 'there is no time "2026-11-26T23:00:00.٣Z"'),
        (b"<13>Nov 31 10:00:00 h x", 'there is no time "Nov 31 10:00:00"'),
        (b"<13>Feb 29 10:00:00 h x", 'there is no time "Feb 29 10:00:00"'),
        (b"<13>\xffx", "not valid UTF-8 at byte 4: invalid start byte"),
        (b"<13>" + b"x" * 1100, "the body has 1104 bytes, more than max_body_bytes = 1000"),
    ],
)  # fmt: skip
def test_what_is_refused(body: bytes, reason: str) -> None:
    assert reason_of(body, max_body_bytes=1000) == reason


def test_a_standard_can_be_required() -> None:
    assert reason_of(b"<13>1 - h a p m -x", standard="auto").startswith("RFC 5424")
    assert row_of(b"<13>1 - h a", standard="rfc3164")["message"] == "1 - h a"
    refused = decoded([b"<13>1 - - - - - -", b"<13>Nov 26 10:00:00 h x"], standard="rfc5424")
    assert [bad.reason for bad in refused.bad] == [
        'RFC 5424: the version 1 and a blank should stand at "Nov 26 10:00:00 h x"'
    ]
    assert "no priority" in decoded([b"x"], standard="rfc3164").bad[0].reason


@pytest.mark.parametrize(
    ("written", "received", "expected"),
    [
        ("Dec 31 23:59:59", at(2027, 1, 1, 0, 0, 5), at(2026, 12, 31, 23, 59, 59)),
        ("Jan  1 00:00:03", at(2026, 12, 31, 23, 59, 59), at(2027, 1, 1, 0, 0, 3)),
        ("Jul  1 00:00:00", at(2027, 1, 1), at(2027, 7, 1)),
        ("Jul  4 00:00:00", at(2027, 1, 1), at(2026, 7, 4)),
        ("Feb 29 12:00:00", at(2029, 1, 1), at(2028, 2, 29, 12)),
        ("Feb 29 12:00:00", at(2027, 12, 31), at(2028, 2, 29, 12)),
    ],
)
def test_the_year_is_the_nearest(written: str, received: dt.datetime, expected: dt.datetime) -> None:
    assert row_of(f"<13>{written} h x".encode(), received=received)["timestamp"] == expected


def test_the_year_where_the_source_has_no_times() -> None:
    body = b"<13>Feb 28 12:00:00 h x"
    assert row_of(body, received=None, year=2020)["timestamp"] == at(2020, 2, 28, 12)
    assert row_of(body, year=2020)["timestamp"] == at(2027, 2, 28, 12)
    [bad] = decoded([body], received=None).bad
    assert (
        bad.reason
        == 'the time "Feb 28 12:00:00" has no year, and the source gives no times of records: set the option year'
    )
    [bad] = decoded([b"<13>Feb 30 12:00:00 h x"], received=None, year=2020).bad
    assert bad.reason == 'there is no time "Feb 30 12:00:00"'


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Jan 15 12:00:00", at(2026, 1, 15, 11)),
        ("Jul 15 12:00:00", at(2026, 7, 15, 10)),
        ("2026-07-15T12:00:00", at(2026, 7, 15, 10)),
        ("2026-07-15T12:00:00Z", at(2026, 7, 15, 12)),
        ("Mar 29 02:30:00", at(2026, 3, 29, 1, 30)),
        ("Oct 25 02:30:00", at(2026, 10, 25, 0, 30)),
    ],
)
def test_times_of_a_zone(written: str, expected: dt.datetime) -> None:
    body = f"<13>{written} h x".encode()
    found = row_of(body, received=at(2026, 6, 1), timezone="Europe/Vienna")
    assert found["timestamp"] == expected


def test_latin_1() -> None:
    found = decoded([b"<13>caf\xe9", "<13>café".encode()], not_utf8="latin-1")
    assert found.frame["message"].to_list() == ["café", "café"]


def test_a_schema_of_the_user() -> None:
    schema = {
        "message": "string",
        "severity": "int32",
        "process_id": "int64",
        "timestamp": "timestamp",
        "line": "string",
    }
    bodies = [b"<13>Nov 26 10:00:00 h a[12]: x", b"<13>a[b]: y"]
    found = decoded(bodies, schema=schema, line_column="line")
    assert dict(found.frame.schema) == dict(hr.Schema.of(schema))
    assert found.frame.drop("timestamp").rows() == [("x", 5, 12, bodies[0].decode())]
    assert [bad.reason for bad in found.bad] == ["column 'process_id': expected int64, found \"b\""]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"hots": "string"}, "a message has no column 'hots'"),
        ({"severity": "string"}, "column 'severity' cannot be String"),
        ({"host": "int64"}, "column 'host' cannot be Int64"),
        ({"timestamp": "string"}, "column 'timestamp' cannot be String"),
        ({"whole": "int64"}, "column 'whole' cannot be Int64"),
    ],
)
def test_schemas_that_cannot_be(schema: Mapping[str, str], message: str) -> None:
    with pytest.raises(hr.OptionError, match=message):
        decoded([], schema=schema, line_column="whole")


@pytest.mark.parametrize(
    ("options", "option"),
    [({"timezone": "Mars/Base"}, "timezone"), ({"year": 0}, "year"), ({"line_column": "host"}, "line_column")],
)
def test_options_that_cannot_be(options: Mapping[str, Any], option: str) -> None:
    with pytest.raises(hr.OptionError) as refused:
        decoded([], **options)
    assert refused.value.option == option


def test_it_cannot_be_written() -> None:
    with pytest.raises(hr.PlanError, match="can only be read"):
        SyslogCodec(SyslogCodec.Settings.of({})).encoder(None)


def test_metadata_of_the_headers() -> None:
    peer, other = {"peer": b"192.0.2.1", "protocol": b"udp"}, {"peer": b"2001:db8::1"}
    found = decoded(
        [b"<13>a", b"\xff", b"<13>b", b"x", b"<13>c"], headers=[peer, peer, other, other, peer], schema={"message": "string"},
        metadata={"sender": "peer", "how": "protocol"},
    )  # fmt: skip
    assert found.frame.rows() == [("a", "192.0.2.1", "udp"), ("b", "2001:db8::1", None), ("c", "192.0.2.1", "udp")]
    assert decoded([b"<13>a"], schema={}, metadata={"sender": "peer"}).frame.rows() == [(None,)]


def test_a_job(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bodies = [
        b"<11>1 2026-11-26T12:00:00Z web app - - - failed",
        b"no syslog",
        b"<14>1 2026-11-26T12:00:00Z web app - - - fine",
    ]
    source = MemorySource({"q": bodies})
    stream = hr.stream("tests", "syslog").from_(source, format="syslog", metadata={"peer": "peer"})
    assert stream.schema is not None
    assert isinstance(stream.schema["timestamp"], pl.Datetime)
    rows = stream.where("severity <= 3").select("host", "message", "peer").collect()
    assert rows.rows() == [("web", "failed", None)]
