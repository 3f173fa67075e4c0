"""The example of docs/connectors/columnar-files.md runs; the options that it tables are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import describe_options
from headrace_dimension.columnar_files import ColumnarFileSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "columnar-files.md"


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    exec(blocks[0], {})


def test_options_are_tabled() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert lines == option_rows()


def option_rows() -> list[str]:
    """Return the rows of the table."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(ColumnarFileSettings)
    ]
