"""The examples of docs/change-data.md run and give the tables that it shows; what it tables is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.registry import default_registry

from tests.pages import BLOCK, DOCS, run_examples

PAGE = DOCS / "change-data.md"
FORMATS = ("debezium-json", "canal-json", "maxwell-json", "ogg-json", "changelog-json", "upsert")


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(PAGE, capsys)
    assert compared == 4


def test_the_statement_of_the_page_is_a_table() -> None:
    import headrace as hr

    (text,) = [text for kind, _, text in BLOCK.findall(PAGE.read_text()) if kind == "sql"]
    made = hr.sql("".join([text, "SELECT kind, COUNT(*) FROM goods GROUP BY kind"]))
    assert next(iter(made.plan().sources.values())).changes is not None


def test_metadata_is_that_of_the_formats() -> None:
    section = PAGE.read_text().split("### Metadata")[1].split("\n## ")[0]
    tabled = {
        found[1]: re.findall(r"`([^`]+)`", found[2])
        for found in re.finditer(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    }
    there = {name: list(default_registry().find("codec", name)().metadata_types()) for name in FORMATS}
    assert tabled == {name: fields for name, fields in there.items() if fields}


def test_options_are_those_of_the_formats() -> None:
    section = PAGE.read_text().split("### Options")[1].split("\n### ")[0]
    lines = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    tabled = {name for line in lines for name in re.findall(r"`(\w+)`", line)}
    tabled |= {"max_body_bytes", "timestamp_unit", "timestamp_format", "json_columns"}
    there = {field for name in FORMATS for field in default_registry().find("codec", name).Settings.__struct_fields__}
    assert tabled == there
