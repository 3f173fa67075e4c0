"""What headrace-mqtt offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"mqtt": "headrace_mqtt.source:MqttSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"mqtt": "headrace_mqtt.sink:MqttSink"}
