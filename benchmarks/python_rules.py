"""The rules of ``benchmarks.rule_sets`` as Python lambdas: what a careful user would write by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace_columnar import dialect
from headrace_columnar.patterns import split_like
from sqlglot import exp

Function = Callable[[Mapping[str, Any]], bool]
_SIGNS: Mapping[type[exp.Expr], str] = {exp.EQ: "==", exp.NEQ: "!=", exp.And: "and", exp.Or: "or"}


def python_rules(rules: Sequence[Mapping[str, str]]) -> list[tuple[str, Function]]:
    """Return (id, function of a parsed message) per rule."""
    import re

    found = []
    for rule in rules:
        function: Function = eval(python_source(rule["expression"]), {"search": _searcher, "re": re})  # noqa: S307  # our own seeded text
        found.append((rule["id"], function))
    return found


def python_source(expression: str) -> str:
    """Return the source of a function of a parsed message; it needs ``search`` (of a pattern, the method of that name)."""
    return f"lambda e: bool({_source(dialect.parse(expression))})"


def _source(node: Any) -> str:
    if isinstance(node, exp.Paren):
        return f"({_source(node.this)})"
    if type(node) in _SIGNS:
        return f"({_source(node.left)} {_SIGNS[type(node)]} {_source(node.right)})"
    if isinstance(node, exp.Not):
        return f"(not {_source(node.this)})"
    if isinstance(node, exp.Column):
        return f"e[{node.name!r}]"
    if isinstance(node, exp.Literal):
        return repr(node.this) if node.is_string else str(node.this)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "lower":
        return f"{_source(node.expressions[0])}.lower()"
    if isinstance(node, exp.In):
        return f"({_source(node.this)} in ({', '.join(map(_source, node.expressions))},))"
    if isinstance(node, exp.Between):
        return f"({_source(node.args['low'])} <= {_source(node.this)} <= {_source(node.args['high'])})"
    if isinstance(node, exp.RegexpLike):
        return f"(search({node.expression.this!r})({_source(node.this)}) is not None)"
    if isinstance(node, exp.Like):
        return _like(_source(node.this), str(node.expression.this))
    raise AssertionError(f"the rule sets have no {type(node).__name__}")


def _like(value: str, pattern: str) -> str:
    parts = split_like(pattern, None)
    literals = [part for part in parts if part]
    if len(literals) == 1 and len(parts) == 3:
        return f"({literals[0]!r} in {value})"
    if len(parts) == 2:
        method, literal = ("startswith", parts[0]) if parts[0] else ("endswith", parts[1])
        return f"{value}.{method}({literal!r})"
    import re

    regex = "".join(".*" if part is None else re.escape(part) or "." for part in parts)
    return f"(search({'(?s)^' + regex + '$'!r})({value}) is not None)"


_searches: dict[str, Any] = {}


def _searcher(pattern: str) -> Any:
    import re

    if pattern not in _searches:
        _searches[pattern] = re.compile(pattern).search
    return _searches[pattern]
