"""The examples of docs/avro.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace_avro.registry_settings import ConfluentSettings
from headrace_avro.settings import AvroSettings

PAGE = Path(__file__).parents[3] / "docs" / "avro.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text()):
        if (kind, what) == ("python", ""):
            exec(text, names)
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert sorted(map(str, printed)) == sorted(str(json.loads(line)) for line in text.splitlines())
            compared += 1
    assert compared == 1


@pytest.mark.parametrize(
    ("heading", "settings"), [("Options", AvroSettings), ("Options of avro-confluent", ConfluentSettings)]
)
def test_options_are_tabled(heading: str, settings: type[Settings]) -> None:
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == option_rows(settings)


def option_rows(settings: type[Settings]) -> list[str]:
    """Return the rows of the table."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(settings)
    ]
