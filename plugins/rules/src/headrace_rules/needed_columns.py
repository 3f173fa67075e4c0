"""Which columns must have a value wherever a condition is true.

Rows of many log sources in one stream have NULL in most columns. A condition that compares such a column is looked at only where the
column has a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.flow.schema import Schema
from sqlglot import exp

from headrace_rules.triggers import operands

#: These are NULL where one of their two sides is.
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
#: These are NULL where their left side is.
_TESTS = (exp.Like, exp.ILike, exp.RegexpLike, exp.SimilarTo, exp.In, exp.Between)
#: Functions that are NULL where their first argument is.
_FUNCTIONS = frozenset({
    "lower", "lcase", "upper", "ucase", "trim", "btrim", "ltrim", "rtrim", "length", "char_length", "character_length",
    "contains", "startswith", "starts_with", "endswith", "ends_with", "regexp_like", "regexp", "rlike",
    "ip_in_cidr", "cidr_match",
})  # fmt: skip
_NONE: frozenset[str] = frozenset()


def needed_columns(node: Any, schema: Schema, functions: Mapping[str, Any]) -> frozenset[str]:
    """Return columns without whose values a condition is never true; not all of them need be found."""
    if isinstance(node, exp.Paren):
        return needed_columns(node.this, schema, functions)
    if isinstance(node, exp.And):
        return frozenset().union(*(needed_columns(part, schema, functions) for part in operands(node)))
    if isinstance(node, exp.Or):
        parts = [needed_columns(part, schema, functions) for part in operands(node)]
        return frozenset.intersection(*parts)
    if isinstance(node, exp.Not):
        return _needed_for_false(node.this, schema, functions)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean) and node.expression.this:
        return needed_columns(node.this, schema, functions)
    return _needed_for_a_result(node, schema, functions)


def _needed_for_false(node: Any, schema: Schema, functions: Mapping[str, Any]) -> frozenset[str]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return _read(node.this, schema, functions)
    return _needed_for_a_result(node, schema, functions)


def _needed_for_a_result(node: Any, schema: Schema, functions: Mapping[str, Any]) -> frozenset[str]:
    """Return columns for whose NULL a test is NULL."""
    if isinstance(node, exp.Escape):
        node = node.this
    if type(node) in _COMPARISONS:
        return _read(node.left, schema, functions) | _read(node.right, schema, functions)
    if type(node) in _TESTS:
        return _read(node.this, schema, functions)
    return _read(node, schema, functions)


def _read(node: Any, schema: Schema, functions: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns for whose NULL a value is NULL."""
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    if isinstance(node, exp.Identifier) or (isinstance(node, exp.Column) and len(node.parts) == 1):
        return frozenset({node.name}) if node.name in schema else _NONE
    if isinstance(node, exp.Anonymous) and node.expressions:
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        if name in _FUNCTIONS and name not in functions:
            return _read(node.expressions[0], schema, functions)
    return _NONE
