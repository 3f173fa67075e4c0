"""docs/pipelines.md: its pipelines run and print what it shows, all of them are valid, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from headrace_console.app import app
from headrace_pipeline.compiling import PipelineFile
from headrace_pipeline.reference import with_tables
from typer.testing import CliRunner

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "pipelines.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SOURCES = """
sources:
  orders: {connector: file, path: x, format: json, schema: {amount: int64}}
"""
REQUESTS = """
sources:
  requests:
    connector: file
    path: x
    format: json
    schema: {status: int64, path: string, host: string, duration_ms: int64}
"""
SINKS = "\nsinks:\n  all: {connector: print}\n"


def test_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "python -m headrace_pipeline.reference docs/pipelines.md"


def written_blocks(directory: Path) -> list[tuple[str, str, str]]:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for kind, name, text in blocks:
        if kind in ("log", "yaml") and name:
            (directory / name).write_text(text, encoding="utf-8")
    return blocks


def test_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compared = 0
    for kind, _, text in written_blocks(tmp_path):
        if kind != "console":
            continue
        for part in text.split("$ headrace ")[1:]:
            command, _, expected = part.partition("\n")
            done = CliRunner().invoke(app, command.split())
            assert done.stdout == expected, done.output
            compared += 1
    assert compared >= 3
    letters = [line for file in Path("bad-lines").rglob("part-*") for line in file.read_text().splitlines()]
    assert len(letters) == 1
    assert "the pattern does not fit" in letters[0]


def test_the_error_is_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = [text for kind, name, text in written_blocks(tmp_path) if (kind, name) == ("text", "lint")]
    file = Path("failures.yaml")
    file.write_text(file.read_text().replace("where: response", "where: respones"))
    done = CliRunner().invoke(app, ["lint", "failures.yaml"])
    assert done.exit_code == 2
    assert done.stderr.replace(f"{tmp_path}/", "").replace("error: ", "") == shown


def test_the_difference_is_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = [text for kind, name, text in written_blocks(tmp_path) if (kind, name) == ("text", "test")]
    file = Path("failures.yaml")
    file.write_text(file.read_text().replace("response: 404}", "response: 500}"))
    done = CliRunner().invoke(app, ["test", "failures.yaml"])
    assert (done.exit_code, done.stdout) == (1, shown)


def test_parts_of_files_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", "localhost:9092")
    parts = [text for kind, name, text in written_blocks(tmp_path) if kind == "yaml" and not name]
    assert len(parts) >= 7
    for number, text in enumerate(parts):
        keys = yaml.safe_load(text).keys()
        whole = f"name: part{number}\n{text}"
        if "sources" not in keys:
            whole += SOURCES if "amount" in text else REQUESTS
        if "sinks" not in keys:
            whole += SINKS
        file = tmp_path / f"part{number}.yaml"
        file.write_text(whole, encoding="utf-8")
        PipelineFile.of(file, {}).job()
