"""The examples of docs/windows.md run, and give the tables that the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.stateful.tests.test_docs import BLOCK, DOCS, table


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall((DOCS / "windows.md").read_text()):
        if kind == "ndjson":
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text)
        elif kind == "python":
            exec(text, names)
        elif (kind, what) == ("text", "table"):
            wanted = sorted(json.dumps(json.loads(line), sort_keys=True) for line in text.splitlines())
            assert table(capsys.readouterr().out) == wanted
            compared += 1
    assert compared == 6
