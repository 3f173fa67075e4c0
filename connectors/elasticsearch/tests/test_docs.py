"""The page shows the options as they are declared."""

from __future__ import annotations

import pytest
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import SinkSettings
from headrace_elasticsearch import ElasticsearchSinkSettings, ElasticsearchSourceSettings

from tests.pages import DOCS, declared_options, section, tabled_options

PAGE = DOCS / "connectors" / "elasticsearch.md"


@pytest.mark.parametrize(
    ("title", "settings"), [("Source", ElasticsearchSourceSettings), ("Sink", ElasticsearchSinkSettings)]
)
def test_options(title: str, settings: type[Settings]) -> None:
    declared = declared_options(settings, SinkSettings if title == "Sink" else None)
    rows = tabled_options(section(PAGE, title))
    assert [row for row in rows if row[0] in {name for name, *_ in declared}] == declared
