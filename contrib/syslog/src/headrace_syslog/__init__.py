"""Syslog for headrace: a source, a format and a sink. See docs/connectors/syslog.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_syslog.codec import SyslogCodec, SyslogSettings
    from headrace_syslog.sink import SyslogSink
    from headrace_syslog.sink_settings import SyslogSinkSettings
    from headrace_syslog.source import SyslogSource
    from headrace_syslog.source_settings import SyslogSourceSettings

__all__ = [
    "SyslogCodec", "SyslogSettings", "SyslogSink", "SyslogSinkSettings", "SyslogSource", "SyslogSourceSettings",
]  # fmt: skip
_PLACES = {
    "SyslogCodec": "headrace_syslog.codec",
    "SyslogSettings": "headrace_syslog.codec",
    "SyslogSink": "headrace_syslog.sink",
    "SyslogSinkSettings": "headrace_syslog.sink_settings",
    "SyslogSource": "headrace_syslog.source",
    "SyslogSourceSettings": "headrace_syslog.source_settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
