"""docs/connectors/kafka.md names the options as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_kafka.settings import KafkaSinkSettings, KafkaSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "kafka.md"


@pytest.mark.parametrize(("title", "settings"), [("Source", KafkaSourceSettings), ("Sink", KafkaSinkSettings)])
def test_options(title: str, settings: type[Settings]) -> None:
    found = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.S)
    assert found is not None
    inherited = {option.name for option in describe_options(SinkSettings)} if title == "Sink" else set()
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in inherited
    ]
    assert re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", found[1], re.M) == declared
