"""Expressions of MATCH_RECOGNIZE: read into trees that the operator evaluates per candidate match.

What is calculated of the columns of one row only is made a column before the operator, for all rows at once. Functions of several
rows are evaluated by the engine's own expressions on one row of their arguments.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
from headrace.flow.schema import Schema
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expressions import Translator, part_key
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.scope import Column, Relation, resolve, standing_for, unused_name
from headrace_sql.compiling.constants import whole_number
from headrace_sql.operators.match_values import Node

_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST")
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>", exp.Add: "+", exp.Sub: "-", exp.Mul: "*",
    exp.Div: "/", exp.And: "and", exp.Or: "or",
}  # fmt: skip


def is_rowtime(node: exp.Expr) -> bool:
    """Return whether a measure is ``MATCH_ROWTIME()``: the time attribute of the matches."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "MATCH_ROWTIME"


def is_proctime(node: exp.Expr) -> bool:
    """Return whether a measure is ``MATCH_PROCTIME()``: the time at which a match is given."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "MATCH_PROCTIME"


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() in _AGGREGATES


def _zone(kind: pl.DataType) -> str | None:
    return kind.time_zone if isinstance(kind, pl.Datetime) else None


class Reader:
    """Reads the expressions of one MATCH_RECOGNIZE. ``time``: the column by which its rows are ordered; None: processing time."""

    def __init__(self, context: Context, relation: Relation, names: list[str], time: str | None) -> None:
        self._context = context
        self._relation = relation
        self._names = names
        self._time = time
        #: Columns to be made before the operator, and their types.
        self.computed: dict[str, str] = {}
        self._kinds: dict[str, pl.DataType] = {}
        self._known: dict[str, str] = {}

    def read(self, node: exp.Expr, current: str | None) -> Node:
        """Return the tree of an expression; ``current``: the variable that DEFINE is about. Raises ExpressionError."""
        if isinstance(node, exp.Paren):
            return self.read(node.this, current)
        operator = _OPERATORS.get(type(node))
        if operator is not None and not self._can_be_taken(node, operator):
            return self._calculated(node, current)
        if operator is not None:
            return (operator, self.read(node.args["this"], current), self.read(node.args["expression"], current))
        if isinstance(node, exp.Between):
            this, low, high = (node.args[key] for key in ("this", "low", "high"))
            bounds = exp.GTE(this=this.copy(), expression=low.copy()), exp.LTE(this=this.copy(), expression=high.copy())
            return ("and", *(self.read(each, current) for each in bounds))
        if isinstance(node, exp.Not):
            return ("not", self.read(node.this, current))
        if isinstance(node, exp.Neg):
            return ("-", ("value", 0), self.read(node.this, current))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return ("null", self.read(node.this, current))
        if isinstance(node, exp.Null):
            return ("value", None)
        if isinstance(node, exp.Boolean):
            return ("value", bool(node.this))
        if isinstance(node, exp.Literal) and (node.is_string or node.name.isdigit()):
            return ("value", node.name if node.is_string else int(node.name))
        if isinstance(node, exp.Interval):
            return ("interval", interval_us(node, self._context.text, "MATCH_RECOGNIZE"))
        if isinstance(node, exp.Case) and node.this is None:
            whens = [self.read(each.args[key], current) for each in node.args["ifs"] for key in ("this", "true")]
            default = node.args.get("default")
            return ("case", *whens, ("value", None) if default is None else self.read(default, current))
        if isinstance(node, exp.Column) and self._is_plain(node):
            variable, column = self._column(node)
            # A plain column is that of the last row of its variable.
            return ("LAST", variable or current, column, 0)
        if _is_aggregate(node):
            return self._aggregate(cast("exp.Anonymous", node), current)
        if is_rowtime(node):
            if self._time is None:
                raise self._context.error(node, "MATCH_ROWTIME() needs rows in event time", "MATCH_PROCTIME()")
            return ("LAST", None, self._time, 0)
        return self._calculated(node, current)

    def _aggregate(self, node: exp.Anonymous, current: str | None) -> Node:
        name, arguments = node.name.upper(), node.expressions
        if name == "COUNT" and arguments and isinstance(arguments[0], exp.Star):
            return ("COUNT", current, None, 0)
        if not arguments:
            raise self._context.error(node, f"{name} takes a column of a variable here", f"{name}(A.price)")
        variable, column = self._of_one_row(arguments[0], node)
        distance = 0
        if len(arguments) > 1:
            if name not in ("FIRST", "LAST"):
                raise self._context.error(node, f"{name} takes one argument")
            distance = whole_number(self._context, arguments[1], f"the distance of {name}")
        return (name, variable or current, column, distance)

    def _calculated(self, node: exp.Expr, current: str | None) -> Node:
        """Return the tree of a function: of one row as a column, of several as a call."""
        if isinstance(node, exp.Anonymous) and node.name.upper() in ("PREV", "NEXT"):
            raise self._context.error(
                node, f"{node.name} is not supported, as in Flink", "LAST(A.x, 1) is the row of A before"
            )
        if not any(_is_aggregate(each) for each in node.walk()) and len(self._variables(node)) == 1:
            variable, column = self._of_one_row(node, node)
            return ("LAST", variable or current, column, 0)
        made, parts = self._with_arguments(node)
        translator = self._translator({name: kind for name, _, kind in parts})
        nodes = [self.read(part, current) for _, part, _ in parts]
        return ("call", translator.sql(made), {name: kind for name, _, kind in parts}, *nodes)

    def _of_one_row(self, node: exp.Expr, whole: exp.Expr) -> tuple[str | None, str]:
        """Return the variable of an expression over one row, and the column that holds its value."""
        if isinstance(node, exp.Column) and self._is_plain(node):
            return self._column(node)
        variables = self._variables(node)
        if len(variables) > 1 or any(_is_aggregate(each) for each in node.walk()):
            raise self._context.error(
                whole,
                "this expression combines rows of several variables",
                "use only one variable inside an aggregate: SUM(A.x * A.y)",
            )
        bare = node.transform(self._without_variable)
        translator = self._context.translator(self._relation)
        key = part_key(self._relation, bare, self._context.text)
        if key not in self._known:
            name = unused_name(f"__calculated_{len(self.computed)}", self._relation.schema)
            self._known[key], self.computed[name] = name, translator.sql(bare)
            self._kinds[name] = translator.type_of(bare)
        return (variables.pop() if variables else None), self._known[key]

    def _is_plain(self, node: exp.Column) -> bool:
        """Return whether a name is a column, not a field of one or a function without brackets."""
        bare = self._without_variable(node)
        parts = list(bare.parts) if isinstance(bare, exp.Column) else []
        return len(parts) == 1 and bool(self._relation.find(parts[0].name))

    def _variables(self, node: exp.Expr) -> set[str | None]:
        return {self._variable(each) for each in node.find_all(exp.Column)}

    def _variable(self, node: exp.Column) -> str | None:
        parts = list(node.parts)
        return str(parts[0].name) if len(parts) > 1 and parts[0].name in self._names else None

    def _without_variable(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or self._variable(node) is None:
            return node
        names = [part.copy() for part in list(node.parts)[1:]]
        for made, part in zip(names, list(node.parts)[1:], strict=True):
            made.meta.update(part.meta)
        keys = ("this", "table", "db", "catalog")
        return exp.Column(**dict(zip(keys, reversed(names), strict=False)))

    def _column(self, node: exp.Column) -> tuple[str | None, str]:
        bare = self._without_variable(node)
        assert isinstance(bare, exp.Column)
        return self._variable(node), resolve(self._relation, bare, self._context.text)[0].physical

    # ------------------------------------------------------------------------------------------------------- types

    def _with_arguments(self, node: exp.Expr) -> tuple[exp.Expr, list[tuple[str, exp.Expr, pl.DataType]]]:
        """Return an expression over arguments, and what these are: the columns and aggregates in it."""
        parts: list[tuple[str, exp.Expr, pl.DataType]] = []

        def replaced(part: exp.Expr) -> exp.Expr:
            is_column = isinstance(part, exp.Column) and (self._is_plain(part) or self._variable(part) is not None)
            if not (_is_aggregate(part) or is_rowtime(part) or is_column):
                return part
            name = f"__argument_{len(parts)}"
            parts.append((name, part.copy(), self._type_of_part(part)))
            return standing_for(Column(name, name), part)

        return node.transform(replaced), parts

    def _type_of_part(self, node: exp.Expr) -> pl.DataType:
        if is_rowtime(node):
            return self._relation.schema[str(self._time)]
        if isinstance(node, exp.Column):
            made = self._of_one_row(node, node)[1]
            return self._kinds.get(made) or self._relation.schema[made]
        assert isinstance(node, exp.Anonymous)
        name = node.name.upper()
        if name == "COUNT":
            return pl.Int64()
        column = self._of_one_row(node.expressions[0], node)[1]
        kind = self._kinds.get(column) or self._relation.schema[column]
        if name == "SUM" and isinstance(kind, pl.Decimal):
            return pl.Decimal(38, kind.scale)
        if name == "AVG" and isinstance(kind, pl.Decimal):
            return pl.Decimal(38, max(6, kind.scale))
        if name == "AVG" and not isinstance(kind, pl.Float32):
            return pl.Int64() if kind.is_integer() else pl.Float64()
        return pl.Int64() if name == "SUM" and kind.is_integer() else kind

    def _can_be_taken(self, node: exp.Expr, operator: str) -> bool:
        """Return whether Python's values give what SQL says: numbers with numbers, times of one type. The rest needs conversions."""
        if operator in ("and", "or"):
            return True
        left, right = (self.type_of(node.args[key]) for key in ("this", "expression"))
        if (left.is_numeric() and right.is_numeric()) or pl.Null in (left, right):
            return True
        if operator in ("+", "-"):
            zones = {each.time_zone for each in (left, right) if isinstance(each, pl.Datetime)}
            return len(zones) <= 1 and all(isinstance(each, pl.Datetime | pl.Duration) for each in (left, right))
        return operator not in ("*", "/") and type(left) is type(right) and _zone(left) == _zone(right)

    def _translator(self, kinds: dict[str, pl.DataType]) -> Translator:
        stream: Any = SimpleNamespace(schema=Schema(kinds))
        return self._context.translator(Relation(stream, tuple(Column(name, name) for name in kinds)))

    def type_of(self, node: exp.Expr) -> pl.DataType:
        """Return the type of a measure."""
        made, parts = self._with_arguments(node)
        return self._translator({name: kind for name, _, kind in parts}).type_of(made)
