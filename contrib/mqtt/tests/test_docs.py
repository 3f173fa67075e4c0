"""The page shows the options as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_mqtt import MqttSinkSettings, MqttSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "mqtt.md"


def declared(settings: type[Settings], inherited: type[Settings] | None) -> list[tuple[str, str, str]]:
    known = set() if inherited is None else {option.name for option in describe_options(inherited)}
    return [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in known
    ]


def test_options() -> None:
    source, sink = PAGE.read_text(encoding="utf-8").split("\n## Sink\n")
    row = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
    assert row.findall(source) == declared(MqttSourceSettings, None)
    assert row.findall(sink) == declared(MqttSinkSettings, SinkSettings)
