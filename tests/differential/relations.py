"""Making relations: selects over joins over selects …, up to so many stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tests.differential import tree
from tests.differential.choices import Choices
from tests.differential.expressions import COMPARISONS, ROWS_MAX, ExpressionMaker, comparable, literal
from tests.differential.kinds import BIGINT, BOOLEAN, INT, STRING, Kind
from tests.differential.tables import COLUMNS, Table, TableColumn, generate_table, generate_tables

#: Names that somebody could have taken for himself, that must be quoted, or that look like something else.
ODD_NAMES = ("0", "1", "guard", "kept", "aggregate 0", "owner", "value", "literal", "count", "len", "k_right", "a1__k", "x:y", "index",
             "ä ö", "order", "Key", "rows", "__x", "a.b", "change", "op", "row", "key", "time", "^x")  # fmt: skip


def generate_case(choices: Choices, columns: tuple[TableColumn, ...] = COLUMNS) -> tree.SqlCase:
    """Return tables, which have some of the columns, and a query over them."""
    tables = generate_tables(choices, columns=columns)
    maker = RelationMaker(choices, tables)
    stages = choices.weighted([(3, 1), (4, 2), (2, 3), (1, 4)])
    query = maker.relation(stages)
    return tree.SqlCase((*tables, *maker.timed), maker.select_of(query) if isinstance(query, tree.Scan) else query)


class RelationMaker:
    """Makes relations over tables. Names of columns that are made are unique in the job unless a name is kept on purpose."""

    def __init__(self, choices: Choices, tables: Sequence[Table]) -> None:
        self.choices = choices
        self.tables = tables
        #: Tables with event time, made for OVER.
        self.timed: list[Table] = []
        self._names = 0
        self._odd = list(ODD_NAMES)

    def _fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _fresh_column(self) -> str:
        """Return a name for a column: now and then one that a program could have thought to be its own."""
        if self._odd and self.choices.chance(5):
            name = self._odd.pop(self.choices.integer(0, len(self._odd) - 1))
            # To DuckDB names that differ by case are one name.
            self._odd = [other for other in self._odd if other.lower() != name.lower()]
            return name
        return self._fresh("c")

    def relation(self, stages: int) -> tree.Relation:
        """Return a relation of so many stages at most."""
        if stages <= 0:
            return self._scan()
        shapes = [(12, "select"), (2, "set operation"), (2, "top n"), (1, "scan"), (1, "values"), (1, "over")]
        shape = self.choices.weighted(shapes)
        if shape == "set operation":
            return self._set_operation(stages)
        if shape == "top n":
            return self._top_n(stages)
        if shape == "values":
            return self._values()
        if shape == "over":
            return self._over()
        return self._scan() if shape == "scan" else self._select(stages)

    def _values(self) -> tree.Values:
        kinds = [self.choices.pick([INT, STRING, BOOLEAN]) for _ in self.choices.repeat(1, 3, 50)]
        rows = tuple(tuple(literal(self.choices, kind) for kind in kinds) for _ in self.choices.repeat(1, 4, 60))
        columns = tuple(tree.Column(kind, 1000, self._fresh("w")) for kind in kinds)
        return tree.Values(columns, rows, self._fresh("a"))

    def _over(self) -> tree.Relation:
        """Return OVER by event time, over a table of its own: the joins of others are none by time."""
        choices, key = self.choices, self.tables[0].columns[0]
        others = tuple(
            column for column in COLUMNS[1:] if column.name in ("v", "s", "l", "m", "dt", "ts", "ai", "r", "mp")
        )
        table = generate_table(choices, f"o{len(self.timed) + 1}", columns=(key, *others))
        columns = tuple(tree.Column(each.kind, 1000.0 if each.tame else tree.WILD, each.name) for each in table.columns)
        if all(column.name != "ts" for column in columns):
            return self._scan()
        plain = [column for column in columns if comparable(column)]
        by_rows = choices.chance(50)
        if by_rows:
            table = _with_other_times(table)
        self.timed.append(replace(table, time="ts"))
        numbers = [column for column in columns if column.kind in (INT, BIGINT)]
        calls = []
        for _ in choices.repeat(1, 3, 50):
            functions = ["count rows", "count", "min", "max", *(["sum", "average whole"] if numbers else [])]
            if by_rows:
                functions += ["first value", "last value"]
            function = choices.pick(functions)
            argument = (
                None
                if function == "count rows"
                else choices.pick(
                    numbers
                    if function in ("sum", "average whole")
                    else plain
                    if function in ("min", "max")
                    else columns
                )
            )
            kind = BIGINT if function.startswith("count") or argument is None else argument.kind
            calls.append(tree.OverCall(function, argument, tree.Column(kind, 1e3 * ROWS_MAX, self._fresh("v"))))
        frame = choices.pick(_FRAMES_OF_ROWS if by_rows else _FRAMES)
        if not frame and choices.chance(30):
            calls = [
                tree.OverCall(
                    choices.pick(["rank", "dense_rank"]), None, tree.Column(BIGINT, ROWS_MAX, self._fresh("v"))
                )
            ]
        elif by_rows and choices.chance(25):
            frame = ""
            column = choices.pick(columns)
            calls = [tree.OverCall(choices.pick(["lag", "lag 3"]), column, replace(column, name=self._fresh("v")))]
            if choices.chance(30):
                calls = [tree.OverCall("row_number", None, tree.Column(BIGINT, ROWS_MAX, self._fresh("v")))]
        kept = tuple(replace(column, name=column.name) for column in choices.some(columns, 1, 4) if column.name != "ts")
        partition = tuple(choices.some([column for column in plain if column.name != "ts"], 0, 2))
        given = (*kept, *(call.column for call in calls))
        return tree.Over(given, table.name, self._fresh("a"), kept, tuple(calls), partition, frame)

    def _scan(self) -> tree.Scan:
        table = self.choices.pick(self.tables)
        columns = tuple(tree.Column(each.kind, 1000.0 if each.tame else tree.WILD, each.name) for each in table.columns)
        return tree.Scan(columns, table.name)

    def _from(self, relation: tree.Relation) -> tree.From:
        return tree.From(relation, self._fresh("a"), self.choices.weighted([(4, "derived"), (1, "cte"), (1, "view")]))

    # ---------------------------------------------------------------------------------------------------- select

    def _select(self, stages: int) -> tree.Relation:
        source = self._from(self.relation(stages - 1))
        joins: list[tree.Join | tree.Lateral | tree.LateralQuery] = []
        scope = self._scope(source)
        for _ in self.choices.repeat(0, 2, 25):
            if self.choices.chance(25):
                lateral = self._lateral(scope)
                joins.append(lateral)
                scope += [replace(column, alias=lateral.alias) for column in lateral.columns]
                continue
            right = self._from(self.relation(min(stages - 1, 1)))
            rights = self._scope(right)
            if self.choices.chance(8):
                query = self._lateral_query(scope, right)
                if query is not None:
                    joins.append(query)
                    scope += [replace(column, alias=query.alias) for column in query.columns]
                    continue
            how = self.choices.weighted([(4, "INNER"), (3, "LEFT"), (1, "RIGHT"), (2, "FULL"), (1, "CROSS")])
            condition = None if how == "CROSS" else self._join_condition(scope, rights)
            using = self._common(source, right) if how != "CROSS" and not joins and self.choices.chance(10) else ()
            joins.append(tree.Join(how, right, condition, using))
            scope += rights
        if not joins and isinstance(source.relation, tree.Scan) and self.choices.chance(20):
            source = replace(source, alias=source.relation.table)
            scope = self._scope(source)
        if not joins and self.choices.chance(6):
            return self._starred(source)
        if not joins and self.choices.chance(70):
            scope = [replace(column, alias="") for column in scope]
        where = None
        if self.choices.chance(50):
            maker = ExpressionMaker(self.choices, scope, lambda: self._subquery(scope, source.alias))
            where = maker.condition(self.choices.integer(0, 3))
            if self.choices.chance(18):
                word = tree.Call(BOOLEAN, 1, "and", (where, self._subquery(scope, source.alias)))
                where = word if self.choices.chance(50) else word.arguments[1]
        if self.choices.chance(40):
            return self._grouped(source, scope, tuple(joins), where)
        return self._plain(source, scope, tuple(joins), where)

    def select_of(self, relation: tree.Relation) -> tree.Select:
        """Return a select of all columns."""
        return tree.Select(relation.columns, tree.From(relation, self._fresh("a")), tuple(relation.columns))

    def _scope(self, source: tree.From) -> list[tree.Column]:
        return [replace(column, alias=source.alias) for column in source.relation.columns]

    def _starred(self, source: tree.From) -> tree.Select:
        """Return ``SELECT *``."""
        return tree.Select(source.relation.columns, source, tuple(source.relation.columns), star=True)

    def _plain(
        self,
        source: tree.From,
        scope: list[tree.Column],
        joins: tuple[tree.Join | tree.Lateral | tree.LateralQuery, ...],
        where: tree.Expression | None,
    ) -> tree.Select:
        subqueries = self.choices.chance(10)
        maker = ExpressionMaker(
            self.choices, scope, (lambda: self._subquery(scope, source.alias)) if subqueries else None
        )
        users = self.choices.chance(15)  # several user functions beside each other
        items = [
            maker.user(self.choices.integer(0, 1))
            if users and self.choices.chance(70)
            else maker.any(self.choices.integer(0, 3))
            for _ in self.choices.repeat(1, 6, 65)
        ]
        columns = self._named(items)
        distinct = self.choices.chance(15) and all(comparable(item) for item in items)
        return tree.Select(columns, source, tuple(items), joins, where, distinct=distinct)

    def _named(self, items: Sequence[tree.Expression]) -> tuple[tree.Column, ...]:
        """Name the items: a column keeps its name where that is not taken."""
        made: list[tree.Column] = []
        for item in items:
            name = item.name if isinstance(item, tree.Column) and self.choices.chance(60) else ""
            if not name or name in {column.name for column in made}:
                name = self._fresh_column()
            made.append(tree.Column(item.kind, item.bound, name))
        return tuple(made)

    def _grouped(
        self,
        source: tree.From,
        scope: list[tree.Column],
        joins: tuple[tree.Join | tree.Lateral | tree.LateralQuery, ...],
        where: tree.Expression | None,
    ) -> tree.Select:
        maker = ExpressionMaker(self.choices, scope)
        keys: list[tree.Expression] = []
        for _ in self.choices.repeat(0, 3, 60):
            depth = self.choices.weighted([(3, 0), (1, 1), (1, 2)])
            key = maker.user(0) if self.choices.chance(8) else maker.any(depth)
            if comparable(key) and not isinstance(key, tree.Literal) and _names_columns(key) and key not in keys:
                keys.append(key)
        items: list[tree.Expression] = list(keys) if self.choices.chance(80) else keys[:1]
        for _ in self.choices.repeat(1, 4, 55):
            items.append(maker.aggregate(self.choices.integer(0, 2)))
        if self.choices.chance(25):  # expressions over keys and aggregates
            whole = ExpressionMaker(
                self.choices, [*keys, *(item for item in items if isinstance(item, tree.Aggregate))]
            )
            items += [whole.any(self.choices.integer(1, 2)) for _ in self.choices.repeat(1, 2, 30)]
        having = None
        if self.choices.chance(20):
            aggregate = maker.aggregate(0)
            if comparable(aggregate):
                form = self.choices.pick(COMPARISONS)
                having = tree.Call(BOOLEAN, 1, form, (aggregate, literal(self.choices, _plain_kind(aggregate.kind))))
        grouping = ""
        if keys and all(isinstance(key, tree.Column) for key in keys) and self.choices.chance(10):
            grouping = self.choices.pick(["ROLLUP", "CUBE", "GROUPING SETS"])
        sets: list[tuple[int, ...]] = []
        if grouping == "GROUPING SETS":
            sets = [tuple(self.choices.some(range(len(keys)), 0, 3)) for _ in self.choices.repeat(1, 3, 60)]
            sets = list(dict.fromkeys(sets))
            sets += [] if {at for each in sets for at in each} == {*range(len(keys))} else [tuple(range(len(keys)))]
        return tree.Select(
            self._named(items),
            source,
            tuple(items),
            joins,
            where,
            tuple(keys),
            having,
            grouping=grouping,
            sets=tuple(sets),
        )

    def _join_condition(self, left: list[tree.Column], right: list[tree.Column]) -> tree.Expression:
        """Return equalities of columns of both sides, sometimes with more behind them, seldom none."""
        pairs = self._pairs(left, right)
        conditions: list[tree.Expression] = []
        if pairs:
            for _ in self.choices.repeat(1, 2, 20):
                one, other = self.choices.pick(pairs)
                sides = (one, other) if self.choices.chance(75) else (other, one)
                form = "=" if not conditions else self.choices.pick(["=", "<", ">=", "<>"])
                conditions.append(tree.Call(BOOLEAN, 1, form, sides))
            if self.choices.chance(10):
                conditions.append(ExpressionMaker(self.choices, [*left, *right]).condition(1))
        if not conditions:
            conditions = [ExpressionMaker(self.choices, [*left, *right]).condition(1)]
        made = conditions[0]
        for each in conditions[1:]:
            made = tree.Call(BOOLEAN, 1, "and", (made, each))
        return made

    def _common(self, left: tree.From, right: tree.From) -> tuple[str, ...]:
        """Return names of columns that both sides have with one type."""
        kinds = {column.name: column.kind for column in left.relation.columns if comparable(column)}
        same = [
            column.name
            for column in right.relation.columns
            if kinds.get(column.name) == column.kind and comparable(column)
        ]
        return tuple(self.choices.some(same, 1, 2)) if same else ()

    def _lateral_query(self, scope: list[tree.Column], right: tree.From) -> tree.LateralQuery | None:
        """Return a derived table whose condition names columns before it."""
        inside = self._scope(right)
        pairs = self._pairs(scope, inside)
        if not pairs or not all(column.alias for column in scope):
            return None
        one, other = self.choices.pick(pairs)
        condition: tree.Expression = tree.Call(BOOLEAN, 1, self.choices.weighted([(3, "="), (1, "<=")]), (other, one))
        if self.choices.chance(30):
            condition = tree.Call(BOOLEAN, 1, "and", (condition, ExpressionMaker(self.choices, inside).condition(1)))
        items = tuple(self.choices.some(inside, 1, 3))
        columns = tuple(replace(item, alias="", name=self._fresh("l")) for item in items)
        return tree.LateralQuery(
            self.choices.pick(["CROSS", "LEFT"]), right, columns, items, condition, self._fresh("a")
        )

    @staticmethod
    def _pairs(left: Sequence[tree.Column], right: Sequence[tree.Column]) -> list[tuple[tree.Column, tree.Column]]:
        """Return the columns of both sides that can be compared with each other."""
        return [
            (one, other) for one in left for other in right if one.kind == other.kind and comparable(one) and comparable(other)
        ]  # fmt: skip

    def _lateral(self, scope: list[tree.Column]) -> tree.Lateral:
        maker = ExpressionMaker(self.choices, scope)
        function = self.choices.pick(["t_count", "t_parts", "t_twice"])
        argument = maker.of(INT if function == "t_count" else STRING, self.choices.integer(0, 1), 2.0**30)
        columns: dict[str, tuple[tuple[Kind, float], ...]] = {
            "t_count": ((BIGINT, 3), (BIGINT, 6)), "t_parts": ((STRING, 400),), "t_twice": ((STRING, 400), (INT, 2)),
        }  # fmt: skip
        named = tuple(tree.Column(kind, bound, self._fresh("f")) for kind, bound in columns[function])
        how = self.choices.pick(["CROSS", "LEFT"])
        return tree.Lateral(how, function, (argument,), self._fresh("a"), named)

    def _subquery(self, scope: list[tree.Column], alias: str) -> tree.Expression:
        """Return IN, EXISTS or a comparison with one value of another relation."""
        relation = self.relation(1)
        shape = self.choices.pick(["in", "exists", "value"])
        inner = self._fresh("a")
        inside = [replace(column, alias=inner) for column in relation.columns]
        outside = [column if column.alias else replace(column, alias=alias) for column in scope]
        pairs = self._pairs(outside, inside)
        if shape == "value":
            aggregate = ExpressionMaker(self.choices, inside).aggregate(0)
            mine = [column for column in outside if column.kind == aggregate.kind and comparable(column)]
            # What these user aggregates give for no rows is 0 or NULL, as one sees it: not asked.
            if aggregate.function in ("a_squares", "a_products"):
                mine = []
            if mine and comparable(aggregate):
                where = None
                if pairs and self.choices.chance(40):
                    one, other = self.choices.pick(pairs)
                    where = tree.Call(BOOLEAN, 1, "=", (other, one))
                query = tree.ScalarQuery(aggregate.kind, aggregate.bound, relation, inner, aggregate, where)
                return tree.Call(BOOLEAN, 1, self.choices.pick(COMPARISONS[:6]), (self.choices.pick(mine), query))
        if not pairs:
            return ExpressionMaker(self.choices, outside).condition(1)
        one, other = self.choices.pick(pairs)
        if shape == "in":
            column = replace(other, alias="")
            # A table may stand there under its own name, inside and outside, and the value without that of its table.
            name = relation.table if isinstance(relation, tree.Scan) and self.choices.chance(40) else self._fresh("a")
            only = tree.Select((column,), tree.From(relation, name), (column,))
            if len({each.alias for each in outside}) == 1 and self.choices.chance(40):
                one = replace(one, alias="")
            if self.choices.chance(35):
                return tree.Quantified(
                    BOOLEAN, 1, one, only, self.choices.pick(COMPARISONS[:6]), self.choices.pick(["ANY", "ALL"])
                )
            return tree.InQuery(BOOLEAN, 1, one, only, self.choices.chance(40))
        condition = tree.Call(BOOLEAN, 1, "=", (other, one))
        if self.choices.chance(30):
            condition = tree.Call(BOOLEAN, 1, "and", (condition, ExpressionMaker(self.choices, inside).condition(1)))
        return tree.Exists(BOOLEAN, 1, relation, inner, condition, self.choices.chance(40))

    # ---------------------------------------------------------------------------------------------------- others

    def _set_operation(self, stages: int) -> tree.Relation:
        left, right = self.relation(stages - 1), self.relation(stages - 1)
        operation = self.choices.pick(["UNION", "INTERSECT", "EXCEPT"])
        columns = [column for column in left.columns if comparable(column) or operation == "UNION"]
        chosen = self.choices.some(columns, 1, 4)
        if not chosen:
            return left
        keep_all = self.choices.chance(60) or not all(comparable(column) for column in chosen)
        items: list[tree.Expression] = []
        for column in chosen:
            same = [
                replace(each, alias="") for each in right.columns
                if each.kind == column.kind and (comparable(each) or not comparable(column))
            ]  # fmt: skip
            known = column.kind.name in ("int", "bigint", "string", "boolean", "double", "date", "timestamp")
            items.append(
                self.choices.pick(same)
                if same
                else literal(self.choices, column.kind)
                if known
                else tree.Literal(column.kind, 0, None)
            )
        one = tree.Select(tuple(chosen), tree.From(left, self._fresh("a")), tuple(chosen))
        names = tuple(replace(column, alias="", name=self._fresh("c")) for column in chosen)
        other = tree.Select(names, tree.From(right, self._fresh("a")), tuple(items))
        bounds = [max(mine.bound, its.bound) for mine, its in zip(chosen, items, strict=True)]
        result = tuple(replace(column, bound=bound) for column, bound in zip(chosen, bounds, strict=True))
        return tree.SetOperation(result, operation, one, other, keep_all)

    def _top_n(self, stages: int) -> tree.Relation:
        below = self.relation(stages - 1)
        columns = tuple(column for column in below.columns if comparable(column))
        if not columns:
            return below
        source = self._from(tree.Select(columns, tree.From(below, self._fresh("a")), columns))
        by_limit = self.choices.chance(30)
        partition = () if by_limit else tuple(self.choices.some(columns, 0, 2))
        first = self.choices.pick(columns)
        others = [column for column in columns if column != first]
        order = tuple((column, self.choices.chance(50)) for column in (first, *others))
        rank = tree.Column(BIGINT, 1000, self._fresh("rank"))
        shown = columns if by_limit or self.choices.chance(50) else (*columns, rank)
        offset = self.choices.weighted([(4, 0), (1, 1), (1, 2)])
        return tree.TopN(shown, source, partition, order, self.choices.integer(1, 5), offset, rank.name, by_limit)


_FRAMES = ("", " RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW", " RANGE UNBOUNDED PRECEDING")
_FRAMES_OF_ROWS = (
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING", " ROWS 3 PRECEDING",
    " ROWS BETWEEN 0 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", " ROWS BETWEEN 10 PRECEDING AND CURRENT ROW",
)  # fmt: skip


def _with_other_times(table: Table) -> Table:
    """Return a table of which no two rows have one time, so that a frame of rows has one meaning. They come in any order."""
    place = [column.name for column in table.columns].index("ts")
    rows = [list(row) for row in table.rows]
    for number, row in enumerate(rows):
        if row[place] is not None:
            row[place] = _FIRST_TIME + timedelta(milliseconds=250 * (number * 7919 % 1009))
    return replace(table, rows=tuple(map(tuple, rows)))


_FIRST_TIME = datetime(2024, 2, 28, 23, 59, 58)


def _plain_kind(kind: Kind) -> Kind:
    return replace(kind, digits=10) if kind.name == "decimal" else kind


def _names_columns(expression: tree.Expression) -> bool:
    if isinstance(expression, tree.Column):
        return True
    return isinstance(expression, tree.Call) and any(_names_columns(each) for each in expression.arguments)
