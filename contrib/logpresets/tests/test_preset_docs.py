"""The examples of docs/log-presets.md run and print what it shows; its tables say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace_logpresets.page import main, with_tables

PAGE = Path(__file__).parents[3] / "docs" / "log-presets.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text()):
        if kind == "log":
            Path(what).write_text(text)
        elif kind == "python":
            exec(text, names)
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert sorted(map(str, printed)) == sorted(str(json.loads(line)) for line in text.splitlines())
            compared += 1
    assert compared == 1


def test_tables_are_up_to_date(tmp_path: Path) -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text()
    stale = tmp_path / "page.md"
    stale.write_text(PAGE.read_text().replace("| `sshd` | OpenSSH", "| `sshd` | Open SSH"))
    assert main([str(stale), "--check"]) == 1
    assert main([str(stale)]) == 0
    assert stale.read_text() == PAGE.read_text()
