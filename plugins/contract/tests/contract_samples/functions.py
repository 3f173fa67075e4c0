"""Healthy functions of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import headrace as hr
import polars as pl


@hr.udf
def shout(text: str | None) -> str | None:
    """Return the text in capitals, with an exclamation mark."""
    return None if text is None else f"{text.upper()}!"


@hr.udf(returns="float64", vectorized=True)
def ratio(part: pl.Series, whole: pl.Series) -> pl.Series:
    """Return part of whole; NULL when there is no whole."""
    return (part / whole.replace(0, None)).cast(pl.Float64)


@hr.udtf(returns={"word": "string", "length": "int64"})
def words(text: str | None) -> Iterator[tuple[str, int]]:
    """Yield the words of a text."""
    for word in (text or "").split():
        yield word, len(word)


@hr.udaf(returns="float64")
class Mean:
    """The mean of a column."""

    def create(self) -> Any:
        return [0, 0.0]

    def add(self, state: Any, value: float | None) -> Any:
        if value is not None:
            state[0] += 1
            state[1] += value
        return state

    def retract(self, state: Any, value: float | None) -> Any:
        if value is not None:
            state[0] -= 1
            state[1] -= value
        return state

    def merge(self, state: Any, other: Any) -> Any:
        return [state[0] + other[0], state[1] + other[1]]

    def result(self, state: Any) -> float | None:
        return state[1] / state[0] if state[0] else None
