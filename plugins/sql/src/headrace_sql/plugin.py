"""What headrace-sql offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {
        "blackhole": "headrace_sql.operators.sinks:BlackholeSink",
        "collect": "headrace_sql.operators.sinks:CollectSink",
    }


@hookimpl
def headrace_languages() -> Mapping[str, str]:
    return {"sql": "headrace_sql.api:SqlLanguage"}


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {
        "frame": "headrace_sql.operators.frames:FrameSource",
        "datagen": "headrace_sql.operators.datagen:DatagenSource",
    }
