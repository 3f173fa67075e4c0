"""The page about files: its tables hold every option with its default, and its example runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace_file import FileSinkSettings, FileSourceSettings

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "file.md").read_text()


@pytest.mark.parametrize(("heading", "settings"), [("source", FileSourceSettings), ("sink", FileSinkSettings)])
def test_tables_hold_every_option(heading: str, settings: type[Settings]) -> None:
    section = PAGE.partition(f"\n## The {heading}\n")[2].partition("\n## ")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    declared = {
        option.name: "required" if option.required else "none" if option.default == "None" else f"`{option.default}`"
        for option in describe_options(settings)
    }
    assert table == declared


def test_columns_by_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    section = PAGE.partition("\n### Columns by the names in a header\n")[2].partition("\n### ")[0]
    for name, content in re.findall(r"```csv (\S+)\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).write_text(content)
    code, output = re.findall(r"```(?:python|text output)\n(.*?)```", section, re.DOTALL)
    exec(code, {})
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert printed == [json.loads(line) for line in output.splitlines()]


def test_stack_traces_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = PAGE.partition("\n### Records of several lines\n")[2]
    (log, code, output) = re.findall(r"```(?:log app.log|python|text output)\n(.*?)```", section, re.DOTALL)[:3]
    (tmp_path / "app.log").write_text(log)
    exec(code, {})
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert printed == [json.loads(line) for line in output.splitlines()]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    rows = [
        {"host": "web-1", "user": "alice", "cmdline": "CURL http://example.com"},
        {"host": "web-2", "user": "root", "cmdline": "curl http://example.com"},
        {"host": "web-3", "user": "bob", "cmdline": "ls"},
    ]
    (tmp_path / "events" / "a.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(code, names)
    (part,) = (tmp_path / "alerts").glob("*.json")
    assert [json.loads(line) for line in part.read_text().splitlines()] == rows[:1]
