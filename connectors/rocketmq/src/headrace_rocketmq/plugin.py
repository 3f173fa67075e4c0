"""What headrace-rocketmq offers to headrace."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"rocketmq": "headrace_rocketmq.source:RocketMQSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"rocketmq": "headrace_rocketmq.sink:RocketMQSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"metaq": "rocketmq"}
