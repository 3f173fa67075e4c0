"""Columns of every plain type with strategies for their values, for tests of formats."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from hypothesis import strategies as st

#: Type and values of a column, by the column's name.
PLAIN_COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int64": ("int64", st.integers(-(2**63), 2**63 - 1)),
    "float64": ("float64", st.floats()),
    "decimal": ("decimal(20, 4)", st.decimals("-1e12", "1e12", places=4)),
    "date": ("date", st.dates()),
    "time": ("time", st.times()),
    "timestamp": ("timestamp", st.datetimes(timezones=st.just(UTC))),
}
