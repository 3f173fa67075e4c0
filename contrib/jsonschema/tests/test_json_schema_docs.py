"""The example of docs/json-schema.md runs and prints what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.codecs.json import JsonSettings
from headrace.interfaces.settings import Settings, describe_options
from headrace_jsonschema.settings import ConfluentSettings, JsonSchemaSettings

PAGE = Path(__file__).parents[3] / "docs" / "json-schema.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text()):
        if kind == "json":
            (tmp_path / what).write_text(text)
        elif (kind, what) == ("python", ""):
            exec(text, {})
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert sorted(map(str, printed)) == sorted(str(json.loads(line)) for line in text.splitlines())
            compared += 1
    assert compared == 1


def test_options_are_tabled() -> None:
    shared = set(JsonSettings.__struct_fields__)
    for heading, settings, left_out in (
        ("Options", JsonSchemaSettings, shared),
        ("Options of json-schema-confluent", ConfluentSettings, set()),
    ):
        section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
        assert [line for line in section.splitlines() if line.startswith("| `")] == option_rows(settings, left_out)


def option_rows(settings: type[Settings], left_out: set[str]) -> list[str]:
    """Return the rows of the table."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(settings)
        if found.name not in left_out
    ]
