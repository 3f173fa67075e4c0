"""Verbs with keys that plug-ins offer: presets, a lookup, rules, a correlation and throttled alerts in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_pipeline import pipeline
from pipeline_files import Write

LOGINS = [
    f"Jan 15 10:23:{40 + n} web-1 sshd[811]: Failed password for root from 192.0.2.10 port 40022 ssh2" for n in range(6)
]
LOGINS += ["Jan 15 10:24:47 web-1 sshd[811]: garbage"]
RULES = """
title: Failed
id: failed
name: failed_login
level: low
detection:
  selection: {event: Failed}
  condition: selection
---
title: Many failures
id: many
level: high
correlation:
  type: event_count
  rules: [failed_login]
  group-by: [clientip]
  timespan: 5m
  condition: {gte: 3}
"""
PIPELINE = """
name: detect
sources:
  logins: {connector: file, path: auth.log, format: raw}
  owners: {connector: file, path: owners.ndjson, format: json, schema: {ip: string, owner: string}}
steps:
  - from: logins
    parse_log: {preset: sshd, on: line, header: true, year: 2026}
  - lookup: {table: owners, on: {clientip: ip}, how: left}
  - rules: rules.yml
  - correlate: {correlations: rules.yml, on: timestamp, late: 10 s}
  - throttle: {by: rule_id, interval: 10 min}
  - select: [rule_id, rule_severity, owner, correlation_count]
sinks:
  alerts: {connector: file, path: out/alerts, format: json}
dead_letters: {connector: file, path: out/bad, format: json}
"""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def test_detection_in_a_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "auth.log").write_text("\n".join(LOGINS) + "\n")
    (tmp_path / "owners.ndjson").write_text('{"ip": "192.0.2.10", "owner": "mallory"}\n')
    (tmp_path / "rules.yml").write_text(RULES)
    pipeline(write(PIPELINE)).run("light")
    assert rows_of(tmp_path / "out" / "alerts") == [
        {"rule_id": "many", "rule_severity": "high", "owner": "mallory", "correlation_count": 3}
    ]
    assert [row["offset"] for row in rows_of(tmp_path / "out" / "bad")] == [6]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("throttle: 10 min", "expected keys and values"),
        ("throttle: {interval: 10 min}", "by"),
        ("throttle: {by: line, intervall: 10 min}", "did you mean 'interval'"),
        ("throttle: {by: lines, interval: 10 min}", "lines"),
        ("throttle: {by: line, interval: 0 s}", "interval"),
        ("correlate: {correlations: rules.yml, on: line, lates: 1 s}", "did you mean 'late'"),
    ],
)
def test_wrong_steps(write: Write, step: str, message: str) -> None:
    text = f"name: x\nsources:\n  a: {{connector: file, path: a.log, format: raw}}\nsteps:\n  - {step}\nsinks:\n  b: {{connector: print}}\n"
    with pytest.raises(hr.JobError, match=message):
        pipeline(write(text))
