"""The examples of docs/log-presets.md run and print what it shows; its tables say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_logpresets.page import main, with_tables

from tests.pages import DOCS, run_examples

PAGE = DOCS / "log-presets.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(PAGE, capsys)
    assert compared == 1


def test_tables_are_up_to_date(tmp_path: Path) -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text()
    stale = tmp_path / "page.md"
    stale.write_text(PAGE.read_text().replace("| `sshd` | OpenSSH", "| `sshd` | Open SSH"))
    assert main([str(stale), "--check"]) == 1
    assert main([str(stale)]) == 0
    assert stale.read_text() == PAGE.read_text()
