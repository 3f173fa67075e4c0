"""Lines that were cut off, or have other bytes in them: dead letters or the right columns, never an error or a wrong value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace_logpresets.presets import presets
from preset_lines import GOLDEN

_ADDRESS = re.compile(rb"\b(?:\d{1,3}\.){3}\d{1,3}\b")
#: Presets whose lines have a fixed number of fields: a line that ends too early is a dead letter, unless its last field is only shorter.
_FIXED = {
    "apache-access", "apache-combined", "aws-cloudtrail", "aws-vpc-flow", "haproxy-http", "haproxy-tcp", "iis",
    "kubernetes-audit", "nginx-access", "windows-security", "windows-sysmon",
}  # fmt: skip
#: So many fields come together at the end of a line, or may not be there at all.
_WITHIN = {"haproxy-http": 3, "nginx-access": 3}


def decoded(preset: str, bodies: list[bytes]) -> hr.Decoded:
    codec_class = default_registry().find("codec", preset)
    options: dict[str, Any] = {"year": 2026} if presets()[preset].syslog else {}
    codec = codec_class(codec_class.Settings.of(options, plugin=preset))
    found: hr.Decoded = codec.decoder(codec.default_schema()).decode(Bodies.of(bodies))
    return found


@pytest.mark.parametrize("preset", sorted({preset for preset, _, _ in GOLDEN}))
def test_no_body_is_lost_or_raises(preset: str) -> None:
    bodies: list[bytes] = []
    for line in (line.encode() for name, line, _ in GOLDEN if name == preset):
        half = len(line) // 2
        bodies += [line[:end] for end in range(1, len(line))]
        bodies += [
            line[:half] + other + line[half:] for other in (b"\xff\xfe", b"\0", b'"', b'\\"', b"\n", b"- -", b"%")
        ]
        bodies += [line + other for other in (b" ", b"\r", b"\n", b"\0", b'"', b"\x80")]
        bodies.append(line.replace(b" ", b"  "))
    found = decoded(preset, bodies)
    assert found.frame.height + len(found.bad) == len(bodies)
    assert all(bad.reason for bad in found.bad)


@pytest.mark.parametrize(("preset", "line", "expected"), [one for one in GOLDEN if one[0] in _FIXED])
def test_a_line_that_was_cut_off_gives_no_wrong_field(preset: str, line: str, expected: dict[str, Any]) -> None:
    content = line.encode()
    found = decoded(preset, [content[:end] for end in range(1, len(content))])
    for row in found.frame.rows(named=True):
        other = [name for name, value in expected.items() if row[name] != value]
        assert len(other) <= _WITHIN.get(preset, 1), row
        for name in other:  # the last field, or less of it
            assert row[name] is None or str(expected[name]).startswith(str(row[name])), name


@pytest.mark.parametrize(("preset", "line", "expected"), [one for one in GOLDEN if _ADDRESS.search(one[1].encode())])
def test_addresses_may_be_ipv6(preset: str, line: str, expected: dict[str, Any]) -> None:
    found = decoded(preset, [_ADDRESS.sub(b"2001:db8::1", line.encode())])
    assert [bad.reason for bad in found.bad] == []
    row = found.frame.row(0, named=True)
    for name, value in expected.items():
        if isinstance(value, str) and _ADDRESS.fullmatch(value.encode()):
            assert row[name] == "2001:db8::1", name


def test_clients_of_sshd_may_be_names() -> None:
    """With ``UseDNS`` sshd writes the name of a client where it knows one."""
    path = Path(__file__).parent / "variants" / "sshd.ndjson"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    # Addresses in brackets are never names.
    named = [each for each in found if each["columns"] and (address := each["columns"].get("clientip"))
             and each["line"].count(address) == 1 and f"[{address}" not in each["line"]]  # fmt: skip
    assert len(named) > 20
    lines = [each["line"].replace(each["columns"]["clientip"], "pc-7.example.org", 1) for each in named]
    got = decoded("sshd", [line.encode() for line in lines])
    assert [(lines[bad.row], bad.reason) for bad in got.bad] == []
    for each, row in zip(named, got.frame.to_dicts(), strict=True):
        expected = {**each["columns"], "client_host": "pc-7.example.org"}
        del expected["clientip"]
        assert {name: row[name] for name in expected} == expected
        assert row["clientip"] is None


@pytest.mark.slow
@pytest.mark.parametrize("preset", sorted({preset for preset, _, _ in GOLDEN}))
def test_lines_of_a_megabyte_and_blank_ones(preset: str) -> None:
    """None takes time that grows faster than the line: the test would not end."""
    size = 10**6
    for line in (line.encode() for name, line, _ in GOLDEN if name == preset):
        half = len(line) // 2
        parts = [b"x", b" ", b'"', b"[", b"1", b": ", b" a=b", "é漢😀".encode(), b"\\"]
        bodies = [line[:half] + part * (size // len(part)) + line[half:] for part in parts]
        bodies += [line + b"x" * size, (line + b" ") * (size // len(line)), b"x" * size, b" ", b""]
        found = decoded(preset, bodies)
        assert found.frame.height + len(found.bad) == len(bodies)
