"""The scope of names at one point of a query: the columns, and properties of the rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from headrace.foundation.errors import ExpressionError, did_you_mean
from headrace_columnar.dialect import span
from sqlglot import exp

from headrace_sql.operators.window_assign import TableWindow

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream


Time = Literal["event", "processing"]
#: The columns of no time by which a side of a join without watermark, left or right, holds that of the other.
NO_TIMES = ("__left_no_time", "__right_no_time")


@dataclass(frozen=True)
class Column:
    """A column of a relation: its name in the query, and its name in the stream.

    A processing-time column has no place in the stream: it is computed where it is used.
    """

    name: str
    physical: str
    table: str | None = None
    time: Time | None = None
    #: "start", "end" or "time" for a column that a window function of the table adds.
    window: str | None = None
    #: Found only with its table's name in front: the other one of a pair that JOIN … USING has made one column.
    hidden: bool = False


@dataclass(frozen=True)
class Ranking:
    """A ROW_NUMBER() of a derived table that waits for the condition which makes it a Top-N."""

    function: str
    partition: tuple[str, ...]
    #: (physical column, descending, time attribute)
    order: tuple[tuple[str, bool, Time | None], ...]
    name: str
    #: Numbers every row: without a bound.
    unbounded: Callable[[], Relation]
    #: Whether numbers never change: rows are only added, in the order of a time attribute.
    by_time: bool = False


@dataclass(frozen=True)
class Relation:
    """A stream and what its columns are called."""

    stream: Stream
    columns: tuple[Column, ...]
    ranking: Ranking | None = None
    table_window: TableWindow | None = None
    #: Whether rows change earlier results, and by which physical columns a row is known.
    updating: bool = False
    key: tuple[str, ...] | None = None
    #: Name of the table that it comes from unchanged: for lookups.
    base: str | None = None
    #: Keys of a versioned view (last row of each key): for temporal joins.
    version_key: tuple[str, ...] = ()
    version_stream: Stream | None = None
    windows: tuple[str, ...] = field(default=())
    #: Of rows that are only added: sets of physical columns in whose values no two rows are equal.
    unique: tuple[tuple[str, ...], ...] = ()

    @property
    def schema(self) -> dict[str, pl.DataType]:
        assert self.stream.schema is not None
        return dict(self.stream.schema)

    def named(self, alias: str | None, columns: Sequence[str] = ()) -> Relation:
        """Return the relation under an alias: only that qualifies its columns then."""
        made = []
        for index, column in enumerate(self.columns):
            name = columns[index] if index < len(columns) else column.name
            hidden = column.hidden and alias is None
            made.append(replace(column, table=alias if alias is not None else column.table, name=name, hidden=hidden))
        ranking = self.ranking
        if ranking is not None and columns:
            names = {old.name: new.name for old, new in zip(self.columns, made, strict=True)}
            ranking = replace(ranking, name=names.get(ranking.name, ranking.name))
        return replace(self, columns=tuple(made), ranking=ranking)

    def find(self, name: str, table: str | None = None) -> list[Column]:
        found = [c for c in self.columns if c.name == name and (table is None or c.table == table)]
        if not found:
            low = name.lower()
            found = [
                c
                for c in self.columns
                if c.name.lower() == low and (table is None or (c.table or "").lower() == table.lower())
            ]
        shown = [c for c in found if not c.hidden]
        return shown if shown and table is None else found

    def tables(self) -> set[str]:
        return {column.table for column in self.columns if column.table is not None}


def is_updating(relation: Relation) -> bool:
    """Return whether rows of a relation change earlier results."""
    return relation.stream.changes is not None


#: Key of a node's meta for the column that it represents, if the compiler has made the node itself.
MEANT = "headrace_column"
#: Key of the meta of such a node within a subquery, where it stands for a column of the query around: one of the subquery may equal it.
OUTSIDE = "headrace_outside"


def standing_for(column: Column, node: exp.Expr | None = None) -> exp.Column:
    """Return a node that means a column, whatever its name means elsewhere; mistakes in it are shown where ``node`` stands."""
    made = exp.column(exp.to_identifier(column.name, quoted=True))
    made.meta[MEANT] = column
    for part in node.walk() if node is not None else ():
        if "start" in part.meta:
            made.this.meta.update({key: part.meta[key] for key in ("start", "end", "line", "col") if key in part.meta})
            break
    return made


def resolve(relation: Relation, node: exp.Column, text: str) -> tuple[Column, list[exp.Expr]]:
    """Return the column that a name means, and the fields behind it. Raises ExpressionError."""
    if MEANT in node.meta:
        meant: Column = node.meta[MEANT]
        return meant, []
    parts: list[Any] = list(node.parts)
    names = [part.name for part in parts]
    if len(names) > 1:
        found = relation.find(names[1], names[0])
        if found:
            return _only(found, node, text), parts[2:]
    found = relation.find(names[0])
    if found:
        return _only(found, node, text), parts[1:]
    if len(names) > 1 and names[0] in relation.tables():
        known = [column.name for column in relation.columns if column.table == names[0]]
        raise error_at(
            node, text, f"table {names[0]!r} has no column {names[1]!r}", did_you_mean(names[1], known, known="columns")
        )
    known = [column.name for column in relation.columns]
    what = "unknown table or column" if len(names) > 1 else "unknown column"
    raise error_at(node, text, f"{what} {names[0]!r}", did_you_mean(names[0], known, known="columns"))


def _only(found: list[Column], node: exp.Column, text: str) -> Column:
    if len({column.physical for column in found}) > 1:
        tables = sorted({column.table or "?" for column in found})
        raise error_at(
            node, text, f"column {found[0].name!r} is in several tables: {', '.join(tables)}",
            f"write {tables[0]}.{found[0].name}",
        )  # fmt: skip
    return found[0]


def error_at(node: Any, text: str, message: str, hint: str | None = None) -> ExpressionError:
    """Return an error that underlines a node in the text."""
    position, length = span(text, node) if node is not None else (0, len(text))
    if length == len(text):
        return ExpressionError(message, text=text, position=None, hint=hint)
    return ExpressionError(message, text=text, position=position, length=length, hint=hint)


def unused_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken: the wanted one, or with a number behind it."""
    names = set(taken)
    return _numbered(wanted, names.__contains__)


def hidden_suffix(left: Iterable[str] | None, right: Iterable[str] | None) -> str:
    """Return the suffix of a join for those columns of the right side that the left side has, too.

    Columns that a query names have different names on both sides. The others are columns that headrace has added. A side that
    is a join itself can have both a column and the same with such a suffix.
    """
    ours, theirs = set(left or ()), set(right or ())
    return _numbered("__other", lambda suffix: any(name + suffix in ours | theirs for name in ours & theirs))


def _numbered(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """Return the wanted text, or with the first number behind it, from 2, with which it is not taken."""
    tried = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(2)))
    return next(each for each in tried if not is_taken(each))


def knows(relation: Relation, node: exp.Column) -> bool:
    """Return whether a relation has the column that a name means."""
    if MEANT in node.meta:
        return node.meta[MEANT] in relation.columns
    parts = [part.name for part in node.parts]
    if len(parts) == 1:
        return bool(relation.find(parts[0]))
    if relation.find(parts[1], parts[0]):
        return True
    # Fields of a column: a plain column may be called like a table of the query around.
    found = [relation.schema.get(column.physical) for column in relation.find(parts[0])]
    return any(isinstance(kind, pl.Struct | pl.List) for kind in found)
