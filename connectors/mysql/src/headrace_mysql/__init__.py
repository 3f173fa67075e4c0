"""MySQL and MariaDB source, sink and state store for headrace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_mysql.change_source import MySQLChangesSource
    from headrace_mysql.settings import MySQLChangesSettings, MySQLSinkSettings, MySQLSourceSettings, MySQLStateSettings
    from headrace_mysql.sink import MySQLSink
    from headrace_mysql.source import MySQLSource
    from headrace_mysql.state_store import MySQLStateStore

__all__ = [
    "MySQLChangesSettings",
    "MySQLChangesSource",
    "MySQLSink",
    "MySQLSinkSettings",
    "MySQLSource",
    "MySQLSourceSettings",
    "MySQLStateSettings",
    "MySQLStateStore",
]
_PLACES = {
    "MySQLChangesSettings": "headrace_mysql.settings",
    "MySQLChangesSource": "headrace_mysql.change_source",
    "MySQLSink": "headrace_mysql.sink",
    "MySQLSinkSettings": "headrace_mysql.settings",
    "MySQLSource": "headrace_mysql.source",
    "MySQLSourceSettings": "headrace_mysql.settings",
    "MySQLStateSettings": "headrace_mysql.settings",
    "MySQLStateStore": "headrace_mysql.state_store",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
