"""Syntax tree to polars expression: columns, literals, logic, CASE, and what every other part builds on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, data_type
from headrace.foundation.errors import ExpressionError, OptionError, did_you_mean
from headrace.interfaces.function_arguments import misfit
from headrace.interfaces.functions import TableFunction
from headrace_columnar import casts, comparisons, dialect, logic, operators, registry
from headrace_columnar.evaluation import Check, FunctionCall, UserFunction
from headrace_columnar.sql_types import NOT_CONSTANT, Typed, column_hint, in_calendar, shown
from sqlglot import exp

_AGGREGATES = frozenset({
    "count", "sum", "avg", "mean", "min", "max", "first", "last", "first_value", "last_value", "any_value", "stddev",
    "variance", "median", "percentile", "collect_list", "collect_set", "array_agg", "string_agg", "group_concat",
    "listagg", "row_number", "rank", "dense_rank", "lag", "lead",
})  # fmt: skip
#: sqlglot's words for types to those of a schema; others are tried as they stand.
_TYPE_WORDS = {
    "TEXT": "string", "VARCHAR": "string", "NVARCHAR": "string", "CHAR": "string", "NCHAR": "string", "NAME": "string",
    "BOOLEAN": "boolean", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int", "BIGINT": "int64",
    "UTINYINT": "int16", "FLOAT": "float", "DOUBLE": "float64", "DATE": "date", "TIME": "time",
    "TIMESTAMP": "timestamp", "TIMESTAMPLTZ": "timestamp", "TIMESTAMPTZ": "timestamp", "DATETIME": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz", "BINARY": "binary", "VARBINARY": "binary", "BLOB": "binary", "JSON": "json",
}  # fmt: skip


class Compiler:
    """Compiles one expression text. Also collects the columns that it reads, and the ways in which its rows can fail."""

    def __init__(
        self, text: str, schema: Schema, functions: Mapping[str, UserFunction], *, column_prefix: str = "__hr_call"
    ) -> None:
        self.text = text
        self.schema = schema
        self.functions = registry.UserFunctions(functions)
        self.columns: set[str] = set()
        #: What is read of each column: some fields of a struct, or None for all of it.
        self.fields: dict[str, set[str] | None] = {}
        self.checks: list[Check] = []
        self.calls: list[FunctionCall] = []
        self.deterministic = True
        self._column_prefix = column_prefix
        self._guards: list[pl.Expr] = []
        #: Grows with every column read and function called: unchanged after a part means that the part is constant.
        self._reads = 0

    # What parts of an expression need to say.

    def error(self, node: Any, message: str, *, hint: str | None = None) -> ExpressionError:
        """Return an error that underlines the part of the text a node came from."""
        position, length = dialect.span(self.text, node) if node is not None else (0, len(self.text))
        return ExpressionError(message, text=self.text, position=position, length=length, hint=hint)

    def name_error(self, node: Any, message: str, *, hint: str | None = None) -> ExpressionError:
        """Return an error that underlines the name of a function call."""
        position, length = dialect.name_span(self.text, node)
        return ExpressionError(message, text=self.text, position=position, length=length, hint=hint)

    @contextmanager
    def guarded(self, condition: pl.Expr) -> Iterator[None]:
        """Within, rows matter only where the condition is true: elsewhere they cannot fail, nor call user functions."""
        self._guards.append(condition)
        try:
            yield
        finally:
            self._guards.pop()

    def guard(self) -> pl.Expr | None:
        """Return the conditions of all enclosing ``guarded`` blocks as one."""
        if not self._guards:
            return None
        return pl.all_horizontal(self._guards).fill_null(False)

    def fail_when(self, condition: pl.Expr, message: str, value: pl.Expr | None = None) -> None:
        """Let rows fail for which the condition is true. ``{value}`` in the message is replaced by the wrong value."""
        guard = self.guard()
        self.checks.append(Check(condition if guard is None else guard & condition, message, value))

    def add_call(self, function: UserFunction, arguments: list[pl.Expr]) -> pl.Expr:
        """Let a function be called once per row before the expression; return the column that holds its result."""
        guard = self.guard()
        for call in self.calls:
            same = call.function is function and len(call.arguments) == len(arguments) and function.deterministic
            if same and guard is None and call.guard is None and _all_equal(call.arguments, arguments):
                self._reads += 1
                return pl.col(call.column)
        self._reads += 1
        column = f"{self._column_prefix}_{len(self.calls)}"
        self.calls.append(FunctionCall(column, function, tuple(arguments), guard))
        self.deterministic = self.deterministic and function.deterministic
        return pl.col(column)

    # From nodes to typed expressions.

    def compile(self, node: exp.Expr) -> Typed:
        """Compile a node with all below it. Raises ExpressionError."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.error(node, f"{_called(node)} is not supported in expressions")
        before = self._reads
        typed = handler(self, node)
        if typed.is_constant:
            # Whatever was read (a branch that no row takes, …), the result does not depend on it.
            self._reads = before
        return typed if typed.is_constant or self._reads != before else _folded(typed, node)

    def boolean(self, node: exp.Expr, what: str) -> Typed:
        """Compile a node that must be boolean; ``what`` names its role in the error message."""
        typed = self.compile(node)
        if typed.is_null:
            return Typed(pl.lit(None, dtype=pl.Boolean), pl.Boolean(), node, None)
        if not isinstance(typed.data_type, pl.Boolean):
            raise self.error(node, f"{what} must be boolean, not {shown(typed.data_type)}")
        return typed

    def check_only(self, node: Any, boolean_as: str | None = None) -> Typed:
        """Compile a part that no row evaluates: for its errors and its type."""
        checks, calls = len(self.checks), len(self.calls)
        if isinstance(node, Typed):
            return node
        typed = self.boolean(node, boolean_as) if boolean_as else self.compile(node)
        del self.checks[checks:]
        del self.calls[calls:]
        return Typed(pl.lit(None, dtype=typed.data_type), typed.data_type, node, None)

    def column(self, node: Any, name: str, field: str | None = None) -> Typed:
        """Return a column; ``field``: only this field of it is going to be read."""
        if name not in self.schema:
            raise self.error(node, f"unknown column {name!r}", hint=column_hint(name, self.schema))
        self.columns.add(name)
        read = self.fields.setdefault(name, set())
        if field is None:
            self.fields[name] = None
        elif read is not None:
            read.add(field)
        self._reads += 1
        return Typed(pl.col(name), self.schema[name], node)

    def type_of(self, node: exp.DataType, place: Any) -> pl.DataType:
        """Return the polars type for the type named in a CAST."""
        try:
            return data_type(self._type_text(node))
        except OptionError as error:
            raise self.error(place, str(error.message), hint=error.hint) from None

    def _type_text(self, node: Any) -> str:
        if isinstance(node, exp.ColumnDef):
            return f"{node.name}: {self._type_text(node.args['kind'])}"
        kind = node.this
        word = getattr(kind, "value", str(kind))
        inner = node.expressions
        if word in ("ARRAY", "LIST") and inner:
            return f"array<{self._type_text(inner[0])}>"
        if word == "STRUCT":
            return f"struct<{', '.join(map(self._type_text, inner))}>"
        if word in ("DECIMAL", "NUMERIC") and inner:
            return f"decimal({', '.join(parameter.this.name for parameter in inner)})"
        if word == "DECIMAL":
            return "decimal(10, 0)"
        if word == "USER-DEFINED":
            return str(node.args.get("kind"))
        return _TYPE_WORDS.get(word, word.lower())


def _folded(typed: Typed, node: Any) -> Typed:
    """Compute a constant part now. It also becomes a scalar, which polars takes beside columns of any height."""
    kind = typed.data_type
    if isinstance(kind, pl.Null):
        return Typed(pl.lit(None), kind, node, None)
    if kind.is_nested():
        return Typed(typed.expression.first(), kind, node)
    named = typed.expression.alias("value")
    value = pl.select(named).item()
    if isinstance(value, float) and value == 0:  # the optimizer of polars takes 0.0 and -0.0 for one constant
        value = pl.LazyFrame().select(named).collect(optimizations=pl.QueryOptFlags.none()).item()
    return Typed(pl.lit(value, dtype=kind), kind, node, value)


def _all_equal(left: tuple[pl.Expr, ...], right: list[pl.Expr]) -> bool:
    return all(mine.meta.eq(other) for mine, other in zip(left, right, strict=True))


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return "a subquery"
    if isinstance(node, exp.Window):
        return "OVER"
    if isinstance(node, exp.Star):
        return "*"
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return "a parameter"
    return type(node).__name__.upper()


# Leaves.


def _column(compiler: Compiler, node: exp.Column) -> Typed:
    parts = [part for part in node.parts]
    if any(isinstance(part, exp.Star) for part in parts):
        raise compiler.error(node, "* is not supported in expressions")
    typed = compiler.column(parts[0], parts[0].name, parts[1].name if len(parts) > 1 else None)
    for part in parts[1:]:
        typed = _field(compiler, typed, part)
    return typed


def _identifier(compiler: Compiler, node: exp.Identifier) -> Typed:
    return compiler.column(node, node.name)


def _field(compiler: Compiler, typed: Typed, part: Any) -> Typed:
    if not isinstance(typed.data_type, pl.Struct):
        raise compiler.error(part, f"{shown(typed.data_type)} has no fields", hint="only a struct has fields")
    for field in typed.data_type.fields:
        if field.name == part.name:
            inner = field.dtype if isinstance(field.dtype, pl.DataType) else field.dtype()
            return Typed(typed.expression.struct.field(field.name), inner, part)
    names = [field.name for field in typed.data_type.fields]
    raise compiler.error(part, f"unknown field {part.name!r}", hint=did_you_mean(part.name, names, known="fields"))


def _dot(compiler: Compiler, node: exp.Dot) -> Typed:
    if not isinstance(node.expression, exp.Identifier):
        raise compiler.error(node, "after a point must come the name of a field")
    return _field(compiler, compiler.compile(node.this), node.expression)


def _bracket(compiler: Compiler, node: exp.Bracket) -> Typed:
    named = (
        node.this.name.lower() if isinstance(node.this, exp.Column) and not node.this.this.args.get("quoted") else ""
    )
    if named == "array" and node.this.name not in compiler.schema:
        return call_function(compiler, node, "array", node.expressions)
    typed = compiler.compile(node.this)
    if len(node.expressions) != 1:
        raise compiler.error(node, "expected one index in the brackets")
    place = node.expressions[0]
    if isinstance(typed.data_type, pl.Struct) and isinstance(place, exp.Literal) and place.is_string:
        return _field(compiler, typed, place)
    if not isinstance(typed.data_type, pl.List):
        raise compiler.error(node, f"{shown(typed.data_type)} has no elements", hint="only an array has elements")
    index = compiler.compile(place)
    inner = typed.data_type.inner
    if not index.data_type.is_integer():
        if isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == ["key", "value"]:
            return call_function(compiler, node, "map_value", [node.this, place])
        raise compiler.error(place, f"the index must be a whole number, not {shown(index.data_type)}")
    element = operators.element_at(typed.expression, index.expression)
    return Typed(element, inner if isinstance(inner, pl.DataType) else inner(), node)


def _literal(compiler: Compiler, node: exp.Literal) -> Typed:
    if node.is_string:
        return Typed(pl.lit(node.this, dtype=pl.String), pl.String(), node, node.this)
    return number(compiler, node, node.this)


def number(compiler: Compiler, node: Any, text: str) -> Typed:
    """Compile a number: int64, exact decimal where it has a point, float64 where it has an exponent."""
    if "e" in text.lower():
        try:
            value = float(text)
        except ValueError:
            raise compiler.error(
                node, f"{text} is not a number", hint="digits follow the e of an exponent: 1.5e3"
            ) from None
        return Typed(pl.lit(value, dtype=pl.Float64), pl.Float64(), node, value)
    if "." not in text:
        whole = int(text)
        if -(2**63) <= whole < 2**63:
            return Typed(pl.lit(whole, dtype=pl.Int64), pl.Int64(), node, whole)
        text += "."
    digits_before, _, digits_behind = text.lstrip("-").partition(".")
    precision = max(1, len(digits_before.lstrip("0")) + len(digits_behind))
    if precision > 38:
        raise compiler.error(node, "this number has more than 38 digits", hint="write it with an exponent: 1.5e40")
    exact = Decimal(text)
    kind = pl.Decimal(precision, len(digits_behind))
    return Typed(pl.lit(exact, dtype=kind), kind, node, exact)


def _null(compiler: Compiler, node: exp.Null) -> Typed:
    return Typed(pl.lit(None), pl.Null(), node, None)


def _boolean_literal(compiler: Compiler, node: exp.Boolean) -> Typed:
    value = bool(node.this)
    return Typed(pl.lit(value), pl.Boolean(), node, value)


def _hex(compiler: Compiler, node: exp.HexString) -> Typed:
    digits = str(node.this)
    try:
        value = bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
    except ValueError:
        raise compiler.error(node, "these are not hexadecimal digits") from None
    return Typed(pl.lit(value), pl.Binary(), node, value)


def _paren(compiler: Compiler, node: exp.Paren) -> Typed:
    return compiler.compile(node.this)


# Calls.


def _cast(compiler: Compiler, node: exp.Cast) -> Typed:
    operand = compiler.compile(node.this)
    target = compiler.type_of(node.args["to"], node)
    if node.args.get("format") is not None or node.args.get("default") is not None:
        raise compiler.error(node, "CAST does not support FORMAT or DEFAULT", hint="use to_timestamp(text, format)")
    strict = not isinstance(node, exp.TryCast)
    if operand.is_constant and isinstance(operand.constant, str):
        return _constant_cast(compiler, node, operand, target, strict=strict)
    length = _text_length(node.args["to"])
    made = casts.cast(compiler, node, operand, target, strict=strict)
    if length is not None:
        return Typed(made.expression.str.slice(0, length), made.data_type, node)
    return made


def _text_length(node: exp.DataType) -> int | None:
    """Return n of VARCHAR(n): longer text is cut, as in Flink."""
    is_text_type = getattr(node.this, "value", "") in ("VARCHAR", "NVARCHAR", "CHAR", "NCHAR", "TEXT")
    return int(node.expressions[0].this.name) if is_text_type and node.expressions else None


def _constant_cast(compiler: Compiler, node: exp.Cast, operand: Typed, target: pl.DataType, *, strict: bool) -> Typed:
    """Cast a literal now (DATE '2024-05-06', …), so that a wrong one is found when the job is built."""
    converted = casts.convert(operand, target)
    if converted is None:
        raise compiler.error(node, f"cannot cast string to {shown(target)}")
    length = _text_length(node.args["to"])
    if length is not None:
        converted = converted.str.slice(0, length)
    value = pl.select(converted).item() if not target.is_nested() else NOT_CONSTANT
    if value is None and strict:
        raise compiler.error(operand.node, f"{operand.constant!r} cannot be read as {shown(target)}")
    if isinstance(value, NOT_CONSTANT.__class__):
        return Typed(converted, target, node)
    return Typed(pl.lit(value, dtype=target), target, node, value)


def _interval(compiler: Compiler, node: exp.Interval) -> Typed:
    from headrace_columnar.intervals import interval

    return interval(compiler, node)


def _call(compiler: Compiler, node: exp.Anonymous) -> Typed:
    name = node.this if isinstance(node.this, str) else node.this.name
    user_function = compiler.functions.find(name)
    if user_function is not None:
        return _user_call(compiler, node, user_function)
    return call_function(compiler, node, name, node.expressions)


def call_function(compiler: Compiler, node: Any, name: str, arguments: list[Any]) -> Typed:
    """Compile a call of a function of the table; arguments are nodes or already compiled."""
    declared = registry.find(name)
    if declared is None:
        raise _unknown_function(compiler, node, name)
    special = logic.LAZY_CALLS.get(declared.name)
    if special is not None and declared.signatures[0].takes(len(arguments)):
        return special(compiler, node, arguments)
    compiled = []
    for index, argument in enumerate(arguments):
        compiled.append(_argument(compiler, declared, index, argument))
    compiler.deterministic = compiler.deterministic and declared.deterministic
    return registry.bind(compiler, declared, node, compiled)


def _argument(compiler: Compiler, declared: registry.Function, index: int, argument: Any) -> Typed:
    """Compile an argument. A unit of time may be written as a bare word: TIMESTAMPDIFF(DAY, a, b)."""
    if isinstance(argument, Typed):
        return argument
    parameter = declared.signatures[0].parameter(index) if declared.signatures[0].parameters else None
    bare_word = isinstance(argument, exp.Var) or (isinstance(argument, exp.Column) and len(argument.parts) == 1)
    if parameter is not None and parameter.name == "unit" and bare_word:
        return Typed(pl.lit(argument.name), pl.String(), argument, argument.name)
    if isinstance(argument, exp.Distinct | exp.Lambda | exp.Kwarg):
        raise compiler.error(argument, f"{declared.name} does not take {_called(argument)}")
    return compiler.compile(argument)


def _unknown_function(compiler: Compiler, node: Any, name: str) -> ExpressionError:
    if name.lower() in _AGGREGATES:
        return compiler.name_error(
            node,
            f"{name} is an aggregate or window function: its result depends on other rows",
            hint="use it in agg(…) after key_by() or window()",
        )
    known = [*registry.names(), *compiler.functions.listed, *sorted(_AGGREGATES)]
    hint = did_you_mean(name, known, known="functions")
    return compiler.name_error(node, f"unknown function {name!r}", hint=hint if "did you mean" in hint else None)


def _user_call(compiler: Compiler, node: exp.Anonymous, function: UserFunction) -> Typed:
    if not isinstance(function, UserFunction):
        kind = "a table function" if isinstance(function, TableFunction) else "an aggregate function"
        raise compiler.name_error(node, f"{function.name} is {kind}: only a scalar function can be called here")
    _check_count(compiler, node, function)
    arguments = [compiler.compile(argument) for argument in node.expressions]
    if not function.vectorized:
        _check_types(compiler, node, function, [one.data_type for one in arguments])
    # Python has no times outside of its calendar: the function is given NULL for them.
    column = compiler.add_call(function, [in_calendar(one.expression, one.data_type) for one in arguments])
    return Typed(column, function.return_type, node)


def _check_types(compiler: Compiler, node: exp.Anonymous, function: UserFunction, given: list[pl.DataType]) -> None:
    wrong = misfit(function.function, given)
    if wrong is not None:
        place, annotation = wrong
        raise compiler.error(
            node.expressions[place],
            f"function {function.name!r} expects {annotation} here, but the argument is {shown(given[place])}",
            hint="CAST the argument, or change the annotation of the function",
        )


def _check_count(compiler: Compiler, node: exp.Anonymous, function: UserFunction) -> None:
    try:
        signature = inspect.signature(function.function)
    except (TypeError, ValueError):
        return  # written in C, without a signature that could be looked at
    try:
        signature.bind(*node.expressions)
    except TypeError as error:
        message = f"function {function.name!r} cannot be called so: {error}"
        raise compiler.name_error(node, message, hint=f"its signature is {function.name}{signature}") from None


def _named(name: str, *keys: str) -> Callable[[Compiler, Any], Typed]:
    """Return a handler for a special syntax that means the call of a function."""

    def handle(compiler: Compiler, node: Any) -> Typed:
        arguments = [node.args.get(key) for key in keys]
        while arguments and arguments[-1] is None:
            arguments.pop()
        return call_function(compiler, node, name, arguments)

    return handle


def _trim(compiler: Compiler, node: exp.Trim) -> Typed:
    side = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim")
    what = [node.this] if node.expression is None else [node.this, node.expression]
    return call_function(compiler, node, name, what)


def _concat(compiler: Compiler, node: exp.Concat) -> Typed:
    return call_function(compiler, node, "concat", node.expressions)


def _pipes(compiler: Compiler, node: exp.DPipe) -> Typed:
    return call_function(compiler, node, "concat", [node.left, node.right])


def _array(compiler: Compiler, node: exp.Array) -> Typed:
    return call_function(compiler, node, "array", node.expressions)


def _json_value(compiler: Compiler, node: exp.JSONValue) -> Typed:
    arguments: list[Any] = [node.this, node.args["path"]]
    conditions = node.args.get("on_condition")
    if conditions is not None:
        arguments += [_json_default(compiler, node, conditions.args.get(key)) for key in ("empty", "error")]
    name = "json_value" if conditions is None else "json_value_or"
    made = call_function(compiler, node, name, arguments)
    returning = node.args.get("returning")
    if not returning:
        return made
    return casts.cast(compiler, node, made, compiler.type_of(returning, node), strict=False)


def _json_default(compiler: Compiler, node: Any, condition: Any) -> Any:
    """Return the expression after DEFAULT in ``DEFAULT x ON EMPTY``; NULL if there is none."""
    if condition is None or (isinstance(condition, str) and condition.upper().startswith("NULL")):
        return exp.Null()
    if isinstance(condition, exp.Expr):
        return condition
    raise compiler.error(
        node, f"JSON_VALUE: {condition} is not supported", hint="use NULL or DEFAULT … ON EMPTY / ON ERROR"
    )


def _alias(compiler: Compiler, node: exp.Alias) -> Typed:
    raise compiler.error(node.args["alias"], "AS is allowed only at the end of the whole expression")


_HANDLERS: dict[type[exp.Expr], Callable[[Compiler, Any], Typed]] = {
    exp.Column: _column, exp.Identifier: _identifier, exp.Dot: _dot, exp.Bracket: _bracket, exp.Literal: _literal,
    exp.Null: _null, exp.Boolean: _boolean_literal, exp.HexString: _hex, exp.Paren: _paren,
    exp.Cast: _cast, exp.TryCast: _cast, exp.Interval: _interval, exp.Anonymous: _call,
    exp.Alias: _alias, exp.Array: _array, exp.Concat: _concat, exp.DPipe: _pipes, exp.Trim: _trim,
    exp.Substring: _named("substring", "this", "start", "length"),
    exp.StrPosition: _named("locate", "substr", "this", "position"),
    exp.Overlay: _named("overlay", "this", "expression", "from_", "for_"),
    exp.Extract: _named("extract", "this", "expression"),
    exp.CurrentTimestamp: _named("current_timestamp"), exp.CurrentDate: _named("current_date"),
    exp.JSONValue: _json_value, exp.AtTimeZone: _named("at_time_zone", "this", "zone"),
    **logic.HANDLERS,
    **comparisons.HANDLERS,
    **operators.HANDLERS,
}  # fmt: skip
