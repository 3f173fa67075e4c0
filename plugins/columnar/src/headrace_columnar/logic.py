"""AND, OR, NOT, CASE, IF and COALESCE: three-valued logic, and which parts of an expression a row evaluates.

Constant conditions are decided here rather than by polars, whose optimizer may leave a literal where a column of the
batch's height is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar import comparisons
from headrace_columnar.sql_types import NOT_CONSTANT, Typed, common_type, shown, widen
from sqlglot import exp

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_Condition = Callable[["Compiler", Any], Typed]


def _and(compiler: Compiler, node: exp.And) -> Typed:
    return _joined(compiler, node, "AND", False)


def _or(compiler: Compiler, node: exp.Or) -> Typed:
    return _joined(compiler, node, "OR", True)


def _joined(compiler: Compiler, node: exp.Binary, word: str, deciding: bool) -> Typed:
    """AND and OR: an operand that is ``deciding`` (false for AND, true for OR) decides alone, even beside NULL."""
    role = f"an operand of {word}"
    found: list[pl.Expr] = []
    decided = False
    with ExitStack() as earlier:
        for operand in _operands(node):
            if decided:
                compiler.check_only(operand, role)
                continue
            typed = compiler.boolean(operand, role)
            decided = typed.is_constant and typed.constant is deciding
            found.append(typed.expression)
            undecided = typed.expression.fill_null(True) if word == "AND" else ~typed.expression.fill_null(False)
            earlier.enter_context(compiler.guarded(undecided))
    if decided:
        return constant_boolean(node, deciding)
    if len(found) == 2:
        return Typed(found[0] & found[1] if word == "AND" else found[0] | found[1], pl.Boolean(), node)
    return Typed(pl.all_horizontal(found) if word == "AND" else pl.any_horizontal(found), pl.Boolean(), node)


def _operands(node: exp.Binary) -> list[exp.Expr]:
    """Return the operands of a chain ``a AND b AND c …`` in order, however long it is."""
    operands: list[exp.Expr] = []
    rest: exp.Expr = node
    while type(rest) is type(node):
        operands.append(rest.right)
        rest = rest.left
    return [rest, *reversed(operands)]


def constant_boolean(node: Any, value: bool | None) -> Typed:
    """Return TRUE, FALSE or NULL."""
    return Typed(pl.lit(value, dtype=pl.Boolean), pl.Boolean(), node, value)


def _not(compiler: Compiler, node: exp.Not) -> Typed:
    operand = compiler.boolean(node.this, "the operand of NOT")
    if operand.is_constant:
        return constant_boolean(node, None if operand.constant is None else not operand.constant)
    return Typed(~operand.expression, pl.Boolean(), node)


def _case(compiler: Compiler, node: exp.Case) -> Typed:
    """Both forms. A branch is evaluated for failures and user functions only where it is chosen."""
    subject = compiler.compile(node.this) if node.this is not None else None
    branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    return _branches(compiler, node, [(_when(subject), *branch) for branch in branches], default)


def _when(subject: Typed | None) -> _Condition:
    def condition(compiler: Compiler, node: Any) -> Typed:
        if subject is None:
            return compiler.boolean(node, "the condition of WHEN")
        return comparisons.compare(compiler, node, "=", subject, compiler.compile(node))

    return condition


def _branches(compiler: Compiler, node: Any, branches: list[tuple[_Condition, Any, Any]], default: Any | None) -> Typed:
    """Compile (how to test, condition, result) one after the other; each matters only where none before was true."""
    conditions: list[pl.Expr] = []
    results: list[Typed] = []
    unused: list[Typed] = []
    with ExitStack() as earlier:
        for place, (test, tested, result) in enumerate(branches):
            condition = test(compiler, tested)
            if condition.is_constant and condition.constant is not True:
                unused.append(compiler.check_only(result))
                continue
            if condition.is_constant:
                unused += [compiler.check_only(later) for _, _, later in branches[place + 1 :]]
                unused += [compiler.check_only(default)] if default is not None else []
                default = result
                break
            chosen = condition.expression.fill_null(False)
            with compiler.guarded(chosen):
                results.append(compiler.compile(result))
            conditions.append(chosen)
            earlier.enter_context(compiler.guarded(~chosen))
        results.append(compiler.compile(default) if default is not None else Typed(pl.lit(None), pl.Null(), None, None))
    return choose(compiler, node, conditions, results, unused)


def choose(
    compiler: Compiler, node: Any, conditions: list[pl.Expr], results: list[Typed], unused: Sequence[Typed] = ()
) -> Typed:
    """Return the first result whose condition is true, else the last result (one more than conditions).

    ``unused`` are branches that no row takes; they only have a say in the type.
    """
    kind: pl.DataType = pl.Null()
    for result in (*results, *unused):
        common = common_type(kind, result.data_type)
        if common is None:
            raise compiler.error(
                result.node if result.node is not None else node,
                f"the branches have different types: {shown(kind)} and {shown(result.data_type)}",
                hint="CAST one of them",
            )
        kind = common
    if not conditions:
        return Typed(widen(results[0], kind), kind, node, _widened_constant(results[0], kind))
    chosen: Any = pl
    for condition, result in zip(conditions, results, strict=False):
        chosen = chosen.when(condition).then(widen(result, kind))
    return Typed(chosen.otherwise(widen(results[-1], kind)), kind, node)


def _widened_constant(typed: Typed, kind: pl.DataType) -> Any:
    """Return the constant if it means the same in the wider type (a number may change its Python type)."""
    return typed.constant if typed.data_type == kind or typed.constant is None else NOT_CONSTANT


def _coalesce(compiler: Compiler, node: Any, arguments: list[Any]) -> Typed:
    results: list[Typed] = []
    conditions: list[pl.Expr] = []
    unused: list[Typed] = []
    with ExitStack() as earlier:
        for argument in arguments:
            if results and results[-1].is_constant:
                unused.append(compiler.check_only(argument))
                continue
            typed = argument if isinstance(argument, Typed) else compiler.compile(argument)
            if typed.is_constant and typed.constant is None:
                unused.append(typed)
                continue
            results.append(typed)
            if not typed.is_constant:
                conditions.append(typed.expression.is_not_null())
                earlier.enter_context(compiler.guarded(typed.expression.is_null()))
    if len(conditions) == len(results):
        results.append(Typed(pl.lit(None), pl.Null(), None, None))
    made = choose(compiler, node, conditions, results, unused)
    if conditions:
        # The same with each operand written once.
        return Typed(pl.coalesce([widen(result, made.data_type) for result in results]), made.data_type, node)
    return made


def _if(compiler: Compiler, node: Any, arguments: list[Any]) -> Typed:
    return _branches(compiler, node, [(_condition_of_if, arguments[0], arguments[1])], arguments[2])


def _condition_of_if(compiler: Compiler, node: Any) -> Typed:
    return compiler.boolean(node, "the condition of IF")


HANDLERS: dict[type[exp.Expr], Callable[[Compiler, Any], Typed]] = {
    exp.And: _and, exp.Or: _or, exp.Not: _not, exp.Case: _case,
}  # fmt: skip

#: Functions that decide which of their arguments a row evaluates.
LAZY_CALLS: dict[str, Callable[[Compiler, Any, list[Any]], Typed]] = {"coalesce": _coalesce, "if": _if}
