"""The examples of the page run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_syslog import SyslogSettings, SyslogSinkSettings, SyslogSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "syslog.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "log":
            Path(what).write_text(text, encoding="utf-8")
        elif kind == "python" and what != "notest":
            exec(text, names)
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert sorted(map(str, printed)) == sorted(str(json.loads(line)) for line in text.splitlines())
            compared += 1
    assert compared == 1


def rows_of(settings: type[Settings], inherited: type[Settings] | None = None) -> list[tuple[str, str, str]]:
    known = set() if inherited is None else {option.name for option in describe_options(inherited)}
    return [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in known
    ]


def test_options_are_tabled() -> None:
    row = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
    sections: list[tuple[str, type[Settings], type[Settings] | None]] = [
        ("Source", SyslogSourceSettings, None), ("Format", SyslogSettings, None), ("Sink", SyslogSinkSettings, SinkSettings),
    ]  # fmt: skip
    for part, settings, inherited in sections:
        section = PAGE.read_text(encoding="utf-8").split(f"\n## {part}\n")[1].split("\n## ")[0]
        table = section.split("\n| option | default | meaning |\n")[1]
        assert row.findall(table) == rows_of(settings, inherited)
