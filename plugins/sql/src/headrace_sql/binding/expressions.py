"""Expressions of a query as expressions of headrace-columnar: names resolved, functions under the names they have there.

What comes out is a tree of the dialect ``Headrace`` and, for the DSL's verbs, its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import CompiledExpression, compile_node
from sqlglot import exp

from headrace_sql.binding import functions, json_calls, types, zones
from headrace_sql.binding.constants import folded
from headrace_sql.binding.expression_parts import AGGREGATES, names_columns
from headrace_sql.binding.intervals import interval_length
from headrace_sql.binding.scope import Relation, error_at, resolve
from headrace_sql.binding.trees import call, cast, physical, text_of
from headrace_sql.reading import nodes


class Translator:
    """Translates expressions over one relation. ``replaced`` are parts that are columns already: aggregates, group keys.

    ``replaced`` maps the text of a part (as Flink SQL) to the physical column that holds it.
    """

    def __init__(
        self,
        relation: Relation,
        text: str,
        user_functions: Mapping[str, Any],
        zone: str = "UTC",
        replaced: Mapping[str, str] | None = None,
        *,
        grouped: bool = False,
    ) -> None:
        self.relation = relation
        self.text = text
        self.functions = user_functions
        self.zone = zone
        self.replaced = dict(replaced or {})
        self.grouped = grouped
        self.schema = relation.stream.schema
        #: Called with a subquery in an expression.
        self.subquery: Callable[[exp.Expr], exp.Expr] | None = None

    def error(self, node: Any, message: str, hint: str | None = None) -> ExpressionError:
        return error_at(node, self.text, message, hint)

    def sql(self, node: exp.Expr) -> str:
        """Translate, check, and return the text for a verb of the DSL, with its tree."""
        return text_of(self.checked(node))

    def checked(self, node: exp.Expr) -> exp.Expr:
        """Translate and check."""
        made: exp.Expr = self.translate(node)
        self.compile(made)
        return made

    def compile(self, made: exp.Expr) -> CompiledExpression:
        """Check a translated tree against the columns. Raises ExpressionError with the place in the SQL text."""
        assert self.schema is not None
        return compile_node(made, self.text, self.schema, self.functions)

    def type_of(self, node: exp.Expr) -> pl.DataType:
        """Return the type of an expression that is not translated yet."""
        return self.compile(self.translate(node)).data_type

    def translate(self, node: Any) -> Any:
        if not isinstance(node, exp.Expr):
            return node
        if self.replaced:
            name = self.replaced.get(self.key_of(node))
            if name is not None:
                made = physical(name)
                made.this.meta.update(_positions(node))
                return made
        handler = _HANDLERS.get(type(node))
        return handler(self, node) if handler is not None else self.rebuilt(node)

    def rebuilt(self, node: exp.Expr) -> exp.Expr:
        """Return a node of the same kind whose parts are translated."""
        parts = {
            key: [self.translate(each) for each in value] if isinstance(value, list) else self.translate(value)
            for key, value in node.args.items()
        }
        made = type(node)(**parts)
        made.meta.update(node.meta)
        return made

    def for_cast(self, made: exp.Expr, word: str) -> exp.Expr:
        """Return the operand of a cast: instants become times of the session's zone, and times and texts become instants of it."""
        kind = self.compile(made).data_type
        if zones.is_instant(kind) and (word in ("DATE", "TIME", "TIMESTAMP_NTZ") or word.startswith("VARCHAR")):
            return zones.local(made, self.zone)
        if word == "TIMESTAMP" and isinstance(kind, pl.Datetime | pl.Date | pl.String) and not zones.is_instant(kind):
            return zones.instant(cast(made, "TIMESTAMP_NTZ"), self.zone)
        return made

    def arguments(self, name: str, node: exp.Anonymous) -> list[Any]:
        """Return the translated arguments of a call, constant ones as literals.

        Functions of the parts of a time take those of the session's zone.
        """
        made = [self.folded(self.translate(each)) for each in node.expressions]
        return [self.as_local(each) for each in made] if name in zones.LOCAL_FUNCTIONS else made

    def folded(self, made: Any) -> Any:
        """Return a translated constant expression as a literal, where it is a text or a whole number."""
        is_known = isinstance(made, exp.Binary | exp.Cast | exp.Paren | exp.Anonymous | exp.DPipe | exp.Neg | exp.Case)
        return folded(made, self.compile(made)) if is_known and not names_columns(made) else made

    def as_local(self, made: Any) -> Any:
        """Return an instant as what clocks of the session's zone show; anything else as it is."""
        if self.zone == "UTC" or not isinstance(made, exp.Expr) or not zones.is_instant(self.compile(made).data_type):
            return made
        return zones.local(made, self.zone)

    def key_of(self, node: exp.Expr) -> str:
        """Return a text that is equal for parts with equal meaning: columns are named as in the stream."""
        return part_key(self.relation, node, self.text)


def part_key(relation: Relation, node: exp.Expr, text: str) -> str:
    """Return a text by which equal parts of a query are known, however their columns are written."""

    def canonical(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            try:
                column, fields = resolve(relation, part, text)
            except ExpressionError:
                return part
            whole: exp.Expr = physical(column.physical)
            for each in fields:
                whole = exp.Dot(this=whole, expression=exp.to_identifier(each.name, quoted=True))
            return whole
        if isinstance(part, exp.Anonymous):
            part.set("this", part.name.upper())
        return part

    plain = node.copy()
    while isinstance(plain, exp.Paren):
        plain = plain.this
    return plain.transform(canonical).sql(dialect="flink", comments=False)


def _positions(node: exp.Expr) -> dict[str, Any]:
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
    return {"start": min(starts), "end": max(ends)} if starts else {}


def _column(self: Translator, node: exp.Column) -> exp.Expr:
    if isinstance(node.this, exp.Star):
        raise self.error(node, "* is not allowed here")
    if len(node.parts) == 1 and not node.this.args.get("quoted") and not self.relation.find(node.name):
        bare = functions.BARE_CALLS.get(node.name.upper())
        if bare is not None:
            made = bare(self.as_local)
            made.meta.update(node.this.meta)
            return made
    column, fields = resolve(self.relation, node, self.text)
    if self.grouped:
        raise self.error(
            node, f"column {column.name!r} is neither grouped by nor in an aggregate",
            f"add it to GROUP BY, or write FIRST_VALUE({column.name})",
        )  # fmt: skip
    if column.time == "processing":
        return cast(call("current_timestamp"), "TIMESTAMP")
    if column.window is not None and column.physical not in (self.schema or {}):
        raise self.error(
            node,
            f"{column.name!r} is known only in a query that groups by the window",
            "GROUP BY window_start, window_end",
        )
    whole: exp.Expr = physical(column.physical)
    whole.this.meta.update(_positions(node))
    for each in fields:
        field = exp.to_identifier(each.name, quoted=True)
        field.meta.update(each.meta)
        whole = exp.Dot(this=whole, expression=field)
    return whole


def _identifier(self: Translator, node: exp.Identifier) -> exp.Expr:
    made = exp.to_identifier(node.name, quoted=True)
    made.meta.update(node.meta)
    return made


def _dot(self: Translator, node: exp.Dot) -> exp.Expr:
    return exp.Dot(this=self.translate(node.this), expression=_identifier(self, node.expression))


def _interval(self: Translator, node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Interval) and not isinstance(node.this, exp.Literal):
        return self.rebuilt(node)
    months, micros = interval_length(node, self.text)
    unit, amount = ("MONTH", months) if months else ("MICROSECOND", micros)
    made = exp.Interval(this=exp.Literal.string(str(amount)), unit=exp.var(unit))
    made.this.meta.update(_positions(node))
    return made


_OF_INTERVALS = (exp.Interval, exp.Literal, exp.Binary, exp.Paren, exp.Neg, exp.Cast, exp.DataType, exp.Var)


def _multiplied(self: Translator, node: exp.Binary) -> exp.Expr:
    """A multiple of a constant interval is an interval: also of months, which have no fixed length."""
    is_interval = node.find(exp.Interval) is not None and not names_columns(node)
    return (
        _interval(self, node)
        if is_interval and all(isinstance(each, _OF_INTERVALS) for each in node.walk())
        else self.rebuilt(node)
    )


def _cast(self: Translator, node: exp.Cast) -> exp.Expr:
    safe = isinstance(node, exp.TryCast)
    operand, target = node.this, node.args["to"]
    word = types.cast_word(target, self.text)
    inner = self.translate(operand)
    if self.zone != "UTC":
        inner = self.for_cast(inner, word)
    if word.startswith("VARCHAR"):
        shown = _shown_parts(self, inner)
        if shown is not None:
            return shown
        inner = _shown_as_flink(self, operand, inner)
    made = cast(inner, word, safe=safe)
    made.meta.update(node.meta)
    digits = int(target.expressions[0].name) if target.expressions and word == "TIMESTAMP_NTZ" else None
    if digits == 0:
        return call("date_trunc", exp.Literal.string("second"), made)
    if digits == 3 and isinstance(operand, exp.Literal) is False:
        return call("date_trunc", exp.Literal.string("millisecond"), made)
    return made


def _shown_parts(self: Translator, made: exp.Expr) -> exp.Expr | None:
    """Return a row as Flink shows it, ``(1, NULL, (a, b))``, or an array of plain values, ``[1, NULL]``; None for other values."""
    kind: Any = self.compile(made).data_type
    null = exp.Literal.string("NULL")
    if isinstance(kind, pl.Struct):
        texts: list[exp.Expr] = []
        for each in kind.fields:
            part = exp.Dot(this=made.copy(), expression=exp.to_identifier(each.name, quoted=True))
            shown = _shown_parts(self, part)
            texts += [
                exp.Literal.string(", "),
                call("coalesce", cast(part, "VARCHAR") if shown is None else shown, null.copy()),
            ]
        whole = call("concat", exp.Literal.string("("), *texts[1:], exp.Literal.string(")"))
    elif isinstance(kind, pl.List) and not isinstance(kind.inner, pl.Struct | pl.List):
        joined = call("array_join", made.copy(), exp.Literal.string(", "), null)
        whole = call("concat", exp.Literal.string("["), joined, exp.Literal.string("]"))
    else:
        return None
    unknown = exp.Is(this=made.copy(), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=unknown, true=cast(exp.Null(), "VARCHAR"))], default=whole)


def _shown_as_flink(self: Translator, operand: Any, made: exp.Expr) -> exp.Expr:
    """Return text as Flink shows values: TRUE and FALSE in capitals, times with all digits of their precision."""
    kind = self.compile(made).data_type
    if isinstance(kind, pl.Boolean):
        return call("upper", cast(made, "VARCHAR"))
    if isinstance(kind, pl.Datetime):
        digits = functions.precision_of(operand)
        layout = "yyyy-MM-dd HH:mm:ss" + ("." + "S" * digits if digits else "")
        return call("date_format", made, exp.Literal.string(layout))
    return made


def _call(self: Translator, node: exp.Anonymous) -> exp.Expr:
    name = node.name.upper()
    if name.lower() in self.functions:
        return self.rebuilt(node)
    if name in AGGREGATES:
        raise self.error(
            node, f"{name} is an aggregate function, which is not allowed here", "aggregate in SELECT or HAVING"
        )
    if name in ("TIMESTAMPADD", "TIMESTAMPDIFF") and len(node.expressions) == 3:
        unit = exp.Literal.string(node.expressions[0].name.lower().removeprefix("sql_tsi_"))
        return call(name.lower(), unit, *(self.translate(each) for each in node.expressions[1:]))
    if name in functions.BARE_CALLS and not node.expressions:
        return functions.BARE_CALLS[name](self.as_local)
    builder = functions.BUILDERS.get(name)
    if builder is not None:
        arguments = self.arguments(name, node)
        made = builder(self, node, arguments)
        made.meta.update({**node.meta, **made.meta})
        return made
    made = self.rebuilt(node)
    if self.zone != "UTC":
        made.set("expressions", self.arguments(name, node))
    made.set("this", functions.RENAMED.get(name, name.lower()))
    return made


def _extract(self: Translator, node: exp.Extract) -> exp.Expr:
    made = self.rebuilt(node)
    made.set("expression", self.as_local(made.expression))
    return made


def _compared(self: Translator, node: exp.Binary) -> exp.Expr:
    """Compare instants with times and texts of the session's zone."""
    made = self.rebuilt(node)
    if self.zone == "UTC":
        return made
    kinds = [self.compile(made.args[key]).data_type for key in ("this", "expression")]
    for key, kind, other in (("this", kinds[0], kinds[1]), ("expression", kinds[1], kinds[0])):
        if zones.is_instant(other) and isinstance(kind, pl.Datetime | pl.Date | pl.String):
            made.set(key, self.for_cast(made.args[key], "TIMESTAMP"))
    return made


def _floor(self: Translator, node: exp.Expr) -> exp.Expr:
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    unit = node.args.get("to")
    inner = self.translate(node.this)
    if unit is None:
        return call(name, inner)
    shown = self.as_local(inner)
    if shown is not inner:
        return zones.instant(_rounded(name, unit, shown), self.zone)
    return _rounded(name, unit, inner)


def _rounded(name: str, unit: exp.Expr, inner: exp.Expr) -> exp.Expr:
    """FLOOR and CEIL of a time to a unit."""
    word = exp.Literal.string(unit.name.lower())
    floor = call("date_trunc", word, inner)
    if name == "floor":
        return floor
    step = exp.Interval(this=exp.Literal.string("1"), unit=exp.var(unit.name.upper()))
    later = call("date_trunc", word.copy(), exp.Add(this=inner.copy(), expression=step))
    return exp.Case(ifs=[exp.If(this=exp.EQ(this=floor, expression=inner.copy()), true=inner.copy())], default=later)


def _is(self: Translator, node: exp.Is) -> exp.Expr:
    if isinstance(node.expression, exp.JSON):
        kind = node.expression.name.upper() if node.expression.args.get("this") else "VALUE"
        return functions.is_json(self.translate(node.this), str(kind))
    if isinstance(node.expression, exp.Column) and node.expression.name.upper() == "UNKNOWN":
        return exp.Is(this=self.translate(node.this), expression=exp.Null())
    return self.rebuilt(node)


def _subquery(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.subquery is None:
        raise self.error(node, "a subquery is not allowed here", "use a JOIN, or IN / EXISTS in WHERE")
    return self.subquery(node)


def _window(self: Translator, node: exp.Window) -> exp.Expr:
    raise self.error(
        node,
        "OVER is allowed only in SELECT",
        "put it into a derived table: SELECT … FROM (SELECT …, f() OVER (…) AS x FROM t)",
    )


def _position(self: Translator, node: exp.StrPosition) -> exp.Expr:
    start = [self.translate(node.args["position"])] if node.args.get("position") is not None else []
    return call("locate", self.translate(node.args["substr"]), self.translate(node.this), *start)


def _json_value(self: Translator, node: exp.JSONValue) -> exp.Expr:
    return functions.json_value(self, node)


def _current_date(self: Translator, node: exp.Expr) -> exp.Expr:
    return functions.BARE_CALLS["CURRENT_DATE"](self.as_local)


def _in(self: Translator, node: exp.In) -> exp.Expr:
    """``(a, b) IN ((1, 2), (3, 4))`` is ``a = 1 AND b = 2 OR a = 3 AND b = 4``.

    In ``f IN (0.1, 0.2)`` the decimals are taken as FLOAT where f is one, as in Flink; in ``f = 0.1`` both are DOUBLE.
    """
    rows = node.expressions
    if not isinstance(node.this, exp.Tuple) or not rows or not all(isinstance(each, exp.Tuple) for each in rows):
        made = self.rebuilt(node)
        if rows and isinstance(self.compile(made.this).data_type, pl.Float32):
            listed = [
                cast(each, "FLOAT32") if isinstance(self.compile(each).data_type, pl.Decimal) else each
                for each in made.expressions
            ]
            made.set("expressions", listed)
        return made
    mine = node.this.expressions
    if any(len(each.expressions) != len(mine) for each in rows):
        raise self.error(node, f"not all of these rows have {len(mine)} values")
    equal = [
        exp.and_(*(exp.EQ(this=a.copy(), expression=b.copy()) for a, b in zip(mine, each.expressions, strict=True)))
        for each in rows
    ]
    whole: exp.Expr = self.translate(exp.Paren(this=exp.or_(*equal)))
    return whole


def _similar(self: Translator, node: exp.SimilarTo) -> exp.Expr:
    """In Flink a dot of a SIMILAR TO pattern is any character, as ``_`` is: outside of ``[…]``."""
    made = self.rebuilt(node)
    pattern = self.folded(made.args["expression"])
    if isinstance(pattern, exp.Literal) and not isinstance(node.parent, exp.Escape):
        parts = re.split(r"(\[[^\]]*\])", pattern.name)
        made.set(
            "expression", exp.Literal.string("".join(p if p.startswith("[") else p.replace(".", "_") for p in parts))
        )
    return made


def _overlaps(self: Translator, node: exp.Overlaps) -> exp.Expr:
    """``(a, b) OVERLAPS (c, d)``: b and d are times, or intervals behind a and c. Bounds belong to the periods, in either order."""
    periods = []
    for key in ("this", "expression"):
        period = node.args[key]
        if not isinstance(period, exp.Tuple) or len(period.expressions) != 2:
            raise self.error(
                node, "OVERLAPS needs a period on both sides", "(start, end) OVERLAPS (start, INTERVAL '1' HOUR)"
            )
        start, end = (self.translate(each) for each in period.expressions)
        is_length = isinstance(period.expressions[1].unnest(), exp.Interval)
        if is_length or isinstance(self.compile(end).data_type, pl.Duration):
            end = exp.Paren(this=exp.Add(this=start.copy(), expression=end))
        periods.append((call("least", start, end), call("greatest", start.copy(), end.copy())))
    (one, one_end), (other, other_end) = periods
    reaches = exp.GTE(this=one_end, expression=other), exp.GTE(this=other_end, expression=one)
    return exp.Paren(this=exp.And(this=reaches[0], expression=reaches[1]))


_HANDLERS: dict[type, Callable[[Translator, Any], exp.Expr]] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared), exp.Extract: _extract,
    exp.Column: _column, exp.Identifier: _identifier, exp.Dot: _dot, exp.Interval: _interval, exp.Cast: _cast, exp.TryCast: _cast,
    exp.Anonymous: _call, exp.Floor: _floor, exp.Ceil: _floor, exp.Is: _is, exp.Subquery: _subquery, exp.Select: _subquery,
    exp.Exists: _subquery, exp.Window: _window, exp.JSONValue: _json_value, exp.StrPosition: _position, exp.Bracket: functions.bracket,
    exp.Mul: _multiplied, exp.Div: _multiplied,
    exp.CurrentDate: _current_date, exp.SimilarTo: _similar, exp.Overlaps: _overlaps, nodes.JsonCall: json_calls.json_call,
    exp.In: _in, exp.CurrentTimestamp: lambda self, node: call("current_timestamp"),
}  # fmt: skip
