"""Expressions of headrace-columnar as trees: columns, calls, casts, and the text of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from headrace_columnar.dialect import text_of as text_of
from sqlglot import exp


def call(name: str, *arguments: Any) -> exp.Expr:
    """Return the call of a function of headrace-columnar."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def cast(node: Any, word: str, *, safe: bool = False) -> exp.Expr:
    """Return a CAST to a type named by a word of headrace-columnar."""
    target = exp.DataType(this=exp.DType.USERDEFINED, kind=word)
    made: exp.Expr = exp.TryCast(this=node, to=target, safe=True) if safe else exp.Cast(this=node, to=target)
    return made


def physical(name: str) -> exp.Column:
    """Return the node of a column of the stream."""
    return exp.column(exp.to_identifier(name, quoted=True))


def all_of(conditions: Sequence[exp.Expr]) -> str | None:
    """Return the text of translated conditions that must all hold; None: there are none."""
    if not conditions:
        return None
    parts: list[exp.Expr] = [exp.Paren(this=each) for each in conditions]
    return text_of(reduce(lambda left, right: exp.And(this=left, expression=right), parts))


def with_names(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return a translated tree whose columns are renamed: old names to new names."""

    def renamed(part: exp.Expr) -> exp.Expr:
        return physical(names[part.name]) if isinstance(part, exp.Column) and part.name in names else part

    made: exp.Expr = node.transform(renamed)
    return made
