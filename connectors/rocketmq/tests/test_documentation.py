"""The documentation page has the options that are declared."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_rocketmq.settings import RocketMQSinkSettings, RocketMQSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "rocketmq.md"


@pytest.mark.parametrize(("what", "settings"), [("source", RocketMQSourceSettings), ("sink", RocketMQSinkSettings)])
def test_options_are_tabled(what: str, settings: type[Settings]) -> None:
    def escaped(text: str) -> str:
        return text.replace("|", r"\|")

    of_every_sink = {found.name for found in describe_options(SinkSettings)}
    section = PAGE.read_text().split(f"\n### Options of the {what}\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == [
        f"| `{found.name}` | `{escaped(found.type)}` | `{escaped(found.default or 'required')}` "
        f"| {escaped(found.description)} |"
        for found in describe_options(settings)
        if found.name not in of_every_sink
    ]
