"""Formats of logs: containers of Kubernetes and Docker, the systemd journal, the Windows event log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_logformats.containers import CriCodec, DockerJsonCodec
    from headrace_logformats.journal import JournalExportCodec, JournalJsonCodec
    from headrace_logformats.kubernetes_path import KubernetesPath
    from headrace_logformats.windows_events import WindowsEventXmlCodec

__all__ = [
    "CriCodec",
    "DockerJsonCodec",
    "JournalExportCodec",
    "JournalJsonCodec",
    "KubernetesPath",
    "WindowsEventXmlCodec",
]

_PLACES = {
    "CriCodec": "headrace_logformats.containers",
    "DockerJsonCodec": "headrace_logformats.containers",
    "JournalExportCodec": "headrace_logformats.journal",
    "JournalJsonCodec": "headrace_logformats.journal",
    "KubernetesPath": "headrace_logformats.kubernetes_path",
    "WindowsEventXmlCodec": "headrace_logformats.windows_events",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
