"""docs/formats.md says what the code does: its option tables are the declared options, its reasons are real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from headrace.codecs.body_checks import NESTING_MAX
from headrace.codecs.csv import CsvSettings
from headrace.codecs.json import JsonSettings
from headrace.codecs.raw import RawSettings
from headrace.flow.schema import TYPE_NAMES
from headrace.interfaces.settings import Settings, describe_options

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"
FORMATS: dict[str, type[Settings]] = {"json": JsonSettings, "csv": CsvSettings, "raw": RawSettings}


def option_rows(settings: type[Settings]) -> list[str]:
    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(settings)
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_options_are_tabled(name: str) -> None:
    section = PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    table = section.split("### Options")[1]
    assert [line for line in table.splitlines() if line.startswith("| `")] == option_rows(FORMATS[name])


def test_types_and_limits_are_named() -> None:
    text = PAGE.read_text()
    types = text.split("\n## Types\n")[1].split("\n## ")[0]
    known = {"int16": "int8", "int32": "int8", "struct<a: t, b: u>": "struct<…>"}
    assert [name for name in TYPE_NAMES if f"`{known.get(name, name)}`" not in types] == []
    assert f"deeper than {NESTING_MAX} levels" in text


def test_naming_a_format_loads_no_polars() -> None:
    code = (
        "import sys, headrace.codecs.json, headrace.codecs.csv, headrace.codecs.raw; "
        "headrace.codecs.json.JsonCodec(), headrace.codecs.csv.CsvCodec(), headrace.codecs.raw.RawCodec(); "
        "print(sorted({'polars', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"
