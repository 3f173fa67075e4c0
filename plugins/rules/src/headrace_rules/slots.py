"""The values of a row that conditions read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from headrace_columnar.expressions import CompiledExpression


class NotNativeError(Exception):
    """The condition cannot become a Python function: headrace_columnar has to evaluate it."""


class Slots:
    """The values of a row that conditions read: columns, and expressions computed from them.

    Several threads may add to it, for example one that checks changed files and one that prepares new rules.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, str]] = {}
        self.expressions: list[pl.Expr] = []
        #: The columns that each of the expressions reads.
        self.read: list[frozenset[str]] = []
        self.columns: set[str] = set()

    def column(self, name: str, kind: pl.DataType) -> tuple[int, str]:
        """Return the slot of a column, and what kind of value it has."""
        key = f"column {name}"
        return self.find(key) or self._add(key, pl.col(name), frozenset({name}), kind)

    def find(self, key: str) -> tuple[int, str] | None:
        """Return the slot of an expression that was added before, and what kind of value it has."""
        return self._places.get(key)

    def computed(self, key: str, compiled: CompiledExpression) -> tuple[int, str]:
        """Add an expression that cannot fail; return its slot and what kind of value it has."""
        return self._add(key, compiled.expression, compiled.columns, compiled.data_type)

    def lowered(self, key: str, compiled: CompiledExpression) -> tuple[int, str]:
        """Add the lower case of a text that cannot fail; return as ``computed``."""
        return self._add(key, compiled.expression.str.to_lowercase(), compiled.columns, compiled.data_type)

    def _add(self, key: str, expression: pl.Expr, columns: frozenset[str], kind: pl.DataType) -> tuple[int, str]:
        value_kind = _kind_of(kind)
        with self._lock:
            found = self._places.get(key)
            if found is not None:
                return found
            place = len(self.expressions), value_kind
            self.read.append(columns)
            self.expressions.append(expression.alias(str(place[0])))
            self.columns |= columns
            self._places[key] = place
        return place


def _kind_of(kind: pl.DataType) -> str:
    if isinstance(kind, pl.String):
        return "text"
    if kind.is_integer():
        return "integer"
    if isinstance(kind, pl.Boolean):
        return "boolean"
    raise NotNativeError
