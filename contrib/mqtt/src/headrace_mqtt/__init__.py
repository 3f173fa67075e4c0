"""MQTT for headrace: a source that keeps messages until a checkpoint covers them, and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_mqtt.settings import MqttSinkSettings, MqttSourceSettings
    from headrace_mqtt.sink import MqttSink
    from headrace_mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSinkSettings", "MqttSource", "MqttSourceSettings"]
_PLACES = {
    "MqttSink": "headrace_mqtt.sink",
    "MqttSinkSettings": "headrace_mqtt.settings",
    "MqttSource": "headrace_mqtt.source",
    "MqttSourceSettings": "headrace_mqtt.settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
