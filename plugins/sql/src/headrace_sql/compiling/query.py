"""Queries as streams: FROM, WHERE, GROUP BY, HAVING, SELECT, set operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.catalog import Catalog, View
from headrace_sql.binding.context import Context, Listed
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expression_parts import conjuncts
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.functions import BARE_CALLS
from headrace_sql.binding.query_hints import StateTtls, check_query_hints
from headrace_sql.binding.scope import MEANT, Column, Relation, resolve, unused_name
from headrace_sql.binding.trees import all_of, physical, text_of
from headrace_sql.compiling.current_watermark import with_watermarks
from headrace_sql.compiling.from_clause import from_clause
from headrace_sql.compiling.grouping import aggregated
from headrace_sql.compiling.ordering import limited, with_grouped_order, with_order_columns
from headrace_sql.compiling.over import with_over
from headrace_sql.compiling.qualify import qualified
from headrace_sql.compiling.ranking import ranked
from headrace_sql.compiling.sets import distinct, set_operation
from headrace_sql.compiling.subqueries import filtered
from headrace_sql.compiling.subquery_columns import with_subqueries
from headrace_sql.compiling.values import values
from headrace_sql.compiling.window_assign import assigned

_CLAUSES = {
    "kind", "expressions", "from_", "joins", "where", "group", "having", "windows", "distinct", "laterals", "order", "limit", "offset",
    "match", "with_",
}  # fmt: skip


class QueryCompiler(Context):
    """Compiles one query of a script."""

    # ------------------------------------------------------------------------------------------------------ queries

    def query(self, node: exp.Expr) -> Relation:
        """Return the relation of a query. Raises JobError for errors in it and for parts that are not supported."""
        outer = dict(self.common)
        try:
            common = node.args.get("with_")
            for each in common.expressions if common is not None else ():
                if common is not None and common.args.get("recursive"):
                    raise self.error(each, "recursive queries are not supported")
                columns = [column.name for column in each.args["alias"].args.get("columns") or ()]
                self.common[each.alias] = self.query(each.this).named(each.alias, columns)
            compiled = _QUERIES.get(type(node))
            if compiled is None:
                raise self.error(node, f"{type(node).__name__.upper()} is not supported as a query")
            return compiled(self, node)
        finally:
            self.common = outer

    def from_clause(self, node: exp.Select, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
        return from_clause(self, node, conditions)

    def select(self, node: exp.Select) -> Relation:
        if node.args.get("qualify") is not None:
            return qualified(self, node)
        for key, value in node.args.items():
            if value and key not in _CLAUSES and key != "hint":
                raise self.error(
                    value if isinstance(value, exp.Expr) else node, f"{key.strip('_').upper()} is not supported here"
                )
        check_query_hints(self.catalog.notices, node, self.text)
        outer, self.state_ttls = self.state_ttls, StateTtls(self.catalog.options, node, self.text)
        around = self.around
        try:
            made = self._selected(_with_windows(node))
            self.state_ttls.end()
            return made
        finally:
            self.state_ttls, self.around = outer, around

    def _selected(self, node: exp.Select) -> Relation:
        conditions = conjuncts(node.args["where"].this if node.args.get("where") else None)
        self.around = node
        relation, conditions = from_clause(self, node, conditions)
        relation, node, conditions = with_watermarks(self, node, relation, conditions)
        if any(each.find(exp.Query) for each in (*conditions, *node.expressions, *_having(node))):
            relation, node, conditions = with_subqueries(self, node, relation, conditions)
        grouped = node.args.get("group") is not None or self.has_aggregates(node)
        relation = self._with_window_columns(node, relation, conditions, grouped=grouped)
        relation = self.where(relation, conditions)
        hidden = 0
        if grouped:
            node, hidden = with_grouped_order(self, node)
            relation = aggregated(self, node, relation)
        else:
            if node.args.get("having") is not None:
                raise self.error(node.args["having"], "HAVING needs GROUP BY or an aggregate")
            node, hidden = with_order_columns(self, node, relation)
            relation = self.projected(relation, node.expressions)
        if node.args.get("distinct") is not None:
            if node.args["distinct"].args.get("on") is not None:
                raise self.error(
                    node.args["distinct"], "DISTINCT ON is not supported", "ROW_NUMBER() … = 1 keeps one row per key"
                )

            relation = distinct(relation, state_ttl(self.catalog.options))
        return limited(self, node, relation, hidden)

    def _with_window_columns(
        self, node: exp.Select, relation: Relation, conditions: Sequence[exp.Expr], *, grouped: bool
    ) -> Relation:
        """Make the columns of a table's window unless they are the keys of its aggregation."""
        if relation.table_window is None:
            return relation
        names = {column.name for column in relation.columns if column.window is not None}
        named = any(column.name in names for condition in conditions for column in condition.find_all(exp.Column))
        keys = {each.name for each in node.args["group"].expressions} if node.args.get("group") is not None else set()
        if grouped and not named and keys & names and not self._divides_sessions(node, relation):
            return relation
        if relation.table_window.on is None:
            raise self.error(
                node.args["from_"].this, "windows of processing time can only be aggregated",
                "GROUP BY window_start, window_end",
            )  # fmt: skip

        return assigned(relation)

    def _divides_sessions(self, node: exp.Select, relation: Relation) -> bool:
        """Return whether rows of one session go into several groups: then each row gets its session first."""
        assert relation.table_window is not None
        if relation.table_window.kind != "session":
            return False
        keys: set[str] = set()
        for each in node.args["group"].expressions:
            found = relation.find(each.name, each.table or None) if isinstance(each, exp.Column) else []
            if not found:
                return True  # an expression, or several grouping sets
            keys |= {found[0].physical} if found[0].window is None else set()
        return keys != set(relation.table_window.partition)

    # ------------------------------------------------------------------------------------------------- WHERE, SELECT

    def where(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Keep the rows for which all conditions are true; a condition on a ROW_NUMBER() makes it a Top-N."""
        if relation.ranking is not None:
            relation, conditions = ranked(self, relation, conditions)
        plain: list[exp.Expr] = []
        for condition in conditions:
            if condition.find(exp.Select) is None:
                plain.append(condition)
                continue
            relation = filtered(self, relation, condition)
        if not plain:
            return relation
        translator = self.translator(relation)
        text = all_of([translator.checked(condition) for condition in plain])
        for condition in plain:
            kind = translator.type_of(condition)
            if not isinstance(kind, pl.Boolean | pl.Null):
                raise self.error(condition, f"the condition must be boolean, not {types.word_for(kind) or kind}")
        assert text is not None
        stream = relation.stream.where(text)
        return replace(relation, stream=stream, base=None, version_key=(), version_stream=None)

    def expanded(self, relation: Relation, items: Sequence[exp.Expr]) -> list[Listed]:
        """Return what SELECT lists as (name, expression, column), stars replaced by their columns."""
        made: list[Listed] = []
        for item in items:
            table = item.table if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else None
            if isinstance(item, exp.Star) or table is not None:
                columns = [
                    c
                    for c in relation.columns
                    if (table is None and not c.hidden) or (table and (c.table or "").lower() == table.lower())
                ]
                if not columns:
                    raise self.error(item, "* needs FROM" if table is None else f"unknown table {table!r}")
                made += [(c.name, physical(c.physical), c) for c in columns]
                continue
            alias, inner = (item.alias, item.this) if isinstance(item, exp.Alias) else (None, item)
            column = None
            bare = inner.unnest() if isinstance(inner, exp.Paren) else inner
            if isinstance(bare, exp.Column):
                found, fields = resolve(relation, bare, self.text) if not _is_bare_call(relation, bare) else (None, [])
                column = found if found is not None and not fields else None
                if column is None or not column.hidden or MEANT not in bare.meta:  # a subquery's value has no name
                    alias = alias or (fields[-1].name if fields else bare.name)
            made.append((alias, inner, column))
        return made

    def projected(
        self, relation: Relation, items: Sequence[exp.Expr], translator: Translator | None = None
    ) -> Relation:
        """Return what SELECT gives of each row."""
        listed = self.expanded(relation, items)
        if translator is None and any(each[1].find(exp.Window) for each in listed):
            return with_over(self, relation, listed)
        given = translator or self.translator(relation)
        return self.selected(relation, listed, given)

    def selected(self, relation: Relation, listed: Sequence[Listed], translator: Translator) -> Relation:
        columns: list[Column] = []
        expressions: dict[str, str] = {}
        for index, (name, node, column) in enumerate(listed):
            name = name or f"EXPR${index}"
            target = unused_name(name, expressions)
            is_processing = column.time == "processing" if column is not None else _is_proctime(node)
            if is_processing:
                columns.append(Column(name, target, None, "processing"))
                continue
            if column is not None:
                expressions[target] = text_of(physical(column.physical))
            else:
                expressions[target] = translator.sql(node)
            columns.append(
                Column(
                    name, target, None, column.time if column is not None else None, column.window if column else None
                )
            )
        if not expressions:
            expressions["__row"] = "1"  # PROCTIME() alone: rows without another column
        same = list(relation.schema) == list(expressions) and all(
            expressions[each] == text_of(physical(each)) for each in expressions
        )
        stream = relation.stream if same else relation.stream.select(**expressions)
        made = Relation(stream, tuple(columns), unique=_renamed(relation.unique, expressions))
        return self._with_versions(relation, made, expressions)

    def _with_versions(self, relation: Relation, made: Relation, expressions: dict[str, str]) -> Relation:
        """Keep what a temporal join needs of a versioned view: all versions of its rows, projected alike."""
        if relation.version_stream is None:
            return made
        texts = {text: name for name, text in expressions.items()}
        keys = [texts.get(text_of(physical(key))) for key in relation.version_key]
        if None in keys or relation.stream.schema != relation.version_stream.schema:
            return made
        versions = relation.version_stream.select(**expressions)
        return replace(made, version_key=tuple(str(key) for key in keys), version_stream=versions)


def _renamed(keys: Sequence[Sequence[str]], expressions: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return those of these sets of columns that the query keeps, by their new names."""
    texts = {text: name for name, text in expressions.items()}
    found = ([texts.get(text_of(physical(name))) for name in key] for key in keys)
    return tuple(tuple(str(name) for name in key) for key in found if None not in key)


def _subquery(compiler: QueryCompiler, node: exp.Subquery) -> Relation:
    """A query in brackets, with an ORDER BY … LIMIT behind them."""
    return limited(compiler, node, compiler.query(node.this))


#: What compiles each kind of query.
_QUERIES: Mapping[type[exp.Expr], Callable[[QueryCompiler, Any], Relation]] = {
    exp.Select: QueryCompiler.select,
    exp.Subquery: _subquery,
    exp.Values: values,
    exp.Union: set_operation,
    exp.Intersect: set_operation,
    exp.Except: set_operation,
}


def view_relation(catalog: Catalog, view: View) -> Relation:
    """Return the relation of a view's query; called by the catalog where a text names the view."""
    return QueryCompiler(catalog, view.text).query(view.query)


def _having(node: exp.Select) -> list[exp.Expr]:
    return [node.args["having"]] if node.args.get("having") is not None else []


def _is_bare_call(relation: Relation, node: exp.Column) -> bool:
    return len(node.parts) == 1 and node.name.upper() in BARE_CALLS and not relation.find(node.name)


def _is_proctime(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME"


def _with_windows(node: exp.Select) -> exp.Select:
    """Put named windows (WINDOW w AS …) where they are used."""
    named = {each.name: each for each in node.args.get("windows") or ()}
    if not named:
        return node
    made = node.copy()
    for window in list(made.find_all(exp.Window)):
        target = named.get(window.alias)
        if target is not None and window.args.get("this") is not None and window.args.get("over"):
            for key in ("partition_by", "order", "spec"):
                if target.args.get(key):
                    window.set(key, target.copy().args[key])
            window.set("alias", None)
    made.set("windows", None)
    return made
