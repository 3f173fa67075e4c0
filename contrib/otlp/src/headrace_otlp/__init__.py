"""OTLP for headrace: log records of OpenTelemetry as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_otlp.logs_codec import OtlpLogsCodec, OtlpLogsSettings

__version__ = "0.1.0"

__all__ = ["OtlpLogsCodec", "OtlpLogsSettings"]
_PLACES = {
    "OtlpLogsCodec": "headrace_otlp.logs_codec",
    "OtlpLogsSettings": "headrace_otlp.logs_codec",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module lies in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
