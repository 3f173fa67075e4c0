"""What headrace-mysql offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {
        "mysql": "headrace_mysql.source:MySQLSource",
        "mysql_changes": "headrace_mysql.change_source:MySQLChangesSource",
    }


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"mysql": "headrace_mysql.sink:MySQLSink"}


@hookimpl
def headrace_state_stores() -> Mapping[str, str]:
    return {"mysql": "headrace_mysql.state_store:MySQLStateStore"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"jdbc": "mysql", "db": "mysql", "rds": "mysql", "mysql-cdc": "mysql_changes"}
