"""The examples of docs/grok.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace_grok.codec import GrokSettings
from headrace_grok.library import definitions_of

from tests.pages import DOCS, rows_with_types, run_examples, section, tabled_rows

PAGE = DOCS / "grok.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names, compared = run_examples(PAGE, capsys)
    assert compared == 1
    report = names["report"]
    assert [row["response"] for row in report.collect().to_dicts()] == [200]


def test_options_are_tabled() -> None:
    assert tabled_rows(section(PAGE, "Options of the format")) == rows_with_types(GrokSettings)


def test_patterns_that_are_named_exist() -> None:
    named = re.findall(r"`([A-Z][A-Z0-9_]+)`", section(PAGE, "The library"))
    assert len(named) > 50
    assert [name for name in named if name not in definitions_of()] == []
