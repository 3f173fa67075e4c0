"""Writing a tree as SQL: headrace's (Flink's) or DuckDB's."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from tests.differential import tree
from tests.differential.forms import AGGREGATES, FORMS, TABLE_FUNCTIONS, Form
from tests.differential.kinds import Kind


def written(relation: tree.Relation, dialect: str) -> str:
    """Return the text of a query in ``"flink"`` or ``"duckdb"``; for headrace with the views that it needs before it."""
    writer = Writer(dialect)
    query = writer.whole(relation)
    return "".join(f"CREATE VIEW {name} AS\n{text};\n" for name, text in writer.views) + query


def duckdb_key(text: str) -> str:
    """Return a key of GROUP BY for DuckDB, where a whole number is a place in the SELECT list. To Flink it is a constant.

    DuckDB computes ``(- (-3))`` before it looks, so that is a whole number too.
    """
    return f"CAST({text} AS BIGINT)" if re.fullmatch(r"[-() ]*\d+[) ]*", text) else text


class Writer:
    """Writes one query. ``views`` and ``ctes`` are what must stand before it."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.views: list[tuple[str, str]] = []
        self.ctes: list[tuple[str, str]] = []

    # ------------------------------------------------------------------------------------------------- relations

    def whole(self, relation: tree.Relation) -> str:
        """Return a relation as a query with the WITH that it needs."""
        query = self.query(relation)
        ctes = ",\n".join(f"{name} AS (\n{_indented(text)}\n)" for name, text in self.ctes)
        return (f"WITH {ctes}\n" if ctes else "") + query

    def query(self, relation: tree.Relation) -> str:
        """Return a relation as a query."""
        if isinstance(relation, tree.Scan):
            return f"SELECT {self._names(relation.columns)} FROM {relation.table}"
        if isinstance(relation, tree.Select):
            return self._select(relation)
        if isinstance(relation, tree.SetOperation):
            every = " ALL" if relation.keep_all else ""
            return f"({self.query(relation.left)})\n{relation.operation}{every}\n({self.query(relation.right)})"
        if isinstance(relation, tree.Values):
            rows = ", ".join(f"({', '.join(map(self.expression, row))})" for row in relation.rows)
            names = self._names(relation.columns)
            return f"SELECT {names} FROM (VALUES {rows}) AS {relation.alias}({names})"
        if isinstance(relation, tree.Over):
            return self._over(relation)
        assert isinstance(relation, tree.TopN)
        return self._top_n(relation)

    def _over(self, over: tree.Over) -> str:
        partition = f"PARTITION BY {self._names(over.partition)} " if over.partition else ""
        window = f" OVER ({partition}ORDER BY ts{over.frame})"
        items = [self.name(column.name) for column in over.kept]
        for call in over.calls:
            form = AGGREGATES.get(call.function, Form(f"{call.function.upper()}(){{filter}}"))
            text = form.duckdb or form.flink if self.dialect == "duckdb" else form.flink
            argument = [] if call.argument is None else [self.expression(call.argument)]
            items.append(f"{text.format(*argument, filter=window)} AS {self.name(call.column.name)}")
        return f"SELECT {', '.join(items)} FROM {over.table} AS {over.alias} WHERE ts IS NOT NULL"

    def _group_key(self, key: tree.Expression) -> str:
        text = self.expression(key)
        return duckdb_key(text) if self.dialect == "duckdb" else text

    def _select(self, select: tree.Select) -> str:
        named = zip(select.items, select.columns, strict=True)
        items = "*" if select.star else ", ".join(self._item(item, column.name) for item, column in named)
        lines = [f"SELECT {'DISTINCT ' if select.distinct else ''}{items}", f"FROM {self._from(select.source)}"]
        lines += [self._join(join) for join in select.joins]
        if select.where is not None:
            lines.append(f"WHERE {self.expression(select.where)}")
        if select.group:
            keys = ", ".join(map(self._group_key, select.group))
            if select.sets:
                made = [[self._group_key(select.group[at]) for at in each] for each in select.sets]
                keys = ", ".join(f"({', '.join(each)})" for each in made)
            lines.append(f"GROUP BY {select.grouping} ({keys})" if select.grouping else f"GROUP BY {keys}")
        having = [] if select.having is None else [self.expression(select.having)]
        if (select.group == () or select.grouping) and self.dialect == "duckdb":
            having.append("COUNT(*) > 0")  # a stream without rows has no total in Flink; in a batch it has one
        if having:
            lines.append(f"HAVING {' AND '.join(having)}")
        return "\n".join(lines)

    def _item(self, item: tree.Expression, name: str) -> str:
        text = self.expression(item)
        return text if isinstance(item, tree.Column) and item.name == name else f"{text} AS {self.name(name)}"

    def _join(self, join: Any) -> str:
        if isinstance(join, tree.Join):
            on = "" if join.condition is None else f" ON {self.expression(join.condition)}"
            if join.using:
                on = f" USING ({', '.join(map(self.name, join.using))})"
            return f"{join.how} JOIN {self._from(join.right)}{on}"
        if isinstance(join, tree.LateralQuery):
            named = zip(join.items, join.columns, strict=True)
            items = ", ".join(f"{self.expression(item)} AS {self.name(column.name)}" for item, column in named)
            inner = f"SELECT {items} FROM {self._from(join.source)} WHERE {self.expression(join.condition)}"
            on = " ON TRUE" if join.how == "LEFT" else ""
            return f"{join.how} JOIN LATERAL (\n{_indented(inner)}\n) AS {join.alias}{on}"
        call = TABLE_FUNCTIONS[join.function].written(self.dialect, [self.expression(each) for each in join.arguments])
        table = f"LATERAL ({call})" if self.dialect == "duckdb" else f"LATERAL TABLE({call})"
        on = " ON TRUE" if join.how == "LEFT" else ""
        return f"{join.how} JOIN {table} AS {join.alias}({self._names(join.columns)}){on}"

    def _from(self, source: tree.From) -> str:
        if isinstance(source.relation, tree.Scan):
            return f"{source.relation.table} AS {source.alias}"
        if source.style == "derived":
            return f"(\n{_indented(self.query(source.relation))}\n) AS {source.alias}"
        if source.style == "view" and self.dialect == "flink":
            inner = Writer(self.dialect)
            text = inner.whole(source.relation)
            made = [*inner.views, (f"view_{source.alias}", text)]
            self.views += [view for view in made if view not in self.views]  # a relation may be read several times
        else:
            made = [(f"view_{source.alias}", self.query(source.relation))]
            self.ctes += [cte for cte in made if cte not in self.ctes]
        return f"view_{source.alias} AS {source.alias}"

    def _top_n(self, top: tree.TopN) -> str:
        order = ", ".join(self._ordered(column, descending) for column, descending in top.order)
        if top.by_limit:
            offset = f" OFFSET {top.offset}" if top.offset else ""
            return f"SELECT {self._names(top.columns)} FROM {self._from(top.source)} ORDER BY {order} LIMIT {top.count}{offset}"
        partition = f"PARTITION BY {self._names(top.partition)} " if top.partition else ""
        inner = f"SELECT *, ROW_NUMBER() OVER ({partition}ORDER BY {order}) AS {top.rank} FROM {self._from(top.source)}"
        bound = (
            f"{top.rank} <= {top.count}"
            if not top.offset
            else f"{top.rank} BETWEEN {top.offset + 1} AND {top.offset + top.count}"
        )
        return f"SELECT {self._names(top.columns)} FROM (\n{_indented(inner)}\n) WHERE {bound}"

    def _ordered(self, column: tree.Column, descending: bool) -> str:
        text = self.expression(column) + (" DESC" if descending else "")
        # NULL is the least value in Flink; DuckDB puts it last unless told.
        return text if self.dialect == "flink" else f"{text} NULLS {'LAST' if descending else 'FIRST'}"

    # ----------------------------------------------------------------------------------------------- expressions

    def expression(self, expression: tree.Expression) -> str:
        """Return an expression as a text."""
        if isinstance(expression, tree.Column):
            name = self.name(expression.name)
            return f"{expression.alias}.{name}" if expression.alias else name
        if isinstance(expression, tree.Literal):
            return self.literal(expression.value, expression.kind)
        if isinstance(expression, tree.Call):
            return FORMS[expression.form].written(
                self.dialect, [self._argument(expression, each) for each in expression.arguments]
            )
        if isinstance(expression, tree.Aggregate):
            return self._aggregate(expression)
        if isinstance(expression, tree.InQuery):
            text = _one_line(self.query(expression.relation))
            return f"({self.expression(expression.value)} {'NOT ' if expression.negated else ''}IN ({text}))"
        if isinstance(expression, tree.Quantified):
            text = _one_line(self.query(expression.relation))
            return f"({self.expression(expression.value)} {expression.form} {expression.word} ({text}))"
        if isinstance(expression, tree.Exists):
            source = _one_line(self._from(tree.From(expression.relation, expression.alias)))
            where = self.expression(expression.condition)
            return f"({'NOT ' if expression.negated else ''}EXISTS (SELECT 1 FROM {source} WHERE {where}))"
        assert isinstance(expression, tree.ScalarQuery)
        source = _one_line(self._from(tree.From(expression.relation, expression.alias)))
        where = "" if expression.condition is None else f" WHERE {self.expression(expression.condition)}"
        return f"(SELECT {self.expression(expression.aggregate)} FROM {source}{where})"

    def _argument(self, call: tree.Call, argument: tree.Expression) -> str:
        """Return an argument of a call. An AND in an AND stays one for DuckDB, which else does not know it as a key."""
        text = self.expression(argument)
        joined = self.dialect == "duckdb" and call.form in ("and", "or")
        return (
            f"CAST({text} AS BOOLEAN)"
            if joined and isinstance(argument, tree.Call) and argument.form == call.form
            else text
        )

    def _aggregate(self, aggregate: tree.Aggregate) -> str:
        condition = "" if aggregate.condition is None else f" FILTER (WHERE {self.expression(aggregate.condition)})"
        arguments = [self.expression(each) for each in aggregate.arguments]
        if aggregate.distinct:
            arguments[0] = f"DISTINCT {arguments[0]}"
        form = AGGREGATES[aggregate.function]
        text = form.duckdb or form.flink if self.dialect == "duckdb" else form.flink
        return text.format(*arguments, filter=condition)

    def literal(self, value: Any, kind: Kind) -> str:
        """Return a constant as a text."""
        if value is None:
            return f"CAST(NULL AS {kind.flink if self.dialect == 'flink' else kind.duckdb})"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, datetime):
            return f"TIMESTAMP '{value.isoformat(' ', 'milliseconds')}'"
        if isinstance(value, time):
            return f"TIME '{value.isoformat()}'"
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'" if self.dialect == "flink" else f"UNHEX('{value.hex()}')"
        if isinstance(value, float):
            assert math.isfinite(value)
            return f"CAST({value!r} AS {kind.name.upper()})"
        if kind.name in ("tinyint", "smallint"):
            return f"CAST({value} AS {kind.flink})"
        text = f"{value:f}" if isinstance(value, Decimal) else str(value)
        if kind.name == "bigint":
            return f"CAST({text} AS BIGINT)"
        return f"({text})" if text.startswith("-") else text

    def name(self, name: str) -> str:
        """Return a name, quoted where it must be."""
        if name.isascii() and name.isidentifier() and name.islower() and name not in ("order", "row"):
            return name
        return f"`{name}`" if self.dialect == "flink" else f'"{name}"'

    def _names(self, columns: tuple[tree.Column, ...]) -> str:
        return ", ".join(self.name(column.name) for column in columns)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())
