"""The examples of docs/joins.md and docs/changelogs.md run, and give the tables that the pages show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def table(printed: str) -> list[str]:
    """Return the rows that are there after all printed changes."""
    rows: list[str] = []
    for line in printed.splitlines():
        mark, row = (line[:2], line[3:]) if line[:1] in "+-" else ("+I", line)
        if mark[0] == "+":
            rows.append(row)
        else:
            rows.remove(row)
    return sorted(json.dumps(json.loads(row), sort_keys=True) for row in rows)


@pytest.mark.parametrize("page", ["joins.md", "changelogs.md"])
def test_examples(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall((DOCS / page).read_text()):
        if kind == "ndjson":
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text)
        elif kind == "python":
            exec(text, names)
        elif (kind, what) == ("text", "table"):
            wanted = sorted(json.dumps(json.loads(line), sort_keys=True) for line in text.splitlines())
            assert table(capsys.readouterr().out) == wanted
            compared += 1
    assert compared == 3


def test_changes_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "changelogs.md").read_text()
    names: dict[str, object] = {}
    for kind, what, text in BLOCK.findall(page):
        if kind == "ndjson":
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text)
        elif kind == "python":
            exec(text, names)
    rows = [json.loads(line) for part in Path("totals").glob("*.json") for line in part.read_text().splitlines()]
    assert {row["change"] for row in rows} <= {"insert", "update_before", "update_after"}
    last = {row["customer"]: row["total"] for row in rows if row["change"] != "update_before"}
    assert last == {"Uma": 40, "Sven": 20}
