"""What this distribution offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"print": "headrace_print.sink:PrintSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"console": "print"}
