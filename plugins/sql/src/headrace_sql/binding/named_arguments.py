"""Named arguments of user functions: ``f(x, digits => 2)`` with every argument at its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.foundation.errors import FunctionError
from headrace.interfaces.function_arguments import Default, placed
from headrace.interfaces.functions import taken_by
from sqlglot import exp

from headrace_sql.binding.scope import error_at


def place_named_arguments(node: exp.Expr, functions: Mapping[str, Any], text: str) -> None:
    """Bring the arguments of all calls in a statement into the order of the functions' parameters. Raises ExpressionError."""
    for call in list(node.find_all(exp.Anonymous)):
        named = [each for each in call.expressions if isinstance(each, exp.Kwarg)]
        if not named:
            continue
        function = functions.get(call.name.lower())
        if function is None:
            raise error_at(named[0], text, f"only user functions have named arguments, and {call.name} is none")
        before = [each for each in call.expressions if not isinstance(each, exp.Kwarg)]
        if call.expressions[: len(before)] != before:
            raise error_at(named[0], text, "named arguments stand behind the others")
        given: dict[str, exp.Expr] = {}
        for each in named:
            if each.this.name.lower() in {name.lower() for name in given}:
                raise error_at(each, text, f"argument {each.this.name!r} is given twice")
            given[each.this.name] = each.expression
        called, skip = taken_by(function)
        try:
            ordered = placed(called, given, len(before), skip=skip)
        except FunctionError as error:
            raise error_at(call, text, f"function {call.name!r}: {error.message}", error.hint) from error
        call.set("expressions", [*before, *(_node(value) for _, value in ordered)])


def _node(value: Any) -> exp.Expr:
    if not isinstance(value, Default):
        assert isinstance(value, exp.Expr)
        return value
    return exp.convert(value.value)
