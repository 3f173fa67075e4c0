"""A job as a tree: expressions and relations, written out as SQL of headrace, SQL of DuckDB, or verbs of the Python DSL.

The tree is not headrace's plan and shares no code with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tests.differential.kinds import BOOLEAN, Kind
from tests.differential.tables import Table

#: A bound of values that are not known to be small and exact: they are given and counted, but not computed with.
WILD = math.inf


@dataclass(frozen=True)
class Expression:
    """A value of a row. ``bound`` is the greatest absolute value that a number may have, or the longest text; see ``WILD``."""

    kind: Kind
    bound: float

    @property
    def tame(self) -> bool:
        return self.bound < WILD


@dataclass(frozen=True)
class Column(Expression):
    """A column of what is in FROM. ``alias`` is empty where the name alone says it."""

    name: str
    alias: str = ""


@dataclass(frozen=True)
class Literal(Expression):
    """A constant, or NULL of a type."""

    value: Any


@dataclass(frozen=True)
class Call(Expression):
    """An operator or function: a name of ``forms.FORMS`` with arguments."""

    form: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Aggregate(Expression):
    """An aggregate function: a name of ``forms.AGGREGATES``; ``condition`` is that of FILTER."""

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    condition: Expression | None = None


@dataclass(frozen=True)
class InQuery(Expression):
    """``value [NOT] IN (SELECT column FROM relation)``."""

    value: Expression
    relation: Relation
    negated: bool


@dataclass(frozen=True)
class Quantified(Expression):
    """``value operator ANY | ALL (SELECT column FROM relation)``; ``form`` is a comparison of ``forms``."""

    value: Expression
    relation: Relation
    form: str
    word: str


@dataclass(frozen=True)
class Exists(Expression):
    """``[NOT] EXISTS (SELECT 1 FROM relation AS alias WHERE condition)``."""

    relation: Relation
    alias: str
    condition: Expression
    negated: bool


@dataclass(frozen=True)
class ScalarQuery(Expression):
    """``(SELECT aggregate FROM relation AS alias [WHERE condition])``: one value."""

    relation: Relation
    alias: str
    aggregate: Aggregate
    condition: Expression | None = None


@dataclass(frozen=True)
class Relation:
    """Rows with columns."""

    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Scan(Relation):
    """A table."""

    table: str


@dataclass(frozen=True)
class Values(Relation):
    """``SELECT … FROM (VALUES …) AS alias(…)``."""

    rows: tuple[tuple[Literal, ...], ...]
    alias: str


@dataclass(frozen=True)
class From:
    """A relation with the alias by which its columns are named. ``style``: ``"derived"`` table, ``"cte"`` or ``"view"``."""

    relation: Relation
    alias: str
    style: str = "derived"


@dataclass(frozen=True)
class Join:
    """What is joined to what stands before it: INNER, LEFT, RIGHT, FULL or CROSS. ``using`` names columns of both sides."""

    how: str
    right: From
    condition: Expression | None
    using: tuple[str, ...] = ()


@dataclass(frozen=True)
class LateralQuery:
    """``CROSS | LEFT JOIN LATERAL (SELECT … FROM source WHERE condition) AS alias``: the condition names columns before it."""

    how: str
    source: From
    columns: tuple[Column, ...]
    items: tuple[Column, ...]
    condition: Expression
    alias: str


@dataclass(frozen=True)
class Lateral:
    """A table function called for each row, joined CROSS or LEFT: a name of ``forms.TABLE_FUNCTIONS``."""

    how: str
    function: str
    arguments: tuple[Expression, ...]
    alias: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Select(Relation):
    """``SELECT [DISTINCT] items FROM source joins WHERE … GROUP BY … HAVING …``. ``group`` None: no aggregation.

    ``grouping`` is ROLLUP, CUBE, GROUPING SETS (of ``sets``, which name keys by their number) or empty;
    ``star`` writes the items as ``*``.
    """

    source: From
    items: tuple[Expression, ...]
    joins: tuple[Join | Lateral | LateralQuery, ...] = ()
    where: Expression | None = None
    group: tuple[Expression, ...] | None = None
    having: Expression | None = None
    distinct: bool = False
    grouping: str = ""
    star: bool = False
    sets: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class SetOperation(Relation):
    """UNION, INTERSECT or EXCEPT of two relations; ``keep_all`` is ALL."""

    operation: str
    left: Relation
    right: Relation
    keep_all: bool


@dataclass(frozen=True)
class TopN(Relation):
    """The first rows of each partition, or of all: by ROW_NUMBER, or by ORDER BY … LIMIT where there is no partition.

    ``order`` is total over the columns, so that the rows are the same in every program.
    """

    source: From
    partition: tuple[Column, ...]
    order: tuple[tuple[Column, bool], ...]
    count: int
    offset: int
    rank: str
    by_limit: bool


@dataclass(frozen=True)
class OverCall:
    """An aggregate of the rows before: a name of ``forms.AGGREGATES``, rank or dense_rank, its argument, and the column that it gives."""

    function: str
    argument: Column | None
    column: Column


@dataclass(frozen=True)
class Over(Relation):
    """Columns of a table with event time ``ts``, and calls ``OVER (PARTITION BY … ORDER BY ts frame)``; rows without time are left out."""

    table: str
    alias: str
    kept: tuple[Column, ...]
    calls: tuple[OverCall, ...]
    partition: tuple[Column, ...]
    frame: str


@dataclass(frozen=True)
class SqlCase:
    """Tables and a query over them. ``style`` is a ``styles.Style``: how it is run.

    ``rewriting`` is a ``rewriting.Rewriting``: what is run in place of the query, or None. ``other_keys``: with other keys in the tables.
    """

    tables: tuple[Table, ...]
    query: Relation
    style: Any = None
    rewriting: Any = None
    other_keys: bool = False


def parts_of(part: Any) -> Iterator[Any]:
    """Yield everything in a tree, from the top, each part before what it is made of."""
    yield part
    if isinstance(part, tuple):
        for each in part:
            yield from parts_of(each)
    elif isinstance(part, Expression | Relation | From | Join | Lateral | LateralQuery | SqlCase):
        for each in fields(part):
            value = getattr(part, each.name)
            if isinstance(value, tuple | Expression | Relation | From | Join | Lateral | LateralQuery):
                yield from parts_of(value)


TRUE = Literal(BOOLEAN, 1, True)
