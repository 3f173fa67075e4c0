"""Queries as streams: FROM, WHERE, GROUP BY, HAVING, SELECT, set operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.plan.graph import Input
from sqlglot import exp

from headrace_sql.binding import types, zones
from headrace_sql.binding.expressions import AGGREGATES, Translator, physical, text_of
from headrace_sql.binding.functions import call, cast
from headrace_sql.binding.scope import MEANT, Column, Ranking, Relation, error_at, unused_name
from headrace_sql.compiling.hints import StateTtls, check_query_hints
from headrace_sql.reading import nodes

if TYPE_CHECKING:
    from headrace.interfaces.operator import Changes

    from headrace_sql.binding.catalog import Catalog

_CLAUSES = {
    "kind", "expressions", "from_", "joins", "where", "group", "having", "windows", "distinct", "laterals", "order", "limit", "offset",
    "match", "with_",
}  # fmt: skip


def changes_of(edge: Input) -> Changes | None:
    """Return whether the rows on an edge change earlier results, and by which key."""
    from headrace.interfaces.operator import Changes, StatefulSpec
    from headrace.plan.graph import OperatorNode, ShuffleNode, UnionNode

    node = edge.node
    if isinstance(node, OperatorNode) and edge.output and isinstance(node.spec, StatefulSpec):
        return None
    if isinstance(node, OperatorNode):
        return node.spec.changes(changes_of(node.input))
    if isinstance(node, UnionNode | ShuffleNode):
        found = [changes_of(each) for each in node.inputs]
        return found[0] if len(found) == 1 else Changes(None) if any(each is not None for each in found) else None
    return None


def is_updating(relation: Relation) -> bool:
    return changes_of(relation.stream._edge) is not None


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that AND joins."""
    if node is None:
        return []
    while isinstance(node, exp.Paren) and not isinstance(node.this, exp.Or):
        node = node.this
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        return [exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this.copy(), expression=high)]
    return [node]


def own_columns(node: exp.Expr) -> list[exp.Column]:
    """Return the columns that an expression names."""
    return [each for each in node.find_all(exp.Column) if not isinstance(each.this, exp.Star)]


def is_aggregate(node: exp.Expr, functions: Any) -> bool:
    """Return whether a node is the call of an aggregate function, built in or the user's."""
    from headrace.interfaces.functions import AggregateFunction

    if isinstance(node, exp.Filter):
        return is_aggregate(node.this, functions)
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name
    return name.upper() in AGGREGATES or isinstance(functions.get(name.lower()), AggregateFunction)


class QueryCompiler:
    """Compiles one query of a script."""

    def __init__(self, catalog: Catalog, text: str) -> None:
        self.catalog = catalog
        self.text = text
        self._common: dict[str, Relation] = {}
        #: What EMIT or the options say of early and late results of windows.
        self.emit: Any = None
        #: What hints of the SELECT at hand say of the state of its joins and aggregate.
        self.state_ttls = StateTtls(catalog.options, exp.Select(), text)
        #: The SELECT at hand.
        self.around: exp.Select | None = None

    def error(self, node: Any, message: str, hint: str | None = None) -> Exception:
        return error_at(node, self.text, message, hint)

    def translator(
        self, relation: Relation, replaced: dict[str, str] | None = None, *, grouped: bool = False
    ) -> Translator:
        return Translator(relation, self.text, self.catalog.functions, self.catalog.zone, replaced, grouped=grouped)

    def window_offset_us(self, node: Any, relation: Relation, on: str | None, length_us: int) -> int:
        """Return by how much windows of a time column (None: processing time) are moved for the session's time zone."""
        if self.catalog.zone == "UTC" or (on is not None and not zones.is_instant(relation.schema[on])):
            return 0
        found = zones.window_offset_us(self.catalog.zone, length_us)
        if found is None:
            raise self.error(
                node, f"windows so long begin at other times in summer and in winter in {self.catalog.zone}",
                "make the time a TIMESTAMP of the zone: CAST(ts AS TIMESTAMP(3)) as a computed column with the WATERMARK",
            )  # fmt: skip
        return found

    # ------------------------------------------------------------------------------------------------------ queries

    def query(self, node: exp.Expr) -> Relation:
        """Return the relation of a query. Raises JobError for what is wrong or not supported."""
        outer = dict(self._common)
        try:
            common = node.args.get("with_")
            for each in common.expressions if common is not None else ():
                if common is not None and common.args.get("recursive"):
                    raise self.error(each, "recursive queries are not supported")
                columns = [column.name for column in each.args["alias"].args.get("columns") or ()]
                self._common[each.alias] = self.query(each.this).named(each.alias, columns)
            if isinstance(node, exp.Subquery):
                from headrace_sql.compiling.ordering import limited

                made = limited(self, node, self.query(node.this))
            elif isinstance(node, exp.SetOperation):
                from headrace_sql.compiling.sets import set_operation

                made = set_operation(self, node)
            elif isinstance(node, exp.Select):
                made = self.select(node)
            elif isinstance(node, exp.Values):
                from headrace_sql.compiling.values import values

                made = values(self, node)
            else:
                raise self.error(node, f"{type(node).__name__.upper()} is not supported as a query")
            return made
        finally:
            self._common = outer

    def settled(self, node: exp.Expr, relation: Relation) -> Relation:
        """Return a relation without a ROW_NUMBER() that waits for its bound: one by time numbers all rows, another is an error."""
        ranking = relation.ranking
        if ranking is None:
            return relation
        if ranking.unbounded is not None:
            made = ranking.unbounded()
            named = zip(made.columns, relation.columns, strict=True)
            return replace(made, columns=tuple(replace(new, name=old.name, table=old.table) for new, old in named))
        raise self.error(
            None, f"the rank {ranking.name!r} has no upper bound: every row would be kept for ever",
            f"bound it in a query around this one: WHERE {ranking.name} <= 10",
        )  # fmt: skip

    def select(self, node: exp.Select) -> Relation:
        for key, value in node.args.items():
            if value and key not in _CLAUSES and key != "hint":
                raise self.error(
                    value if isinstance(value, exp.Expr) else node, f"{key.strip('_').upper()} is not supported here"
                )
        check_query_hints(self.catalog, node, self.text)
        outer, self.state_ttls = self.state_ttls, StateTtls(self.catalog.options, node, self.text)
        try:
            made = self._selected(_with_windows(node))
            self.state_ttls.end()
            return made
        finally:
            self.state_ttls = outer

    def _selected(self, node: exp.Select) -> Relation:
        from headrace_sql.compiling.ordering import limited, with_grouped_order, with_order_columns
        from headrace_sql.compiling.sources import from_clause

        conditions = conjuncts(node.args["where"].this if node.args.get("where") else None)
        relation, conditions = from_clause(self, node, conditions)
        self.around = node
        if any(each.find(exp.Query) for each in (*conditions, *node.expressions, *_having(node))):
            from headrace_sql.compiling.predicates import with_subqueries

            relation, node, conditions = with_subqueries(self, node, relation, conditions)
        grouped = node.args.get("group") is not None or self.has_aggregates(node)
        relation = self._with_window_columns(node, relation, conditions, grouped=grouped)
        relation = self.where(relation, conditions)
        hidden = 0
        if grouped:
            from headrace_sql.compiling.grouping import aggregated

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
            from headrace_sql.binding.emitting import state_ttl
            from headrace_sql.compiling.sets import distinct

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
        from headrace_sql.compiling.window_assign import assigned

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

    def has_aggregates(self, node: exp.Select) -> bool:
        parts = [*node.expressions, *([node.args["having"]] if node.args.get("having") else [])]
        return any(aggregates_in(part, self.catalog.functions) for part in parts)

    # ------------------------------------------------------------------------------------------------- WHERE, SELECT

    def where(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Keep the rows for which all conditions are true; a condition on a ROW_NUMBER() makes it a Top-N."""
        if relation.ranking is not None:
            from headrace_sql.compiling.ranking import ranked

            relation, conditions = ranked(self, relation, conditions)
        plain: list[exp.Expr] = []
        for condition in conditions:
            if condition.find(exp.Select) is None:
                plain.append(condition)
                continue
            from headrace_sql.compiling.subqueries import filtered

            relation = filtered(self, relation, condition)
        if not plain:
            return relation
        translator = self.translator(relation)
        texts = [translator.sql(condition) for condition in plain]
        for text, condition in zip(texts, plain, strict=True):
            kind = translator.type_of(condition)
            if not isinstance(kind, pl.Boolean | pl.Null):
                raise self.error(condition, f"the condition must be boolean, not {types.word_for(kind) or kind}")
            del text
        stream = relation.stream.where(" AND ".join(f"({each})" for each in texts))
        return replace(relation, stream=stream, base=None, version_key=(), version_stream=None)

    def expanded(
        self, relation: Relation, items: Sequence[exp.Expr]
    ) -> list[tuple[str | None, exp.Expr, Column | None]]:
        """Return what SELECT lists as (name, expression, column), stars replaced by their columns."""
        made: list[tuple[str | None, exp.Expr, Column | None]] = []
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
                from headrace_sql.binding.scope import resolve

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
            from headrace_sql.compiling.over import with_over

            return with_over(self, relation, listed)
        given = translator or self.translator(relation)
        return self.selected(relation, listed, given)

    def selected(
        self, relation: Relation, listed: Sequence[tuple[str | None, exp.Expr, Column | None]], translator: Translator
    ) -> Relation:
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
        made = Relation(stream, tuple(columns))
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


def _having(node: exp.Select) -> list[exp.Expr]:
    return [node.args["having"]] if node.args.get("having") is not None else []


def _is_bare_call(relation: Relation, node: exp.Column) -> bool:
    from headrace_sql.binding.functions import BARE_CALLS

    return len(node.parts) == 1 and node.name.upper() in BARE_CALLS and not relation.find(node.name)


def _is_proctime(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME"


def aggregates_in(node: exp.Expr, functions: Any) -> list[exp.Expr]:
    """Return the calls of aggregate functions in an expression, outermost first, but none in subqueries or behind OVER."""
    if isinstance(node, exp.Window | exp.Select | exp.Subquery):
        return []
    if is_aggregate(node, functions):
        return [node]
    found: list[exp.Expr] = []
    for child in node.iter_expressions():
        found += aggregates_in(child, functions)
    return found


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


def value_of(relation: Relation, column: Column) -> tuple[exp.Expr, pl.DataType]:
    """Return the expression and type of a column's value: of processing time the time at which the row is given."""
    if column.time == "processing" and column.physical not in relation.schema:
        return cast(call("current_timestamp"), "TIMESTAMP"), pl.Datetime("us", "UTC")
    return physical(column.physical), relation.schema[column.physical]


def cast_to(relation: Relation, columns: Sequence[Column], kinds: Sequence[pl.DataType], names: Sequence[str]) -> Any:
    """Return expressions that give columns under names, cast where the types differ."""
    made = {}
    for column, kind, name in zip(columns, kinds, names, strict=True):
        node, have = value_of(relation, column)
        if have != kind:
            word = types.word_for(kind)
            if word is not None:
                node = cast(node, word)
        made[name] = text_of(node)
    return made


__all__ = ["QueryCompiler", "Ranking", "nodes"]
