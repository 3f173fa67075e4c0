"""HTTP for headrace: a source that receives records, and a sink that calls webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_http.bodies import RequestBodies
    from headrace_http.protocols import Answer, HasRequestProtocol, RefusedRequestError, RequestProtocol
    from headrace_http.request_sink import RequestSink
    from headrace_http.settings import HttpSinkSettings, RequestSinkSettings
    from headrace_http.sink import HttpSink
    from headrace_http.source import HttpSource
    from headrace_http.source_settings import HttpSourceSettings

__all__ = [
    "Answer",
    "HasRequestProtocol",
    "HttpSink",
    "HttpSinkSettings",
    "HttpSource",
    "HttpSourceSettings",
    "RefusedRequestError",
    "RequestBodies",
    "RequestProtocol",
    "RequestSink",
    "RequestSinkSettings",
]
_PLACES = {
    "Answer": "headrace_http.protocols",
    "HasRequestProtocol": "headrace_http.protocols",
    "RefusedRequestError": "headrace_http.protocols",
    "RequestBodies": "headrace_http.bodies",
    "RequestProtocol": "headrace_http.protocols",
    "RequestSink": "headrace_http.request_sink",
    "RequestSinkSettings": "headrace_http.settings",
    "HttpSink": "headrace_http.sink",
    "HttpSinkSettings": "headrace_http.settings",
    "HttpSource": "headrace_http.source",
    "HttpSourceSettings": "headrace_http.source_settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
