"""The example of docs/detection.md runs and gives what the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "detection.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if what:
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text)
        elif kind == "python":
            exec(text, names)
        elif kind == "text":
            shown = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert shown == [json.loads(line) for line in text.splitlines()]
            compared += 1
    assert compared
