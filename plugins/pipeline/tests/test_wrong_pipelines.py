"""What can be wrong with a pipeline of logs and alerts: told with file, line and how to mend it.

What is told stands in ``wrong_pipelines.txt``. After a change of messages write it anew, and read what has changed:

    python plugins/pipeline/tests/test_wrong_pipelines.py
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from headrace.foundation.errors import JobError
from headrace.interfaces.language import language

GOLDEN = Path(__file__).with_name("wrong_pipelines.txt")
PIPELINE = """name: alerts
sources:
  logs:
    connector: syslog
    tcp_port: 5514
    buffer: buffer
    format: syslog
    metadata: {peer: peer, received: time}
steps:
  - parse: {grok: "^%{WORD:verb} %{INT:code:int}$", on: message}
  - where: severity <= 4
  - rules:
      inline:
        - {id: denied, expression: "verb = 'denied'", severity: high}
  - throttle: {by: host, interval: 10 min}
  - select: [received, host, rule_ids, code]
sinks:
  hook: {connector: http, url: "http://127.0.0.1:9/hook"}
cases:
  - name: one is denied
    in:
      logs:
        - {severity: 3, host: a, message: denied 7}
    out:
      hook:
        - {host: a, code: 7}
"""
CORRELATIONS = """
title: Denied
name: denied2
detection: {s: {verb: denied}, condition: s}
---
title: Often denied
id: often
correlation: {type: event_count, rules: [denied2], group-by: [host], timespan: 1m, condition: {gte: 2}}
"""
#: What is replaced in the pipeline, and by what.
WRONG: Mapping[str, tuple[str, str]] = {
    "source: option misspelt": ("tcp_port: 5514", "tcp_prt: 5514"),
    "source: port is a text": ("tcp_port: 5514", "tcp_port: many"),
    "source: port out of range": ("tcp_port: 5514", "tcp_port: 99999"),
    "source: no port at all": ("    tcp_port: 5514\n", ""),
    "source: no buffer": ("    buffer: buffer\n", ""),
    "source: choice": ("buffer: buffer", "buffer: buffer\n    when_full: wait"),
    "source: open to all": ("tcp_port: 5514", "tcp_port: 5514\n    host: 0.0.0.0"),
    "source: size": ("buffer: buffer", "buffer: buffer\n    buffer_max_bytes: much"),
    "source: not a network": ("tcp_port: 5514", "tcp_port: 5514\n    allow: [10.0.0.0/99]"),
    "source: tls without certificate": ("tcp_port: 5514", "tls_port: 6514"),
    "format: option": ("format: syslog", "format: syslog\n    timzone: UTC"),
    "format: zone": ("format: syslog", "format: syslog\n    timezone: Mars/Base"),
    "format: preset misspelt": ("format: syslog", "format: nginx-acces"),
    "format: schema column": ("format: syslog", "format: syslog\n    schema: {hots: string}"),
    "format: schema type": ("format: syslog", "format: syslog\n    schema: {severity: timestamp}"),
    "format: none": ("    format: syslog\n", ""),
    "metadata: no such": ("peer: peer", "peer: pear"),
    "connector missing": ("    connector: syslog\n", ""),
    "sources missing": ("sources:\n  logs:", "sorces:\n  logs:"),
    "sources a list": ("sources:\n  logs:\n    connector", "sources:\n  - logs:\n    connector"),
    "steps a mapping": ("steps:\n  - parse:", "steps:\n    parse:"),
    "grok: unknown pattern": ("%{WORD:verb}", "%{WROD:verb}"),
    "grok: bad regex": ("^%{WORD:verb}", "^(%{WORD:verb}"),
    "grok: unknown type": ("INT:code:int", "INT:code:integr"),
    "grok: column": ("on: message", "on: mesage"),
    "grok: number column": ("on: message", "on: severity"),
    "where: compare types": ("severity <= 4", "severity <= 'warning'"),
    "where: no condition": ("severity <= 4", "severity + 4"),
    "where: unbalanced": ("severity <= 4", "(severity <= 4"),
    "where: unknown function": ("severity <= 4", "levl(severity) <= 4"),
    "rules: expression": ("verb = 'denied'", "verb = 'denied' AND"),
    "rules: severity": ("severity: high", "severity: hihg"),
    "rules: no id": ("id: denied, ", ""),
    "rules: twice": (
        "        - {id: denied,",
        '        - {id: denied, expression: "code = 1"}\n        - {id: denied,',
    ),
    "rules: output": ("  - rules:\n", "  - rules:\n      output: all\n"),
    "throttle: column": ("by: host,", "by: hots,"),
    "throttle: interval": ("interval: 10 min", "interval: soon"),
    "throttle: option": ("interval: 10 min", "intervall: 10 min"),
    "throttle: none": ("interval: 10 min", "interval: 0 s"),
    "correlate: no file": (
        "throttle: {by: host, interval: 10 min}",
        "correlate: {correlations: none.yml, on: received}",
    ),
    "correlate: on": ("throttle: {by: host, interval: 10 min}", "correlate: {correlations: often.yml, on: host}"),
    "correlate: option": (
        "throttle: {by: host, interval: 10 min}",
        "correlate: {correlations: often.yml, onn: received}",
    ),
    "correlate: idle": (
        "throttle: {by: host, interval: 10 min}",
        "correlate: {correlations: often.yml, on: received, idle_timeout: never}",
    ),
    "select: after": ("rule_ids, code]", "rule_idss, code]"),
    "sink: url": ("http://127.0.0.1:9/hook", "127.0.0.1:9/hook"),
    "sink: no url": (', url: "http://127.0.0.1:9/hook"', ""),
    "sink: from": ("connector: http,", "connector: http, from: wherre,"),
    "sink: status": ("connector: http,", "connector: http, retry_statuses: [200],"),
    "sink: rows": ("connector: http,", "connector: http, request_rows: 0,"),
    "sink: duration": ("connector: http,", "connector: http, retry_timeout: a while,"),
    "case: source": ("      logs:\n        - {severity", "      log:\n        - {severity"),
    "case: column in": ("{severity: 3, host: a,", "{severty: 3, host: a,"),
    "case: value in": ("{severity: 3,", "{severity: three,"),
    "case: sink": ("      hook:\n        - {host: a, code: 7}", "      hooks:\n        - {host: a, code: 7}"),
    "case: column out": ("{host: a, code: 7}", "{hots: a, code: 7}"),
    "case: value out": ("{host: a, code: 7}", "{host: a, code: seven}"),
    "case: expects nothing": ("    out:\n      hook:\n        - {host: a, code: 7}\n", ""),
    "case: twice": ("cases:\n", "cases:\n  - name: one is denied\n    in: {logs: []}\n    out: {hook: []}\n"),
    "case: dead letters a text": ("    out:\n", "    dead_letters: some\n    out:\n"),
    "case: dead letter key": ("    out:\n", "    dead_letters:\n      - {raeson: x}\n    out:\n"),
    "case: sink twice contradicts": ("        - {host: a, code: 7}", "        - {host: a, code: 7}\n      hook: []"),
    "dead letters: sink": ("cases:", "dead_letters: {connector: fille, path: x}\ncases:"),
}
TITLE = re.compile(r"^## (.*)\n", re.MULTILINE)


def told(text: str) -> str:
    """Return what is told of a pipeline in the current directory."""
    Path("alerts.yaml").write_text(text)
    try:
        language("yaml").lint("alerts.yaml", {})
    except JobError as error:
        return str(error)
    raise AssertionError("it was not refused")


def golden() -> dict[str, str]:
    _, *parts = TITLE.split(GOLDEN.read_text(encoding="utf-8"))
    return {title: message.strip("\n") for title, message in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("often.yml").write_text(CORRELATIONS)


def test_the_pipeline_is_good() -> None:
    Path("alerts.yaml").write_text(PIPELINE)
    assert language("yaml").lint("alerts.yaml", {}) == []


@pytest.mark.parametrize("what", WRONG)
def test_wrong(what: str) -> None:
    before, after = WRONG[what]
    assert before in PIPELINE
    message = told(PIPELINE.replace(before, after, 1))
    assert message == golden()[what]
    assert re.match(r"alerts\.yaml, line \d+, column \d+: ", message)


def test_nothing_else_is_told() -> None:
    assert list(golden()) == list(WRONG)


def write() -> None:
    """Write what is told of all wrong pipelines."""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("often.yml").write_text(CORRELATIONS)
        found = {what: told(PIPELINE.replace(*change, 1)) for what, change in WRONG.items()}
    GOLDEN.write_text("".join(f"## {what}\n{message}\n\n" for what, message in found.items()), encoding="utf-8")


if __name__ == "__main__":
    write()
