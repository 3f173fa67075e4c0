"""The names of all functions that texts can call."""

from __future__ import annotations

from headrace_columnar import registry

from headrace_sql.binding.expression_parts import AGGREGATES
from headrace_sql.binding.functions import BARE_CALLS, BUILDERS, RENAMED
from headrace_sql.operators.correlate import BUILT_IN


def scalar_names() -> list[str]:
    """Return the names of scalar functions, in capitals."""
    own = {"TIMESTAMPADD", "TIMESTAMPDIFF", "STR_TO_MAP"}
    return sorted({*(name.upper() for name in registry.names()), *BUILDERS, *RENAMED, *own})


def aggregate_names() -> list[str]:
    """Return the names of aggregate functions, in capitals."""
    return sorted(AGGREGATES)


def all_names() -> list[str]:
    """Return the names of scalar, aggregate and table functions, in capitals."""
    return sorted({*scalar_names(), *AGGREGATES, *BARE_CALLS, *(name.upper() for name in BUILT_IN)})
