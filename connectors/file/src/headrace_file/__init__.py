"""Files as source and sink of headrace jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_file.settings import FileSinkSettings, FileSourceSettings
    from headrace_file.sink import FileSink
    from headrace_file.source import FileSource

__all__ = ["FileSink", "FileSinkSettings", "FileSource", "FileSourceSettings"]

_PLACES = {
    "FileSink": "headrace_file.sink",
    "FileSinkSettings": "headrace_file.settings",
    "FileSource": "headrace_file.source",
    "FileSourceSettings": "headrace_file.settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
