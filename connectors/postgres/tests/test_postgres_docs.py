"""docs/connectors/postgres.md names the options as they are declared, and its statements make the connector's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_postgres import PostgresChangesSettings, PostgresSinkSettings, PostgresSourceSettings
from headrace_postgres.chunks import STATEMENT as CHUNKS
from headrace_postgres.positions import STATEMENT as POSITIONS

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "postgres.md"


def section(title: str) -> str:
    found = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.S)
    assert found is not None, title
    return found[1]


@pytest.mark.parametrize(
    ("title", "settings"),
    [("Source", PostgresSourceSettings), ("Changes", PostgresChangesSettings), ("Sink", PostgresSinkSettings)],
)
def test_options(title: str, settings: type[Settings]) -> None:
    inherited = {option.name for option in describe_options(SinkSettings)} if title == "Sink" else set()
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in inherited
    ]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section(title), re.M)
    assert rows == declared


@pytest.mark.parametrize(
    ("title", "statement", "table"),
    [("Sink", POSITIONS, "headrace_offsets"), ("Changes", CHUNKS, "headrace_chunks")],
)
def test_the_statements_for_administrators_are_those_of_the_connector(title: str, statement: str, table: str) -> None:
    blocks = re.findall(r"```sql\n(CREATE TABLE IF NOT EXISTS.*?)```", section(title), re.S)
    assert [block.strip() for block in blocks] == [statement.format(table=table).strip() + ";"]
