"""What headrace-http offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"http": "headrace_http.source:HttpSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"http": "headrace_http.sink:HttpSink"}
