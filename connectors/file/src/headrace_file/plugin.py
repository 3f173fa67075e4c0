"""What this distribution offers. Imports nothing heavy: the classes are loaded when a job names them."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"file": "headrace_file.source:FileSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"file": "headrace_file.sink:FileSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"filesystem": "file"}
