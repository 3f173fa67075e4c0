"""Rules of Sigma find their fields in the columns of presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySource
from headrace_logpresets.presets import Choices, presets
from headrace_logpresets.sigma import sigma_fields
from headrace_pipeline.testing import run_cases
from preset_lines import GOLDEN

EVENTS = {
    "windows-sysmon": r"{Image|endswith: '\cmd.exe', EventID: 1, ParentProcessId: 12}",
    "windows-security": "{EventID: 4625, LogonType: 3, TargetUserName: ida}",
    "nginx-access": "{cs-method: GET, cs-uri-query|contains: '?b=', sc-status: 200, c-useragent|startswith: curl}",
    "iis": "{cs-uri-stem|endswith: .htm, cs-uri-query: id=7, cs-username|contains: ida}",
    "auditd": "{type: EXECVE, a0: cat, a2: /etc/shadow}",
    "aws-cloudtrail": "{eventName: CreateUser, eventSource: iam.amazonaws.com, userIdentity.type: IAMUser}",
    "kubernetes-audit": "{verb: get, objectRef.resource: secrets, responseStatus.code: 403}",
    "dnsmasq": "{query: example.org, record_type: A}",
}


@pytest.mark.parametrize("preset", EVENTS)
def test_a_rule_matches(preset: str, tmp_path: Path) -> None:
    (tmp_path / "rule.yml").write_text(
        f"title: found\nlogsource: {{product: any}}\ndetection:\n  selection: {EVENTS[preset]}\n  condition: selection\n"
    )
    lines = [line.encode() for name, line, _ in GOLDEN if name == preset]
    if preset == "auditd":
        lines.append(b'type=EXECVE msg=audit(1768472625.123:1): argc=3 a0="cat" a1="-n" a2=2F6574632F736861646F77')
    more: dict[str, Any] = {"year": 2026} if presets()[preset].syslog else {}
    found = (
        hr.stream("t", "sigma")
        .from_(MemorySource({"q": lines}), format=preset, **more)
        .rules(str(tmp_path / "rule.yml"), sigma={"fields": sigma_fields(preset)})
        .collect()
    )
    assert found.height == 1


def test_rules_ask_the_format_for_the_columns(tmp_path: Path) -> None:
    """``fields`` is the name of the format, so that a pipeline in YAML needs no code."""
    (tmp_path / "rule.yml").write_text(
        "title: found\nlogsource: {product: windows, category: process_creation}\n"
        "detection:\n  selection: {Image|endswith: '\\cmd.exe'}\n  condition: selection\n"
    )
    (tmp_path / "job.yaml").write_text(
        "name: sigma\nsources:\n  events: {connector: file, path: events, format: windows-sysmon}\nsteps:\n"
        "  - rules: {file: '${HERE}/rule.yml', sigma: {fields: windows-sysmon, logsource: windows}, output: first}\n"
        "  - select: [rule_id, image]\nsinks:\n  out: {connector: print}\ncases:\n  - name: a command line\n    in:\n"
        "      events:\n        - {provider: Microsoft-Windows-Sysmon, channel: Microsoft-Windows-Sysmon/Operational,\n"
        "           event_id: 1, image: 'C:\\cmd.exe'}\n        - {image: 'C:\\cmd.exe', event_id: 3}\n"
        "    out:\n      out: [{rule_id: found, image: 'C:\\cmd.exe'}]\n"
    )
    (result,) = run_cases(tmp_path / "job.yaml", {})
    assert result.differences == ()


def test_a_format_that_does_not_tell_its_fields_is_refused() -> None:
    rows = hr.stream("t", "sigma").from_(MemorySource({"q": []}), format="json", schema={"a": "string"})
    with pytest.raises(hr.OptionError, match="'json' does not tell which fields of Sigma its columns are"):
        rows.rules("rules/*.yml", sigma={"fields": "json"})


@pytest.mark.parametrize("preset", sorted(presets()))
def test_every_field_is_a_column(preset: str) -> None:
    assert set(sigma_fields(preset).values()) <= set(presets()[preset].columns(Choices()))


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(hr.OptionError, match="nginx-acces"):
        sigma_fields("nginx-acces")
