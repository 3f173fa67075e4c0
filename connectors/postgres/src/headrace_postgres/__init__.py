"""PostgreSQL source, source of changes and sink for headrace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_postgres.change_source import PostgresChangesSource
    from headrace_postgres.settings import PostgresChangesSettings, PostgresSinkSettings, PostgresSourceSettings
    from headrace_postgres.sink import PostgresSink
    from headrace_postgres.source import PostgresSource

__all__ = [
    "PostgresChangesSettings",
    "PostgresChangesSource",
    "PostgresSink",
    "PostgresSinkSettings",
    "PostgresSource",
    "PostgresSourceSettings",
]
_PLACES = {
    "PostgresChangesSettings": "headrace_postgres.settings",
    "PostgresChangesSource": "headrace_postgres.change_source",
    "PostgresSink": "headrace_postgres.sink",
    "PostgresSinkSettings": "headrace_postgres.settings",
    "PostgresSource": "headrace_postgres.source",
    "PostgresSourceSettings": "headrace_postgres.settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
