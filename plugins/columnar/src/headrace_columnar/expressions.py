"""SQL expressions over columns: text (or a polars expression) in, a typed, checked polars expression out.

Called by the operators ``where``, ``select``, ``with_columns`` and ``script`` when a job is built, and by the rule
engine. sqlglot is imported when the first text is compiled, not with this module.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.evaluation import Check, FunctionCall, RowFailure, UserFunction, evaluate, evaluate_all
from headrace_columnar.polars_check import check_polars
from headrace_columnar.sql_types import MonthInterval, shown

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = [
    "CompiledExpression",
    "RowFailure",
    "UserFunction",
    "compile_expression",
    "compile_node",
    "compile_predicate",
    "conjuncts",
    "evaluate",
    "evaluate_all",
    "output_name",
]


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """An expression ready to run.

    ``staged`` and ``expression`` are the same unless user functions are called: then ``staged`` reads their results
    from columns that ``evaluate`` makes, while ``expression`` contains the calls itself and raises their errors. A
    constant expression gives one row in a ``select`` without other columns, as in polars; ``evaluate`` gives one per row.
    """

    expression: pl.Expr
    data_type: pl.DataType
    #: Columns of the input that are read.
    columns: frozenset[str]
    text: str
    #: False if the same row can give another result at another time (``now()``, ``rand()``, some user functions).
    deterministic: bool = True
    staged: pl.Expr = None  # type: ignore[assignment]
    checks: tuple[Check, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    is_predicate: bool = False
    #: Of the columns that are structs and not read whole: the fields that are.
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def can_fail(self) -> bool:
        """Whether a row can fail: if not, ``expression`` may be used as it is, without ``evaluate``."""
        return bool(self.checks or self.calls)


def compile_expression(
    source: str | pl.Expr, schema: Schema, functions: Mapping[str, UserFunction] | None = None
) -> CompiledExpression:
    """Compile a SQL expression (an ``AS name`` behind it is ignored) or check a polars expression.

    ``functions`` are user functions by name, usable in SQL text in any case. Raises ExpressionError, which knows the
    place in the text, for what cannot work with columns of these names and types.
    """
    if isinstance(source, pl.Expr):
        data_type, columns = check_polars(source, schema)
        return CompiledExpression(source, data_type, columns, str(source), staged=source)
    from headrace_columnar import dialect

    _check_is_text(source)
    try:
        return compile_node(_without_alias(dialect.parsed(source)), source, schema, functions)
    except ExpressionError:
        # A tree that a front end has given knows no places in this text: the message is made of one that does.
        return compile_node(_without_alias(dialect.parse(source)), source, schema, functions)


def compile_predicate(
    source: str | pl.Expr, schema: Schema, functions: Mapping[str, UserFunction] | None = None
) -> CompiledExpression:
    """Compile a condition: as ``compile_expression``, but it must be boolean, and is false where SQL says NULL."""
    compiled = compile_expression(source, schema, functions)
    if isinstance(compiled.data_type, pl.Null):
        never = pl.lit(False)
        return CompiledExpression(never, pl.Boolean(), compiled.columns, compiled.text, staged=never, is_predicate=True)
    if not isinstance(compiled.data_type, pl.Boolean):
        text = source if isinstance(source, str) else None
        raise ExpressionError(
            f"the condition must be boolean, not {shown(compiled.data_type)}",
            text=text,
            position=0 if text is not None else None,
            length=len(compiled.text),
        )
    return replace(
        compiled,
        expression=compiled.expression.fill_null(False),
        staged=compiled.staged.fill_null(False),
        is_predicate=True,
    )


def compile_node(
    node: exp.Expr, text: str, schema: Schema, functions: Mapping[str, UserFunction] | None = None
) -> CompiledExpression:
    """Compile a syntax tree that somebody else parsed (a SQL front end) from ``text``."""
    from headrace_columnar.compiler import Compiler

    compiler = Compiler(text, schema, functions if functions is not None else {})
    try:
        typed = compiler.compile(node)
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply", text=text, position=0) from None
    if isinstance(typed.data_type, MonthInterval):
        raise compiler.error(node, "an interval of months can only be added to a date or timestamp")
    staged = typed.expression
    compiled = CompiledExpression(
        expression=staged,
        data_type=typed.data_type,
        columns=frozenset(compiler.columns),
        text=text,
        deterministic=compiler.deterministic,
        staged=staged,
        checks=tuple(compiler.checks),
        calls=tuple(compiler.calls),
        fields={name: frozenset(read) for name, read in compiler.fields.items() if read is not None},
    )
    return replace(compiled, expression=_self_contained(compiled)) if compiler.calls else compiled


def _self_contained(compiled: CompiledExpression) -> pl.Expr:
    """Return one polars expression that calls the user functions itself and raises their errors."""
    names = sorted(compiled.columns)
    rows = pl.struct(names) if names else pl.int_range(pl.len()).alias("__hr_rows")
    return rows.map_batches(
        functools.partial(_evaluate_rows, compiled), return_dtype=compiled.data_type, is_elementwise=bool(names)
    )


def _evaluate_rows(compiled: CompiledExpression, rows: pl.Series) -> pl.Series:
    frame = rows.struct.unnest() if isinstance(rows.dtype, pl.Struct) else rows.to_frame()
    result, failures = evaluate(compiled, frame)
    if failures:
        raise failures[0][1]
    return result


def _check_is_text(source: Any) -> None:
    if not isinstance(source, str):
        raise ExpressionError(
            f"an expression must be SQL text or a polars expression, not {type(source).__name__}: {source!r}",
            hint='write a constant as text: "\'x\'" or "1"',
        )


def _without_alias(node: Any) -> Any:
    from sqlglot import exp

    return node.this if isinstance(node, exp.Alias) else node


def output_name(source: str | pl.Expr) -> str:
    """Return the name of the column that an item of ``select`` gives: its alias, or its column or field.

    Raises ExpressionError for an expression that has neither.
    """
    if isinstance(source, pl.Expr):
        return source.meta.output_name()
    from headrace_columnar import dialect
    from sqlglot import exp

    _check_is_text(source)
    node = dialect.parsed(source)
    if isinstance(node, exp.Alias):
        return str(node.alias)
    node = node.unnest()
    if isinstance(node, exp.Column | exp.Identifier):
        return str(node.name)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return str(node.expression.name)
    if isinstance(node, exp.Star):
        problem, hint = (
            "* is not a column",
            'with_columns(name="…") keeps all columns and adds some; drop("…") takes some away',
        )
    else:
        problem, hint = "this column needs a name", 'write name="…" or add AS name'
    raise ExpressionError(problem, text=source, position=0, length=len(source), hint=hint)


def conjuncts(text: str) -> list[str]:
    """Return the parts of a condition that AND joins, each as it is written in the text.

    Raises ExpressionError when the text does not parse.
    """
    from headrace_columnar import dialect

    return dialect.conjunct_texts(text)
