"""SQLite sink for headrace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_sqlite.settings import SQLiteSinkSettings
    from headrace_sqlite.sink import SQLiteSink

__all__ = ["SQLiteSink", "SQLiteSinkSettings"]
_PLACES = {"SQLiteSink": "headrace_sqlite.sink", "SQLiteSinkSettings": "headrace_sqlite.settings"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
