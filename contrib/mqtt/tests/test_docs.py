"""The page shows the options as they are declared."""

from __future__ import annotations

from headrace.interfaces.sink import SinkSettings
from headrace_mqtt import MqttSinkSettings, MqttSourceSettings

from tests.pages import DOCS, declared_options, tabled_options

PAGE = DOCS / "connectors" / "mqtt.md"


def test_options() -> None:
    source, sink = PAGE.read_text(encoding="utf-8").split("\n## Sink\n")
    assert tabled_options(source) == declared_options(MqttSourceSettings)
    assert tabled_options(sink) == declared_options(MqttSinkSettings, SinkSettings)
