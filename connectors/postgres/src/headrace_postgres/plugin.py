"""What headrace-postgres offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {
        "postgres": "headrace_postgres.source:PostgresSource",
        "postgres_changes": "headrace_postgres.change_source:PostgresChangesSource",
    }


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"postgres": "headrace_postgres.sink:PostgresSink"}


@hookimpl
def headrace_connectors() -> Mapping[str, str]:
    return {"jdbc:postgresql": "postgres", "postgres-cdc": "postgres_changes"}
