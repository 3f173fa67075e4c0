"""Relations that need no oracle: another query that must give the same rows, over any condition that headrace knows.

- *Rows in three*: what is read is put together of the rows of p, of NOT p and of p IS NULL (ternary logic partitioning). *Where in three*,
  *groups in three* and *join in three* take the WHERE of a select apart, its aggregates as sums of parts, and the ON of a join.
- *Flag*: WHERE as a computed column that is asked above; *counts*: WHERE leaves as many rows as a sum counts for which it is true (NoREC).
- *Twice*: each expression of a select twice gives two equal columns.
- *Keys*: the tables' keys are mapped to others, in their order, and those of the results mapped back.

DuckDB gives what the query itself must give; the conditions may hold functions that only headrace has, as DuckDB does not see them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tests.differential import tree
from tests.differential.choices import Choices
from tests.differential.comparing import Row
from tests.differential.expressions import ExpressionMaker
from tests.differential.forms import OWN_CONDITIONS
from tests.differential.kinds import BIGINT, BOOLEAN, INT, KEY, TEXT_KEY, Kind
from tests.differential.tables import Table

#: Aggregates whose value for all rows is the aggregate named here of those of parts of the rows.
_OF_PARTS = {"count rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True)
class Rewriting:
    """``query`` gives what the case's own gives, in another way. For *counts*, ``base`` gives a number, and ``query`` the same."""

    how: str
    query: tree.Relation
    base: tree.Relation | None = None


def condition(choices: Choices, scope: Sequence[tree.Expression], depth: int = 2) -> tree.Expression:
    """Return a condition, one with functions that only headrace has in half of the cases."""
    made = ExpressionMaker(choices, scope).condition(choices.integer(0, depth))
    if choices.chance(50):
        fitting = [
            (form, column) for column in scope for form, (kind, _) in OWN_CONDITIONS.items() if column.kind.name == kind
        ]
        if fitting:
            form, column = choices.pick(fitting)
            own = tree.Call(BOOLEAN, 1, form, (column,))
            word = choices.pick(["", "and", "or", "not"])
            made = own if not word else tree.Call(BOOLEAN, 1, word, (own,) if word == "not" else (own, made))
    return made


def rewritten(choices: Choices, query: tree.Relation) -> Rewriting | None:
    """Return another query for a query, or None where none was found for what the choices say."""
    return _Rewriter(choices, query).rewriting()


class _Rewriter:
    """Takes one select of a query and puts another relation in its place."""

    def __init__(self, choices: Choices, query: tree.Relation) -> None:
        self.choices, self.query = choices, query
        self._names = 0

    def _fresh(self) -> str:
        self._names += 1
        return f"z{self._names}"

    def rewriting(self) -> Rewriting | None:
        ways: list[tuple[int, tuple[str, Callable[[tree.Select], tree.Relation | None]]]] = [
            (2, ("rows in three", self._rows_in_three)), (2, ("where in three", self._where_in_three)), (2, ("twice", self._twice)),
            (6, ("groups in three", self._groups_in_three)), (8, ("join in three", self._join_in_three)), (4, ("flag", self._flag)),
        ]  # fmt: skip
        if self.choices.chance(12):
            return self._counts()
        while ways:  # what can be done with none of the selects is left
            way = self.choices.weighted(ways)
            ways = [each for each in ways if each[1] is not way]
            selects = [part for part in tree.parts_of(self.query) if isinstance(part, tree.Select)]
            while selects:
                select = selects.pop(self.choices.integer(0, len(selects) - 1))
                made = way[1](select)
                if made is not None:
                    return Rewriting(way[0], replaced(self.query, select, made))
        return None

    # ------------------------------------------------------------------------------------------------- in three

    def _three(
        self, made: Callable[[tree.Expression], tree.Select], p: tree.Expression, *, keep_all: bool = True
    ) -> tree.Relation:
        """Return what ``made`` gives for p, for NOT p and for p IS NULL, in any order, together."""
        parts = [p, tree.Call(BOOLEAN, 1, "not", (p,)), tree.Call(BOOLEAN, 1, "is null", (p,))]
        first = self.choices.integer(0, 2)
        one, *others = (made(part) for part in (*parts[first:], *parts[:first]))
        together: tree.Relation = one
        for other in others:
            together = tree.SetOperation(one.columns, "UNION", together, other, keep_all)
        return together

    def _around(self, inner: tree.Relation) -> tree.Select:
        return tree.Select(inner.columns, tree.From(inner, self._fresh()), tuple(inner.columns))

    def _rows_in_three(self, select: tree.Select) -> tree.Relation | None:
        source = select.source.relation
        p = condition(self.choices, source.columns)
        inner = tree.From(source, self._fresh(), select.source.style)
        parts = self._three(lambda part: tree.Select(source.columns, inner, tuple(source.columns), where=part), p)
        return replace(select, source=replace(select.source, relation=parts))

    def _scope(self, select: tree.Select) -> list[tree.Column]:
        scope = [replace(column, alias=select.source.alias) for column in select.source.relation.columns]
        for join in select.joins:
            if isinstance(join, tree.Join):
                scope += [replace(column, alias=join.right.alias) for column in join.right.relation.columns]
            else:
                scope += [replace(column, alias=join.alias) for column in join.columns]
        return scope

    def _where_in_three(self, select: tree.Select) -> tree.Relation | None:
        if select.group is not None:
            return None
        p = condition(self.choices, self._scope(select))
        together = self._three(
            lambda part: replace(select, where=_both(select.where, part)), p, keep_all=not select.distinct
        )
        return self._around(together)

    def _groups_in_three(self, select: tree.Select) -> tree.Relation | None:
        """Aggregates of the three parts, and the aggregates of these."""
        keys = select.group
        if keys is None or select.grouping or select.having is not None:
            return None
        aggregates = [item for item in select.items if isinstance(item, tree.Aggregate)]
        if any(each.function not in _OF_PARTS or each.distinct for each in aggregates):
            return None
        if any(item not in keys for item in select.items if not isinstance(item, tree.Aggregate)):
            return None
        items = (*keys, *aggregates)
        columns = tuple(tree.Column(item.kind, item.bound, self._fresh()) for item in items)
        p = condition(self.choices, self._scope(select))
        together = self._three(
            lambda part: replace(select, columns=columns, items=items, where=_both(select.where, part)), p
        )
        whole = [
            tree.Aggregate(each.kind, each.bound, _OF_PARTS[each.function], (column,))
            for each, column in zip(aggregates, columns[len(keys) :], strict=True)
        ]
        left = iter(whole)
        shown = tuple(
            next(left) if isinstance(item, tree.Aggregate) else columns[keys.index(item)] for item in select.items
        )
        return tree.Select(select.columns, tree.From(together, self._fresh()), shown, group=columns[: len(keys)])

    def _join_in_three(self, select: tree.Select) -> tree.Relation | None:
        """Also with joins behind the one that is taken apart, where those keep each row of the left."""
        if select.group is not None:
            return None
        at = next((at for at, join in enumerate(select.joins) if isinstance(join, tree.Join) and not join.using), None)
        if at is None:
            return None
        join, behind = select.joins[at], select.joins[at + 1 :]
        assert isinstance(join, tree.Join)
        if join.how not in ("INNER", "CROSS") or any(each.how in ("RIGHT", "FULL") for each in behind):
            return None
        p = condition(self.choices, self._scope(replace(select, joins=select.joins[: at + 1])), 1)

        def made(part: tree.Expression) -> tree.Select:
            each = replace(join, how="INNER", condition=_both(join.condition, part))
            return replace(select, joins=(*select.joins[:at], each, *behind))

        return self._around(self._three(made, p, keep_all=not select.distinct))

    # ----------------------------------------------------------------------------------- conditions as columns

    def _flag(self, select: tree.Select) -> tree.Relation | None:
        where = select.where
        if where is None or select.group is not None or select.star or _asks(where):
            return None
        flag = tree.Column(BOOLEAN, 1, self._fresh())
        inner = replace(
            select, columns=(*select.columns, flag), items=(*select.items, where), where=None, distinct=False
        )
        source = tree.From(inner, self._fresh())
        return tree.Select(select.columns, source, tuple(select.columns), where=flag, distinct=select.distinct)

    def _counts(self) -> Rewriting | None:
        """How many rows a condition leaves of a select without its WHERE, and for how many it is true."""
        selects = [part for part in tree.parts_of(self.query) if isinstance(part, tree.Select)]
        if not selects:
            return None
        select = self.choices.pick(selects)
        p = condition(self.choices, self._scope(select), 3)
        number, flag = tree.Column(BIGINT, tree.WILD, self._fresh()), tree.Column(INT, 1, self._fresh())
        one, none = tree.Literal(INT, 1, 1), tree.Literal(INT, 0, 0)
        base = tree.Select(
            (number,), select.source, (tree.Aggregate(BIGINT, tree.WILD, "count rows", ()),), select.joins, p, ()
        )
        chosen = tree.Call(INT, 1, "case", (p, one, none))
        inner = tree.Select((flag,), select.source, (chosen,), select.joins)
        total = tree.Aggregate(BIGINT, tree.WILD, "sum", (tree.Call(BIGINT, 1, "to bigint", (flag,)),))
        return Rewriting("counts", tree.Select((number,), tree.From(inner, self._fresh()), (total,), group=()), base)

    # ---------------------------------------------------------------------------------------------------- twice

    def _twice(self, select: tree.Select) -> tree.Relation | None:
        """Two columns of each expression. At the top both are given; else the select around reads any of the two."""
        if select.star:
            return None
        twins = tuple(replace(column, name=self._fresh()) for column in select.columns)
        both = replace(select, columns=(*select.columns, *twins), items=(*select.items, *select.items))
        if select is self.query:
            return both
        read = tuple(
            twin if self.choices.chance(60) else column for column, twin in zip(select.columns, twins, strict=True)
        )
        return tree.Select(select.columns, tree.From(both, self._fresh()), read)


def _both(one: tree.Expression | None, other: tree.Expression) -> tree.Expression:
    return other if one is None else tree.Call(BOOLEAN, 1, "and", (one, other))


def _asks(expression: tree.Expression) -> bool:
    return any(
        isinstance(part, tree.InQuery | tree.Quantified | tree.Exists | tree.ScalarQuery)
        for part in tree.parts_of(expression)
    )


def replaced(part: Any, old: Any, new: Any) -> Any:
    """Return a tree with one part, the very object, replaced by another."""
    if part is old:
        return new
    if isinstance(part, tuple):
        made = tuple(replaced(each, old, new) for each in part)
        return part if all(one is other for one, other in zip(made, part, strict=True)) else made
    if not is_dataclass(part) or isinstance(part, type | Kind):
        return part
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    changed = {name: replaced(value, old, new) for name, value in values.items()}
    if all(changed[name] is values[name] for name in values):
        return part
    return replace(part, **changed)


# ------------------------------------------------------------------------------------------------------ comparing


def number_of(rows: Counter[Row]) -> int:
    """Return the number that a query of *counts* gave; no row or NULL is 0."""
    return int(sum(row[0] * times for row, times in rows.items() if row[0] is not None))


def halved(rows: Counter[Row]) -> tuple[Counter[Row], str]:
    """Return the first halves of rows, and a text when one differs from its second half."""
    first: Counter[Row] = Counter()
    wrong = ""
    for row, times in rows.items():
        middle = len(row) // 2
        first[row[:middle]] += times
        if row[:middle] != row[middle:]:
            wrong = wrong or f"the same expressions twice in one select differ: {row[:middle]} and {row[middle:]}"
    return first, wrong


# ----------------------------------------------------------------------------------------------------------- keys


def other_key(key: Any) -> Any:
    """Return the key that stands for a key: another one, in the same order."""
    return None if key is None else f"ключ {key}" if isinstance(key, str) else 1_000_003 * key + 17


def first_key(key: Any) -> Any:
    """Return the key that another one stands for, as rows hold it."""
    return None if key is None else key.removeprefix("ключ ") if isinstance(key, str) else (key - 17) / 1_000_003


def with_other_keys(table: Table) -> Table:
    """Return a table with other keys."""
    kinds = [column.kind for column in table.columns]
    rows = tuple(
        tuple(other_key(value) if kind in (KEY, TEXT_KEY) else value for value, kind in zip(row, kinds, strict=True))
        for row in table.rows
    )
    return replace(table, rows=rows)


def with_first_keys(rows: Counter[Row], kinds: Sequence[Kind]) -> Counter[Row]:
    """Return rows with the keys of the tables."""
    made: Counter[Row] = Counter()
    for row, times in rows.items():
        values = (
            first_key(value) if kind in (KEY, TEXT_KEY) else value for value, kind in zip(row, kinds, strict=True)
        )
        made[tuple(values)] += times
    return made
