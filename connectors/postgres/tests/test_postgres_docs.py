"""docs/connectors/postgres.md names the options as they are declared, and its statements make the connector's tables."""

from __future__ import annotations

import re

import pytest
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import SinkSettings
from headrace_postgres import PostgresChangesSettings, PostgresSinkSettings, PostgresSourceSettings
from headrace_postgres.chunks import STATEMENT as CHUNKS
from headrace_postgres.positions import STATEMENT as POSITIONS

from tests.pages import DOCS, declared_options, section, tabled_options

PAGE = DOCS / "connectors" / "postgres.md"


@pytest.mark.parametrize(
    ("title", "settings"),
    [("Source", PostgresSourceSettings), ("Changes", PostgresChangesSettings), ("Sink", PostgresSinkSettings)],
)
def test_options(title: str, settings: type[Settings]) -> None:
    declared = declared_options(settings, SinkSettings if title == "Sink" else None)
    rows = tabled_options(section(PAGE, title))
    assert rows == declared


@pytest.mark.parametrize(
    ("title", "statement", "table"),
    [("Sink", POSITIONS, "headrace_offsets"), ("Changes", CHUNKS, "headrace_chunks")],
)
def test_the_statements_for_administrators_are_those_of_the_connector(title: str, statement: str, table: str) -> None:
    blocks = re.findall(r"```sql\n(CREATE TABLE IF NOT EXISTS.*?)```", section(PAGE, title), re.S)
    assert [block.strip() for block in blocks] == [statement.format(table=table).strip() + ";"]
