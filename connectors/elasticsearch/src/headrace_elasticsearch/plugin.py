"""What headrace-elasticsearch offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"elasticsearch": "headrace_elasticsearch.source:ElasticsearchSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"elasticsearch": "headrace_elasticsearch.sink:ElasticsearchSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return dict.fromkeys(("elasticsearch-7", "elasticsearch-8", "es"), "elasticsearch")
