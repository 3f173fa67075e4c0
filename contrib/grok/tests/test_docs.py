"""The examples of docs/grok.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import describe_options
from headrace_grok.codec import GrokSettings
from headrace_grok.library import definitions_of

PAGE = Path(__file__).parents[3] / "docs" / "grok.md"
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
    report = names["report"]
    assert [row["response"] for row in report.collect().to_dicts()] == [200]  # type: ignore[attr-defined]


def test_options_are_tabled() -> None:
    section = PAGE.read_text().split("\n## Options of the format\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == option_rows()


def option_rows() -> list[str]:
    """Return the rows of the table."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(GrokSettings)
    ]


def test_patterns_that_are_named_exist() -> None:
    section = PAGE.read_text().split("\n## The library\n")[1].split("\n## ")[0]
    named = re.findall(r"`([A-Z][A-Z0-9_]+)`", section)
    assert len(named) > 50
    assert [name for name in named if name not in definitions_of()] == []
