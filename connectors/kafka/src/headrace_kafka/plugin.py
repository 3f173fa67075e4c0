"""What headrace-kafka offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"kafka": "headrace_kafka.source:KafkaSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"kafka": "headrace_kafka.sink:KafkaSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"upsert-kafka": "kafka"}
