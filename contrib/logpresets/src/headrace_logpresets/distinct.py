"""Calls a function of texts once for each distinct text of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl


def by_distinct(texts: pl.Series, function: Callable[[str], Any], data_type: pl.DataType) -> pl.Series:
    """Return the result of ``function`` for each text, NULL for NULL. Equal texts must have equal results."""
    known = texts.drop_nulls().unique()
    made = pl.Series("made", [function(text) for text in known], dtype=data_type, strict=False)
    found = texts.alias("text").to_frame().join(
        pl.DataFrame([known.alias("text"), made]), on="text", how="left", maintain_order="left"
    )  # fmt: skip
    return found["made"].alias(texts.name)
