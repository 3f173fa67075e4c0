"""What a match gives: MEASURES as one function written for them, and functions of several rows for all matches of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import polars as pl

from headrace_sql.operators.match_source import Source, leaves, made
from headrace_sql.operators.match_values import Node, called_in_columns, constant
from headrace_sql.operators.match_walker import FIRST_COLUMN, Match, Row

#: (rows, first row of the match, match) -> values.
Measured = Callable[[list[Row], int, Match], tuple[Any, ...]]


class Measures:
    """Writes ``of``, which gives the values of a match, and makes columns of them.

    ``numbered``: times that rows hold as numbers. A measure that is a function of several rows is given by its arguments.
    """

    def __init__(
        self, measures: Mapping[str, Node], types: Mapping[str, pl.DataType], variables: Sequence[str], columns: Sequence[str],
        kinds: Mapping[str, pl.DataType], numbered: frozenset[str],
    ) -> None:  # fmt: skip
        self._types = types
        self._at = {name: FIRST_COLUMN + place for place, name in enumerate(columns)}
        self._lists: dict[str | None, str] = {None: "rows"}
        self._measures = measures
        self._kinds = kinds
        self._numbered = numbered
        nodes = [node for measure in measures.values() for node in self._parts(measure)]
        source = Source(self._leaf, kinds, {})
        values = [source.value(node) for node in nodes]
        read = [name for name in dict.fromkeys(leaf[1] for node in nodes for leaf in leaves(node)) if name is not None]
        lines = ["def measured(held, first, match):", "    path, count = match", "    end = first + count"]
        lines += ["    rows = held[first:end]", *(f"    {self._lists[name]} = []" for name in read)]
        lines += ["    while path[1] >= 0:", "        path, variable, begin = path", "        begin += first"]
        for name in set(read) & set(variables):
            lines.append(f"        if variable == {list(variables).index(name)}:")
            lines.append(f"            {self._lists[name]} = held[begin:end] + {self._lists[name]}")
        lines += ["        end = begin", f"    return ({''.join(value + ', ' for value in values)})"]
        self.of: Measured = made("measured", lines, source.names)

    def _parts(self, measure: Node) -> Sequence[Node]:
        """Return the expressions to evaluate for each match: the measure, or the arguments of a function of several rows."""
        return measure[3:] if self._is_call(measure) else (measure,)

    @staticmethod
    def _is_call(measure: Node) -> bool:
        return measure[0] == "call" and not constant(measure)[0] and bool(measure[2])

    def _leaf(self, node: Node) -> str:
        kind, variable, column, distance = node
        rows = self._lists.setdefault(variable, f"rows_{len(self._lists)}")
        if kind == "COUNT" and column is None:
            return f"len({rows})"
        at = self._at[column]
        if kind == "FIRST":
            return f"({rows}[{distance}][{at}] if len({rows}) > {distance} else None)"
        if kind == "LAST":
            return f"({rows}[{-1 - distance}][{at}] if len({rows}) > {distance} else None)"
        values = f"[row[{at}] for row in {rows} if row[{at}] is not None]"
        if kind == "COUNT":
            return f"len({values})"
        if kind == "SUM":
            return f"total({values})"
        if kind == "AVG":
            return f"mean(total(values := {values}), len(values))"
        return f"{kind.lower()}({values}, default=None)"

    def columns(self, found: Sequence[tuple[Any, ...]]) -> tuple[dict[str, pl.Series], dict[int, Exception]]:
        """Return the columns of the measures from the values of matches, and the places of matches for which one fails."""
        lists = iter(zip(*found, strict=True)) if found else iter(())
        failed: dict[int, Exception] = {}
        return {name: self._column(name, measure, lists, failed) for name, measure in self._measures.items()}, failed

    def _column(self, name: str, measure: Node, lists: Any, failed: dict[int, Exception]) -> pl.Series:
        kind = self._types[name]
        if self._is_call(measure):
            arguments = {part: _series(part, next(lists), dtype) for part, dtype in measure[2].items()}
            made, failures = called_in_columns(measure[1], arguments)
            for place, error in failures:
                failed.setdefault(place, error)
            return made.cast(kind).alias(name)
        values = next(lists)
        if measure[0] in ("FIRST", "LAST", "MIN", "MAX") and measure[2] in self._numbered:
            return pl.Series(name, values, dtype=pl.Int64).cast(self._kinds[measure[2]]).cast(kind)
        if isinstance(kind, pl.Decimal):
            digits = Decimal(1).scaleb(-kind.scale)
            rounded = (
                each.quantize(digits, rounding=ROUND_HALF_UP) if isinstance(each, Decimal) else each for each in values
            )
            most = Decimal(10) ** ((kind.precision or 38) - kind.scale)
            # A number with too many digits is NULL, as for the aggregates of GROUP BY.
            values = [None if each is not None and abs(each) >= most else each for each in rounded]
        return _series(name, values, kind)


def _series(name: str, values: Sequence[Any], kind: pl.DataType) -> pl.Series:
    """Return a column. Values may be of several types, such as a decimal and the whole number of an ELSE: then they are converted."""
    try:
        column = pl.Series(name, values, dtype=kind)
        if column.dtype == kind:
            return column
    except (TypeError, OverflowError):
        pass  # for values of one type it is the fast way
    if kind.is_integer():  # the sum of numbers that are too large is wrapped around, as in columns
        bits = 8 * int(pl.Series([0], dtype=kind).estimated_size())
        half = 1 << (bits - 1)
        values = [(each + half) % (1 << bits) - half if isinstance(each, int) else each for each in values]
    return pl.DataFrame([(value,) for value in values], schema={name: kind}, orient="row")[name]


def numbered(
    definitions: Mapping[str, Node], measures: Mapping[str, Node], columns: Sequence[str],
    kinds: Mapping[str, pl.DataType],
) -> frozenset[str]:  # fmt: skip
    """Return the columns of times that nothing calculates with: rows hold them as numbers, which are made faster."""
    found = {name for name in columns if isinstance(kinds[name], pl.Datetime | pl.Date | pl.Duration)}
    for measure in measures.values():
        if measure[0] in ("FIRST", "LAST", "MIN", "MAX"):
            continue
        found -= _calculated_with(measure)
    for definition in definitions.values():
        found -= _calculated_with(definition)
    return frozenset(found)


def _calculated_with(node: Node) -> set[str]:
    """Return the columns of which an expression needs the value, not only whether there is one."""
    plain = ("FIRST", "LAST", "MIN", "MAX")
    if node[0] == "null" and node[1][0] in plain:
        return set()
    if (
        node[0] in (">", ">=", "<", "<=", "=", "<>")
        and all(part[0] in plain for part in node[1:])
        and node[1][2] == node[2][2]
    ):
        return set()  # the times of one column stand to each other as their numbers do
    if node[0].isupper():
        return set() if node[0] == "COUNT" or node[2] is None else {node[2]}
    return set().union(*(_calculated_with(part) for part in node[1:] if isinstance(part, tuple)))
