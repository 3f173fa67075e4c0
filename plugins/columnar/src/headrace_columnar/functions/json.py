"""Functions of JSON, which is kept as text."""

from __future__ import annotations

import msgspec
import polars as pl
from headrace_columnar.rowwise import map_values


def json_text(value: pl.Expr) -> pl.Expr:
    """Return any value as JSON text: times as ISO text, decimals as numbers, bytes in base 64."""
    return map_values(value, _encoded, pl.String())


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()
