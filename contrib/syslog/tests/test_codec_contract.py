"""Runs the contract suite on the format, for both standards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract
from headrace_syslog import SyslogCodec


class TestNewer(CodecContract):
    """RFC 5424."""

    schema = {
        "severity": "int64",
        "host": "string",
        "process_id": "int64",
        "structured_data": "string",
        "message": "string",
    }
    encodes = False
    one_line = False

    def make_codec(self) -> SyslogCodec:
        return SyslogCodec(SyslogCodec.Settings.of({"line_column": "whole"}))

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "severity": number % 8,
            "host": None if number % 4 == 3 else f"host-{number}",
            "process_id": None if number % 3 == 2 else number,
            "structured_data": None if number % 2 else f'{{"x@{number}":{{"a":"é {number}"}}}}',
            "message": f"two\nlines, {number}",
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        process = "-" if row["process_id"] is None else row["process_id"]
        data = row["structured_data"]
        if data is not None:
            name, _, value = data.removeprefix('{"').removesuffix('"}}').partition('":{"a":"')
            data = f'[{name} a="{value}"]'
        host = row["host"] or "-"
        return f"<{8 + row['severity']}>1 2026-11-26T12:00:00Z {host} app {process} - {data or '-'} {row['message']}".encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"", b"x", b"<192>1 - - - - - - x", b"<13>1 - - - - - x", b"<13>1 2026-11-31T12:00:00Z - - - - - x",
            b"<13>1 - - - pid - - x", b"<13>1 - - - - - - \xff",
        ]  # fmt: skip


class TestOlder(CodecContract):
    """RFC 3164, in a time zone with a summer time."""

    schema = {
        "facility": "int64",
        "timestamp": "timestamp",
        "app": "string",
        "process_id": "string",
        "message": "string",
    }
    encodes = False
    one_line = False

    def make_codec(self) -> SyslogCodec:
        return SyslogCodec(SyslogCodec.Settings.of({"year": 2026, "timezone": "Europe/Vienna"}))

    def make_row(self, number: int) -> dict[str, Any]:
        import datetime as dt

        kind = self.columns["timestamp"]
        zone = dt.UTC if getattr(kind, "time_zone", None) else None
        return {
            "facility": number % 24,
            "timestamp": dt.datetime(2026, 1, 5, 11, 0, number % 60, tzinfo=zone),
            "app": f"app/{number}",
            "process_id": None if number % 3 == 2 else f"{number}",
            "message": f"message: {number}",
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        process = "" if row["process_id"] is None else f"[{row['process_id']}]"
        time = f"Jan  5 12:00:{row['timestamp'].second:02}"
        return f"<{row['facility'] * 8}>{time} host {row['app']}{process}: {row['message']}\n".encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"<1", b"<192>x", b"<13>Feb 29 12:00:00 host x", b"<13>Jan  5 24:00:00 host x", b"<13>1 x"]


def test_it_is_found_by_its_name() -> None:
    assert default_registry().find("codec", "syslog") is SyslogCodec
