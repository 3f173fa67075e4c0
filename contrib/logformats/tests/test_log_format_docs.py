"""The examples of docs/log-formats.md run and print what it shows."""

from __future__ import annotations

import json
import re
from functools import partialmethod
from pathlib import Path

import headrace as hr
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "log-formats.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


# The examples name no backend. A format is the same on both: tests/conformance/test_contributed.py has formats on Spark in every run.
@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_examples(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hr.Job, "run", partialmethod(hr.Job.run, backend))
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text()):
        if kind in ("log", "journal"):
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text + ("\n" if kind == "journal" else ""))
        elif kind == "python":
            exec(text, names)
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert printed == [json.loads(line) for line in text.splitlines()]
            compared += 1
    assert compared == 2
