"""Conditions of DEFINE that look at nothing but the row at hand, as expressions over columns: for all rows of a batch at once.

Only what polars decides as the plain rules do is taken: comparisons of whole numbers, of texts, of times, of truth values and of
floats. Anything else is left to the condition's source text (see ``match_source``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from headrace_sql.operators.match_values import AGGREGATED, Node, constant

_NUMBER_MAX = 2**62
_OPERATORS: Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b,
}  # fmt: skip


class Columns:
    """``leaf`` gives the column of a part that reads rows, or a constant: None for NULL, a number; it raises LookupError for others."""

    def __init__(self, leaf: Callable[[Node], str | int | None], kinds: Mapping[str, pl.DataType]) -> None:
        self._leaf = leaf
        self._kinds = kinds

    def is_true(self, node: Node) -> pl.Expr | None:
        """Return the expression of whether a condition is true, which is never NULL; None: not one for columns."""
        return self._decided(node, wanted=True)

    def is_false(self, node: Node) -> pl.Expr | None:
        """Return the expression of whether a condition is false, which is never NULL; None: not one for columns."""
        return self._decided(node, wanted=False)

    def _decided(self, node: Node, *, wanted: bool) -> pl.Expr | None:
        try:
            return self._asked(node, wanted=wanted)
        except LookupError:
            return None

    def _asked(self, node: Node, *, wanted: bool) -> pl.Expr | None:
        kind = node[0]
        if kind in ("and", "or"):
            left, right = (self._asked(part, wanted=wanted) for part in node[1:])
            if left is None or right is None:
                return None
            return left & right if (kind == "and") is wanted else left | right
        if kind == "not":
            return self._asked(node[1], wanted=not wanted)
        if kind == "null" and node[1][0] in AGGREGATED:
            operand = self._operand(node[1])
            if isinstance(operand, tuple):
                return pl.col(operand[1]).is_null() if wanted else pl.col(operand[1]).is_not_null()
            return pl.lit((operand is None) is wanted)
        if kind in AGGREGATED:
            operand = self._operand(node)
            if isinstance(operand, tuple) and self._kinds[operand[1]] == pl.Boolean:
                column = pl.col(operand[1])
                return (column if wanted else ~column).fill_null(False)
            return pl.lit(False) if operand is None else None
        return self._compared(node, wanted=wanted) if kind in _OPERATORS else None

    def _operand(self, node: Node) -> tuple[str, str] | int | str | bool | None:
        """Return ("column", name) or a constant. Raises LookupError for anything else."""
        if node[0] in AGGREGATED:
            found = self._leaf(node)
            return ("column", found) if isinstance(found, str) else found
        if node[0] == "value":
            value: int | str | bool | None = node[1]
            return value
        if node[0] == "call":
            known, value = constant(node)
            if known and (value is None or isinstance(value, int | str)):
                return value
        raise LookupError(node[0])

    def _compared(self, node: Node, *, wanted: bool) -> pl.Expr | None:
        left, right = (self._operand(part) for part in node[1:])
        if left is None or right is None:
            return pl.lit(False)
        if not _can_be_compared(self._type_of(left), self._type_of(right)):
            return None
        sides = [pl.col(each[1]) if isinstance(each, tuple) else pl.lit(each) for each in (left, right)]
        found = _OPERATORS[node[0]](*sides)
        for each, side in zip((left, right), sides, strict=True):
            if self._type_of(each).is_float():  # polars has a NaN above all other numbers and the same as itself
                found = found | side.is_nan() if node[0] == "<>" else found & side.is_not_nan()
        return (found if wanted else ~found).fill_null(False)

    def _type_of(self, operand: tuple[str, str] | int | str | bool) -> pl.DataType:
        if isinstance(operand, tuple):
            return self._kinds[operand[1]]
        if isinstance(operand, bool):
            return pl.Boolean()
        if isinstance(operand, str):
            return pl.String()
        return pl.Int64() if abs(operand) < _NUMBER_MAX else pl.UInt64()


def _can_be_compared(left: pl.DataType, right: pl.DataType) -> bool:
    if left.is_signed_integer() and right.is_signed_integer():
        return True
    if left.is_float() and right == left:
        return True
    return left == right and (left.is_temporal() or left in (pl.String, pl.Boolean))
