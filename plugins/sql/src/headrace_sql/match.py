"""MATCH_RECOGNIZE: its clauses read and checked; the operator is in ``match_operator``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
from headrace.keyed import shuffled
from sqlglot import exp

from headrace_sql.expressions import interval_length
from headrace_sql.match_operator import MatchRecognize, Node, PatternPart
from headrace_sql.query import is_updating
from headrace_sql.scope import Column, Relation, resolve

if TYPE_CHECKING:
    from headrace_sql.query import QueryCompiler

_PART = re.compile(r"\s*([A-Za-z_]\w*)\s*(\*|\+|\?|\{\s*\d*\s*(?:,\s*\d*\s*)?\})?(\?)?")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST")
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>", exp.Add: "+", exp.Sub: "-", exp.Mul: "*",
    exp.Div: "/", exp.And: "and", exp.Or: "or",
}  # fmt: skip


def matched(compiler: QueryCompiler, node: exp.MatchRecognize, relation: Relation) -> Relation:
    """Return the relation of a MATCH_RECOGNIZE clause. Raises ExpressionError for what is not supported."""
    if is_updating(relation):
        raise compiler.error(node, "MATCH_RECOGNIZE takes rows that are only added, not results that change")
    rows = node.args.get("rows")
    if rows is not None and rows.name != "ONE ROW PER MATCH":
        raise compiler.error(node, f"{rows.name} is not supported", "ONE ROW PER MATCH")
    keys = []
    for each in node.args.get("partition_by") or ():
        keys.append(resolve(relation, each, compiler.text)[0])
    order = node.args.get("order")
    terms = order.expressions if order is not None else []
    if not terms or not isinstance(terms[0].this, exp.Column) or terms[0].args.get("desc"):
        raise compiler.error(node, "MATCH_RECOGNIZE is ordered by a time attribute, ascending", "ORDER BY ts")
    time, _ = resolve(relation, terms[0].this, compiler.text)
    if time.time != "event":
        raise compiler.error(
            terms[0], f"{time.name!r} is no event-time attribute", "declare WATERMARK FOR it in its table"
        )
    further = [resolve(relation, term.this, compiler.text)[0].physical for term in terms[1:]]
    pattern = _pattern(compiler, node.args["pattern"])
    names = [part.variable for part in pattern]
    reader = _Reader(compiler, relation, names)
    definitions = {}
    for each in node.args.get("define") or ():
        if each.alias not in names:
            raise compiler.error(each.this, f"{each.alias!r} is not in the pattern", f"variables: {', '.join(names)}")
        definitions[each.alias] = reader.read(each.this, each.alias)
    measures, types = {}, {}
    for each in node.args["measures"]:
        measures[each.alias] = reader.read(each.this, None)
        types[each.alias] = reader.type_of(each.this)
    within = node.args["pattern"].args.get("within")
    spec = MatchRecognize(
        keys=tuple(c.physical for c in keys), on=time.physical, order=tuple(further), pattern=tuple(pattern), definitions=definitions,
        measures=measures, types=types, skip=_skip(compiler, node, names),
        within_us=interval_length(within, compiler.text)[1] if within is not None else None,
    )  # fmt: skip
    stream = shuffled(relation.stream, spec.keys).apply(spec)
    alias = node.args.get("alias")
    table = alias.name if alias is not None else None
    columns = [replace(c, table=table) for c in keys] + [Column(name, name, table) for name in measures]
    return Relation(stream, tuple(columns))


def _skip(compiler: QueryCompiler, node: exp.MatchRecognize, names: list[str]) -> tuple[str, str]:
    after = node.args.get("after")
    text = after.name.removeprefix("AFTER MATCH SKIP ") if after is not None else "TO NEXT ROW"
    for words in ("TO FIRST ", "TO LAST "):
        if text.startswith(words):
            variable = text.removeprefix(words)
            if variable not in names:
                raise compiler.error(node, f"AFTER MATCH SKIP {words}{variable}: it is not in the pattern")
            return words.strip(), variable
    return text, ""


def _pattern(compiler: QueryCompiler, node: exp.Expr) -> list[PatternPart]:
    text, at, parts = node.name.strip(), 0, []
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or not found[0]:
            raise compiler.error(
                None,
                f"PATTERN ({text}): {text[at:]!r} is not supported",
                "variables with *, +, ?, {n}, {n,m}, one behind the other",
            )
        least, most = {None: (1, 1), "*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[2], (0, 0))
        if found[2] is not None and found[2].startswith("{"):
            low, comma, high = found[2].strip("{} ").partition(",")
            least = int(low or 0)
            most = (int(high) if high.strip() else None) if comma else least
        parts.append(PatternPart(found[1], least, most, greedy=found[3] is None))
        at = found.end()
    if len({part.variable for part in parts}) < len(parts):
        raise compiler.error(None, f"PATTERN ({text}): a variable can stand there once")
    if parts and parts[-1].most is None and parts[-1].greedy:
        raise compiler.error(
            None,
            f"PATTERN ({text}): the last variable must not be greedy without an end",
            "add a variable behind it, or ?",
        )
    return parts


class _Reader:
    """Reads expressions of DEFINE and MEASURES into small trees that the operator evaluates per candidate match."""

    def __init__(self, compiler: QueryCompiler, relation: Relation, names: list[str]) -> None:
        self._compiler = compiler
        self._relation = relation
        self._names = names

    def read(self, node: exp.Expr, current: str | None) -> Node:
        if isinstance(node, exp.Paren):
            return self.read(node.this, current)
        operator = _OPERATORS.get(type(node))
        if operator is not None:
            return (operator, self.read(node.args["this"], current), self.read(node.args["expression"], current))
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
        if isinstance(node, exp.Literal):
            return ("value", node.name if node.is_string else float(node.name) if "." in node.name else int(node.name))
        if isinstance(node, exp.Interval):
            return ("interval", interval_length(node, self._compiler.text)[1])
        if isinstance(node, exp.Column):
            variable, column = self._column(node)
            # A plain column is that of the last row of its variable.
            return ("LAST", variable or current, column, 0)
        if isinstance(node, exp.Anonymous) and node.name.upper() in _AGGREGATES:
            return self._aggregate(node, current)
        raise self._compiler.error(
            node, "this is not supported in MATCH_RECOGNIZE", f"comparisons, arithmetic and {', '.join(_AGGREGATES)}"
        )

    def _aggregate(self, node: exp.Anonymous, current: str | None) -> Node:
        name, arguments = node.name.upper(), node.expressions
        if name == "COUNT" and arguments and isinstance(arguments[0], exp.Star):
            return ("COUNT", current, None, 0)
        if not arguments or not isinstance(arguments[0], exp.Column):
            raise self._compiler.error(node, f"{name} takes a column of a variable here", f"{name}(A.price)")
        variable, column = self._column(arguments[0])
        distance = 0
        if len(arguments) > 1:
            if name not in ("FIRST", "LAST") or not isinstance(arguments[1], exp.Literal):
                raise self._compiler.error(node, f"{name} takes one argument")
            distance = int(arguments[1].name)
        return (name, variable or current, column, distance)

    def _column(self, node: exp.Column) -> tuple[str | None, str]:
        parts = list(node.parts)
        if len(parts) > 1 and parts[0].name in self._names:
            plain = exp.Column(this=parts[1].copy())
            plain.this.meta.update(parts[1].meta)
            column, _ = resolve(self._relation, plain, self._compiler.text)
            return parts[0].name, column.physical
        column, _ = resolve(self._relation, node, self._compiler.text)
        return None, column.physical

    def type_of(self, node: exp.Expr) -> pl.DataType:
        """Return the type of a measure."""
        if isinstance(node, exp.Paren):
            return self.type_of(node.this)
        if isinstance(node, exp.Column):
            return self._relation.schema[self._column(node)[1]]
        if isinstance(node, exp.Anonymous) and node.name.upper() == "COUNT":
            return pl.Int64()
        if isinstance(node, exp.Anonymous):
            kind = self.type_of(node.expressions[0])
            if node.name.upper() == "SUM" and kind.is_integer():
                return pl.Int64()
            if node.name.upper() == "AVG":
                return pl.Int64() if kind.is_integer() else pl.Float64()
            return kind
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg):
            return self.type_of(node.this)
        if isinstance(node, exp.Literal):
            return pl.String() if node.is_string else pl.Float64() if "." in node.name else pl.Int64()
        return pl.Boolean()


__all__ = ["matched"]
