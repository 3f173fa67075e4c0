"""What headrace-dimension offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"lookup_join": "headrace_dimension.lookup_join:LookupJoin"}


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"parquet": "headrace_dimension.parquet:ParquetSource"}
