"""The examples of docs/joins.md, docs/changelogs.md and docs/windows.md run, and give the tables that the pages show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pages import DOCS, run_examples


@pytest.mark.parametrize("page", ["joins.md", "changelogs.md", "windows.md"])
def test_examples(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(DOCS / page, capsys)
    assert compared == (6 if page == "windows.md" else 3)


def test_changes_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(DOCS / "changelogs.md", capsys)
    rows = [json.loads(line) for part in Path("totals").glob("*.json") for line in part.read_text().splitlines()]
    assert {row["change"] for row in rows} <= {"insert", "update_before", "update_after"}
    last = {row["customer"]: row["total"] for row in rows if row["change"] != "update_before"}
    assert last == {"Uma": 40, "Sven": 20}
