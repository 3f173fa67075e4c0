"""What headrace-dimension offers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.interfaces.hookspecs import hookimpl

if TYPE_CHECKING:
    from headrace.plan.graph import Plan


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"lookup_join": "headrace_dimension.lookup_join:LookupJoin"}


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {
        "parquet": "headrace_dimension.parquet:ParquetSource",
        "orc": "headrace_dimension.orc:OrcSource",
        "arrow": "headrace_dimension.arrow:ArrowSource",
    }


@hookimpl
def headrace_optimize(plan: Plan) -> Plan | None:
    if "headrace_dimension.columnar_files" not in sys.modules:  # no job has such a source
        return None
    from headrace_dimension.unread_columns import without_unread

    return without_unread(plan)
