"""The page shows the options as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_elasticsearch import ElasticsearchSinkSettings, ElasticsearchSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "elasticsearch.md"


def section(title: str) -> str:
    found = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.S)
    assert found is not None, title
    return found[1]


@pytest.mark.parametrize(
    ("title", "settings"), [("Source", ElasticsearchSourceSettings), ("Sink", ElasticsearchSinkSettings)]
)
def test_options(title: str, settings: type[Settings]) -> None:
    inherited = {option.name for option in describe_options(SinkSettings)} if title == "Sink" else set()
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in inherited
    ]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section(title), re.M)
    assert [row for row in rows if row[0] in {name for name, *_ in declared}] == declared
