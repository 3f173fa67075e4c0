"""Events of the Windows event log: the contract, values as they stand, and documents that are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import headrace as hr
import pytest
from headrace.testing import MemorySource
from headrace_contract import CodecContract
from headrace_logformats import WindowsEventXmlCodec

NAMESPACE = "http://schemas.microsoft.com/win/2004/08/events/event"
LOGON = f"""<Event xmlns='{NAMESPACE}'><System>
<Provider Name='Microsoft-Windows-Security-Auditing' Guid='{{54849625-5478-4994-a5ba-3e3b0328c30d}}'/>
<EventID Qualifiers='0'>4624</EventID><Version>2</Version><Level>0</Level><Task>12544</Task><Opcode>0</Opcode>
<Keywords>0x8020000000000000</Keywords><TimeCreated SystemTime='2026-01-31T10:00:00.1234567Z'/>
<EventRecordID>211</EventRecordID><Correlation/><Execution ProcessID='716' ThreadID='760'/><Channel>Security</Channel>
<Computer>host.example.com</Computer><Security UserID='S-1-5-18'/></System>
<EventData><Data Name='TargetUserName'>alice &amp; bob</Data><Data Name='Empty'/><Data>no name</Data></EventData>
<RenderingInfo Culture='en-US'><Message>An account was successfully logged on.</Message></RenderingInfo></Event>"""


class TestWindowsEventXml(CodecContract):
    schema = {"time": "timestamp", "event_id": "int64", "computer": "string", "user_id": "string"}
    encodes = False

    def make_codec(self) -> WindowsEventXmlCodec:
        return WindowsEventXmlCodec()

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "time": datetime(2026, 1, 31, 10, tzinfo=UTC) + timedelta(microseconds=number * 1001),
            "event_id": 4624 + number,
            "computer": None if number % 5 == 4 else f"host-{number} é & <x>",
            "user_id": None if number % 3 == 2 else f"S-1-5-{number}",
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        computer = "" if row["computer"] is None else f"<Computer>{escape(row['computer'])}</Computer>"
        user = "<Security/>" if row["user_id"] is None else f"<Security UserID={quoteattr(row['user_id'])}/>"
        time = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return (
            f"<Event xmlns='{NAMESPACE}'><System><EventID>{row['event_id']}</EventID>"
            f"<TimeCreated SystemTime='{time}'/>{computer}{user}</System></Event>"
        ).encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"",
            b"<Event>",
            b"<Event/>",
            b"<Other><System/></Other>",
            b"<Event><System><EventID>x</EventID></System></Event>",
            b"<Event><System><TimeCreated SystemTime='yesterday'/></System></Event>",
            b"<!DOCTYPE Event [<!ENTITY a 'b'>]><Event><System><Computer>&a;</Computer></System></Event>",
            b"<Event><System><Computer>\xff</Computer></System></Event>",
            b"<Event><System><Computer>&undefined;</Computer></System></Event>",
        ]


def read(*bodies: str) -> list[dict[str, Any]]:
    source = MemorySource({"q": [body.encode() for body in bodies]})
    return hr.stream("test", "events").from_(source, format="windows-event-xml").collect().to_dicts()


def test_a_logon() -> None:
    [row] = read(LOGON)
    assert json.loads(row.pop("event_data")) == {"TargetUserName": "alice & bob", "Empty": None, "param3": "no name"}
    assert row == {
        "time": datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=UTC),
        "provider": "Microsoft-Windows-Security-Auditing",
        "event_id": 4624,
        "version": 2,
        "level": 0,
        "task": 12544,
        "opcode": 0,
        "keywords": "0x8020000000000000",
        "record_id": 211,
        "channel": "Security",
        "computer": "host.example.com",
        "process_id": 716,
        "thread_id": 760,
        "user_id": "S-1-5-18",
        "message": "An account was successfully logged on.",
    }


def test_data_of_the_provider_itself() -> None:
    [row] = read("<Event><System/><UserData><Cleared xmlns='x'><Name>alice</Name></Cleared></UserData></Event>")
    assert json.loads(row["event_data"]) == {"Name": "alice"}
    assert [value for name, value in row.items() if name != "event_data"] == [None] * 15


def test_columns_are_fixed() -> None:
    with pytest.raises(hr.OptionError, match="did you mean 'event_id'"):
        WindowsEventXmlCodec().decoder(hr.Schema.of({"eventid": "int64"}))
    with pytest.raises(hr.OptionError, match="column 'event_id' has a different type"):
        WindowsEventXmlCodec().decoder(hr.Schema.of({"event_id": "string"}))
