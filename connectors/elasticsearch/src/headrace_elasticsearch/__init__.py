"""Elasticsearch source and sink for headrace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_elasticsearch.settings import ElasticsearchSinkSettings, ElasticsearchSourceSettings
    from headrace_elasticsearch.sink import ElasticsearchSink
    from headrace_elasticsearch.source import ElasticsearchSource

__all__ = ["ElasticsearchSink", "ElasticsearchSinkSettings", "ElasticsearchSource", "ElasticsearchSourceSettings"]
_PLACES = {
    "ElasticsearchSink": "headrace_elasticsearch.sink",
    "ElasticsearchSinkSettings": "headrace_elasticsearch.settings",
    "ElasticsearchSource": "headrace_elasticsearch.source",
    "ElasticsearchSourceSettings": "headrace_elasticsearch.settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
