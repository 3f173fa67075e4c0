"""What tests of pages of the documentation share: their sections, their tables of options, and examples that are run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from headrace.interfaces.settings import OptionHelp, Settings, describe_options

DOCS = Path(__file__).resolve().parents[1] / "docs"
#: A block of code: its language, what stands behind that, its text.
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: What a block holds that is written into the file that it names.
_FILES = ("ndjson", "log", "json")


def section(page: Path, title: str) -> str:
    """Return what stands below a heading of the second level."""
    found = re.search(rf"\n## {re.escape(title)}\n(.*?)(?=\n## |\Z)", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, title
    return found[1]


def tabled_options(text: str) -> list[tuple[str, str, str]]:
    """Return the rows of tables with three columns: option, default, what it does."""
    return re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)


def declared_options(settings: type[Settings], inherited: type[Settings] | None = None) -> list[tuple[str, str, str]]:
    """Return the rows that such a table must have; options that are inherited have a page of their own."""
    known = set() if inherited is None else {option.name for option in describe_options(inherited)}
    return [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in known
    ]


def tabled_rows(text: str) -> list[str]:
    """Return the rows of tables whose first column is code."""
    return [line for line in text.splitlines() if line.startswith("| `")]


def rows_with_types(settings: type[Settings], left_out: Collection[str] = ()) -> list[str]:
    """Return the rows that a table with four columns must have: option, type, default, what it does."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    def row(found: OptionHelp) -> str:
        return f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"

    return [row(found) for found in describe_options(settings) if found.name not in left_out]


def run_examples(
    page: Path, capsys: pytest.CaptureFixture[str], also: Mapping[str, Callable[[str], object]] | None = None
) -> tuple[dict[str, Any], int]:
    """Run a page's examples in Python, one after the other, in the working directory, which has the files of its blocks.

    What they print is compared with the page: rows in any order with ``text output``, the rows that are left by printed changes with
    ``text table``. ``also``: what is done with blocks of other languages. Returns the names that the examples have defined, and how
    many outputs were compared.
    """
    names: dict[str, Any] = {}
    compared = 0
    for language, what, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if also is not None and language in also:
            also[language](text)
        elif language in _FILES and what:
            Path(what).parent.mkdir(parents=True, exist_ok=True)
            Path(what).write_text(text, encoding="utf-8")
        elif (language, what) == ("python", ""):
            exec(text, names)
        elif (language, what) in (("text", "output"), ("text", "table")):
            printed = [line for line in capsys.readouterr().out.splitlines() if line[:1] in ("{", "+", "-")]
            wanted = [_normal(line) for line in text.splitlines()]
            found = [_normal(line) for line in printed] if what == "output" else _left(printed)
            assert sorted(found) == sorted(wanted)
            compared += 1
    return names, compared


def _left(printed: list[str]) -> list[str]:
    """Return the rows that are there after all printed changes."""
    rows: list[str] = []
    for line in printed:
        mark, row = (line[:2], line[3:]) if line[0] in "+-" else ("+I", line)
        if mark[0] == "+":
            rows.append(_normal(row))
        else:
            rows.remove(_normal(row))
    return rows


def _normal(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True)
