"""Runs the contract suites on the formats and the verb."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract, OperatorContract
from headrace_logformats import CriCodec, DockerJsonCodec, JournalExportCodec, JournalJsonCodec, KubernetesPath

BEGIN = datetime(2026, 1, 31, 10, tzinfo=UTC)
TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class ContainerContract(CodecContract):
    schema = {"time": "timestamp", "stream": "string", "message": "string", "partial": "boolean"}
    encodes = False

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "time": BEGIN + timedelta(microseconds=number * 1001),
            "stream": "stderr" if number % 3 == 1 else "stdout",
            "message": "" if number % 5 == 4 else f"message {number} é \\n \\u0000",
            "partial": number % 7 == 6,
        }


class TestCri(ContainerContract):
    def make_codec(self) -> CriCodec:
        return CriCodec()

    def make_body(self, row: dict[str, Any]) -> bytes:
        tag = "P" if row["partial"] else "F"
        return f"{row['time'].strftime(TIME)} {row['stream']} {tag} {row['message']}".encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"",
            b"2026-01-31T10:00:00Z",
            b"2026-01-31T10:00:00Z stdin F x",
            b"2026-01-31T10:00:00Z stdout X x",
            b"yesterday stdout F x",
            b"2026-01-31T10:00:00Z stdout F \xff",
            b"2026-01-31T10:00:00Z stdout P x\nno line",
        ]


class TestDockerJson(ContainerContract):
    def make_codec(self) -> DockerJsonCodec:
        return DockerJsonCodec(DockerJsonCodec.Settings())

    def make_body(self, row: dict[str, Any]) -> bytes:
        log = row["message"] + ("" if row["partial"] else "\n")
        line = {"log": log, "stream": row["stream"], "time": row["time"].strftime(TIME)}
        return json.dumps(line, separators=(",", ":")).encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [
            b"",
            b"{}",
            b'{"log":"x\\n","stream":"stdout"}',
            b'{"log":"x\\n","stream":"stdout","time":"yesterday"}',
            b'{"log":7,"stream":"stdout","time":"2026-01-31T10:00:00Z"}',
            b"[1]",
        ]


class JournalContract(CodecContract):
    schema = {"__REALTIME_TIMESTAMP": "timestamp", "MESSAGE": "string", "_PID": "int64"}
    encodes = False

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "__REALTIME_TIMESTAMP": BEGIN + timedelta(microseconds=number * 1001),
            "MESSAGE": None
            if number % 5 == 4
            else f"message {number} é" + ("\nof two lines" if number % 4 == 1 else ""),
            "_PID": None if number % 3 == 2 else number,
        }

    def fields(self, row: dict[str, Any]) -> dict[str, str]:
        micros = (row["__REALTIME_TIMESTAMP"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        found = {"__REALTIME_TIMESTAMP": str(micros), "MESSAGE": row["MESSAGE"], "_PID": row["_PID"], "_X": "y=z"}
        return {name: str(value) for name, value in found.items() if value is not None}


class TestJournalExport(JournalContract):
    def make_codec(self) -> JournalExportCodec:
        return JournalExportCodec()

    def make_body(self, row: dict[str, Any]) -> bytes:
        body = b""
        for name, value in self.fields(row).items():
            data = value.encode()
            if "\n" in value:
                body += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
            else:
                body += name.encode() + b"=" + data + b"\n"
        return body

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"_PID=x\n", b"MESSAGE=\xff\n", b"MESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00ab\n", b"no field"]


class TestJournalJson(JournalContract):
    def make_codec(self) -> JournalJsonCodec:
        return JournalJsonCodec()

    def make_body(self, row: dict[str, Any]) -> bytes:
        fields: dict[str, Any] = dict(self.fields(row))
        if "\n" in fields.get("MESSAGE", ""):
            fields["MESSAGE"] = list(fields["MESSAGE"].encode())
        return json.dumps(fields).encode()

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"[]", b'{"_PID":"x"}', b'{"MESSAGE":{}}', b'{"MESSAGE":[256]}', b'{"MESSAGE":[255]}', b"{"]


class TestKubernetesPath(OperatorContract):
    schema = {"path": "string", "n": "int64"}
    rows_out = "one"

    def make_spec(self) -> KubernetesPath:
        return KubernetesPath()

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        return [
            {
                "path": (
                    f"/var/log/pods/shop_web-{number % 5}_0b1f-22/nginx/{number % 3}.log",
                    "/var/log/syslog",
                    None,
                )[number % 7 // 3],
                "n": number,
            }
            for number in range(first, first + count)
        ]

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"path": "int64"}


def test_all_are_found_by_their_name() -> None:
    for codec in (CriCodec, DockerJsonCodec, JournalExportCodec, JournalJsonCodec):
        assert default_registry().find("codec", codec.name) is codec
    assert default_registry().find("operator", "kubernetes_path") is KubernetesPath
