"""Rows of a batch as the matcher takes them: their bits made in columns, those that no match needs left out, the others as tuples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from headrace_columnar.evaluation import select_all_rows

from headrace_sql.operators.match_automaton import BLOCKED, Automaton
from headrace_sql.operators.match_columns import Columns
from headrace_sql.operators.match_rows import SEQUENCE, TIME
from headrace_sql.operators.match_source import Source, made
from headrace_sql.operators.match_values import Node, constant
from headrace_sql.operators.match_walker import FIRST_COLUMN, Row, Walker

Key = tuple[Any, ...]
_BITS, _PLACE = "__mr_bits", "__mr_place"


@dataclass(frozen=True)
class Part:
    """Rows of one key, in their order, and the place of each in the step."""

    key: Key
    rows: list[Row]
    places: Sequence[int]


class RowMaker:
    """Makes tuples of rows. ``columns``: those that rows have; ``numbered``: times that they hold as numbers.

    ``tells_beginnings``: bit 0 says for certain that a match begins at a row and goes on behind it.
    """

    def __init__(
        self, keys: Sequence[str], columns: Sequence[str], kinds: Mapping[str, pl.DataType], numbered: frozenset[str],
        automaton: Automaton, definitions: Mapping[str, Node], walker: Walker,
    ) -> None:  # fmt: skip
        self._keys = list(keys)
        self._columns = list(columns)
        self._numbered = numbered
        self._bits = walker.bits
        beginnings = _Beginnings(automaton, definitions, kinds)
        self._beginning = beginnings.in_columns()
        self._written: Callable[..., list[bool]] | None = None
        self._read: list[str] = []
        if self._beginning is None:
            self._written, self._read = beginnings.written()
        self._tests = walker.bits
        self.tells_beginnings = beginnings.are_known and automaton.least_rows > 1

    def parts(self, rows: pl.DataFrame, held: Mapping[Key, Any]) -> Iterator[Part]:
        """Yield the rows of each key, from the first that a match can begin with; of a key that is held all of them.

        ``rows`` are in the order of their times, and the place of a row is that in this order.
        """
        if not rows.height:
            return
        rows = self._with_bits(rows.with_row_index(_PLACE))
        if self._keys:
            rows = rows.sort(self._keys, maintain_order=True)
        chosen = list(self._chosen(rows, held))
        if not chosen:
            return
        count = sum(end - first for _, first, end in chosen)
        if count < rows.height // 2:  # most rows are left out: no tuple is made of them
            rows = rows[np.concatenate([np.arange(first, end) for _, first, end in chosen])]
            ends = np.cumsum([end - first for _, first, end in chosen]).tolist()
            chosen = [(key, end - (last - first), end) for (key, first, last), end in zip(chosen, ends, strict=True)]
        tuples, places = self._tuples(rows), rows[_PLACE].to_list()
        for key, first, end in chosen:
            yield Part(key, tuples[first:end], places[first:end])

    def _with_bits(self, rows: pl.DataFrame) -> pl.DataFrame:
        first: pl.Expr = pl.lit(0)
        if self._beginning is not None:
            first = self._beginning.cast(pl.Int64)
        elif self._written is not None:
            found = self._written(rows.height, *(self._values(rows, name) for name in self._read))
            first = pl.lit(pl.Series(found, dtype=pl.Boolean).cast(pl.Int64))
        bits = [test.cast(pl.Int64) * (1 << number) for number, test in enumerate(self._tests, start=1)]
        made = pl.sum_horizontal(first, *bits).cast(pl.Int64).alias(_BITS)
        return rows.with_columns(select_all_rows(rows, [made]))

    def _chosen(
        self, rows: pl.DataFrame, held: Mapping[Key, Any]
    ) -> Iterator[tuple[Key, int, int]]:  # fmt: skip
        """Yield the keys of which rows are needed, and from which row to which one; rows of one key stand together."""
        count = rows.height
        begins = (rows[_BITS].to_numpy() & 1).astype(bool)
        following = np.where(begins, np.arange(count), count)
        following = np.minimum.accumulate(following[::-1])[::-1]
        if not self._keys:
            first = 0 if () in held else int(following[0])
            if first < count:
                yield (), first, count
            return
        changes = rows.select(
            pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in self._keys)
        ).to_series().to_numpy().copy()  # fmt: skip
        changes[0] = True
        starts = np.flatnonzero(changes)
        keys = rows[starts].select(self._keys).rows()
        # Python finds a NaN again only if it is the same object.
        if any(rows.schema[name].is_float() for name in self._keys):
            keys = [tuple(math.nan if part != part else part for part in key) for key in keys]
        ends = [*starts[1:].tolist(), count]
        for key, start, first, end in zip(keys, starts.tolist(), following[starts].tolist(), ends, strict=True):
            if key in held:
                yield key, start, end
            elif first < end:
                yield key, first, end

    def _tuples(self, rows: pl.DataFrame) -> list[Row]:
        columns = (self._values(rows, name) for name in (_BITS, TIME, SEQUENCE, *self._columns))
        return list(zip(*columns, strict=True))

    def frame(self, rows: Sequence[Row], kinds: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Return rows as columns again: times, numbers by arrival, and those that rows have."""
        lists = list(zip(*rows, strict=True)) if rows else [() for _ in range(FIRST_COLUMN + len(self._columns))]
        made = [pl.Series(TIME, lists[1], dtype=pl.Int64), pl.Series(SEQUENCE, lists[2], dtype=pl.Int64)]
        for name, values in zip(self._columns, lists[FIRST_COLUMN:], strict=True):
            kind = kinds[name]
            is_number = name in self._numbered
            column = pl.Series(name, values, dtype=pl.Int64 if is_number else kind)
            made.append(column.cast(kind) if is_number else column)
        return pl.DataFrame(made)

    def _values(self, rows: pl.DataFrame, name: str) -> list[Any]:
        column = rows[name]
        return (column.to_physical() if name in self._numbered else column).to_list()


class _Beginnings:
    """Whether a match can begin at a row: of the first row of a match all that a condition can look at is the row itself."""

    def __init__(self, automaton: Automaton, definitions: Mapping[str, Node], kinds: Mapping[str, pl.DataType]) -> None:
        self._kinds = kinds
        #: Each with its condition; None: it has none.
        self._first = [
            (name := automaton.variables[each.variable], definitions.get(name)) for each in automaton.tries[0]
        ]  # fmt: skip
        self.are_known = all(BLOCKED not in each.targets for each in automaton.tries[0]) and not any(
            _is_calling(node) for _, node in self._first if node is not None
        )
        self.always = not self.are_known or any(node is None for _, node in self._first)

    def in_columns(self) -> pl.Expr | None:
        """Return the expression of it; None if it is not one for columns."""
        if self.always:
            return pl.lit(True)
        tests = [
            Columns(partial(self._column, name), self._kinds).is_true(node)
            for name, node in self._first
            if node is not None
        ]
        if any(test is None for test in tests):
            return None
        return pl.any_horizontal(*(test for test in tests if test is not None))

    def written(self) -> tuple[Callable[..., list[bool]], list[str]]:
        """Return a function of the number of rows and of columns, and the names of these."""
        names: dict[str, str] = {}
        source = Source(lambda leaf: "", self._kinds, {})
        tests = []
        for name, node in self._first:
            assert node is not None
            source.leaf = partial(self._text, name, names)
            tests.append(source.is_true(node))
        given = "".join(f", {text}s" for text in names.values())
        each = (
            f"for {', '.join(names.values())}, in zip({given[2:]}, strict=True)" if names else "for _ in range(count)"
        )
        lines = [f"def beginnings(count{given}):", f"    return [bool({' or '.join(tests)}) {each}]"]
        return made("beginnings", lines, source.names), list(names)

    def _column(self, mine: str, node: Node) -> str | int | None:
        kind, variable, column, distance = node
        is_own = variable in (mine, None)
        if kind == "COUNT":
            if column is not None and is_own:
                raise LookupError(column)
            return int(is_own)
        if not is_own or distance:
            return None
        if kind == "AVG" and not self._kinds[column].is_integer():
            raise LookupError(column)  # a division by one may round
        return str(column)

    def _text(self, mine: str, names: dict[str, str], node: Node) -> str:
        kind, variable, column, distance = node
        is_own = variable in (mine, None)
        if kind == "COUNT" and (column is None or not is_own):
            return str(int(is_own))
        if not is_own or distance:
            return "None"
        value = names.setdefault(column, f"c{len(names)}")
        if kind == "COUNT":
            return f"int({value} is not None)"
        return f"(None if {value} is None else mean({value}, 1))" if kind == "AVG" else value


def _is_calling(node: Node) -> bool:
    """Return whether an expression has a function that is evaluated for each row by itself, or may fail."""
    if node[0] == "call" and not constant(node)[0]:
        return True
    if node[0] == "/":
        return True
    return any(_is_calling(part) for part in node[1:] if isinstance(part, tuple))
