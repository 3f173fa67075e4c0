"""Steps of a chain of verbs, and how their expressions are written: for the language of columns, for DuckDB and for Flink's SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import headrace as hr
import polars as pl

from tests.differential.tables import Table
from tests.differential.tree import WILD, Aggregate, Call, Column, Expression, parts_of
from tests.differential.writing import Writer

#: Forms that the language of columns has not, or in which it means something else than Flink's SQL.
NOT_IN_DSL = frozenset(
    {"boolean to text", "average whole", "cut to bigint", "to decimal", "to text", "floor", "ceiling", "value of map"}
)


class _DslWriter(Writer):
    """Writes expressions in the language of the columns, which is near to Flink's SQL."""

    def __init__(self) -> None:
        super().__init__("flink")

    def name(self, name: str) -> str:
        return name if name.isascii() and name.isidentifier() and name.islower() else f'"{name}"'


@dataclass(frozen=True)
class Step:
    """A verb: how it is told, the columns after it, what it does to a stream, and its query of a dialect around the one before it."""

    text: str
    columns: tuple[Column, ...]
    apply: Callable[[hr.Stream], hr.Stream] = field(compare=False)
    query: Callable[[str, str], str] = field(compare=False)


def cast_to(stream: hr.Stream, columns: Sequence[Column]) -> hr.Stream:
    """Give columns the types that the tree says: whole numbers of expressions are 64 bits in the DSL."""
    assert stream.schema is not None
    wrong = {
        column.name: pl.col(column.name).cast(column.kind.polars)
        for column in columns
        if stream.schema[column.name] != column.kind.polars
    }
    return stream.with_columns(**wrong) if wrong else stream


def columns_of(table: Table) -> tuple[Column, ...]:
    return tuple(Column(each.kind, 1000.0 if each.tame else WILD, each.name) for each in table.columns)


def columns_named(items: dict[str, Expression]) -> tuple[Column, ...]:
    return tuple(Column(item.kind, item.bound, name) for name, item in items.items())


def in_dsl(expression: Expression) -> bool:
    forms = [part for part in parts_of(expression) if isinstance(part, Call | Aggregate)]
    return not any((part.form if isinstance(part, Call) else part.function) in NOT_IN_DSL for part in forms)


def as_dsl(expression: Expression) -> str:
    return _DslWriter().expression(expression)


def as_sql(expression: Expression, dialect: str) -> str:
    return Writer(dialect).expression(expression)


def quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else f'"{name}"'


def names_of(columns: Sequence[Column]) -> str:
    return ", ".join(quoted(column.name) for column in columns)


def around(inner: str, items: str, tail: str = "") -> str:
    """Return a SELECT around a query."""
    return f"SELECT {items} FROM (\n{inner}\n) AS i {tail}".rstrip()
