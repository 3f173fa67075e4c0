"""The normal form of expressions: two texts that differ in white space, case of words, quotes or needless brackets are one.

For the definitions of states (``headrace.interfaces.state_definition``): names of columns are in double quotes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.interfaces.operator import Derivation
from headrace.interfaces.state_definition import quoted


def normal_text(source: str | pl.Expr) -> str:
    """Return an expression in normal form, without the name that ``AS`` gives it. Raises ExpressionError."""
    return _of_polars(source) if isinstance(source, pl.Expr) else _of_text(source)


@lru_cache(maxsize=1024)
def _of_text(text: str) -> str:
    """Asked several times for each expression while a job is built and started, and a tree is copied for it."""
    from headrace_columnar import dialect

    return normal_node(dialect.parsed(text))


def normal_node(node: Any) -> str:
    """Return a parsed expression in normal form; the tree stays as it is."""
    from headrace_columnar import dialect
    from sqlglot import exp

    made = node.copy()
    while isinstance(made, exp.Alias | exp.Paren):
        made = made.this.copy()
    # All brackets go, and come back around every operation within another: the generator writes none by itself.
    for bracket in reversed(list(made.find_all(exp.Paren))):
        bracket.replace(bracket.this)
    for call in made.find_all(exp.Anonymous):
        call.set("this", (call.this if isinstance(call.this, str) else call.this.name).lower())
    operations = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Bracket)
    for inner in reversed(list(made.walk())):
        if isinstance(inner, operations) and isinstance(inner.parent, operations):
            inner.replace(exp.Paren(this=inner.copy()))
    text: str = made.sql(dialect=dialect.Headrace, identify=True, normalize_functions=False, comments=False)
    return text


def conditions(predicate: str | pl.Expr) -> Iterator[str]:
    """Yield the parts of a condition that AND joins, in normal form."""
    if isinstance(predicate, pl.Expr):
        yield _of_polars(predicate)
        return
    from headrace_columnar import dialect
    from sqlglot import exp

    def parts(node: Any) -> Iterator[Any]:
        while isinstance(node, exp.Paren | exp.Alias):
            node = node.this
        if isinstance(node, exp.And):
            yield from parts(node.left)
            yield from parts(node.right)
        else:
            yield node

    for part in parts(dialect.parsed(predicate)):
        yield normal_node(part)


def derivation_of(
    schema: Schema | None, columns: Mapping[str, str | pl.Expr] | None = None, *, only: bool = False
) -> Derivation:
    """Return the derivation of a verb that passes rows on, with these columns computed; ``only``: and no others."""
    same = {} if only else {name: quoted(name) for name in schema or ()}
    made = {name: normal_text(source) for name, source in (columns or {}).items()}
    if schema is None:
        return Derivation(None, step=", ".join(f"{name} = {text}" for name, text in made.items()))
    return Derivation({**same, **made})


def _of_polars(source: pl.Expr) -> str:
    """Return the text of a polars expression. If its text does not show everything, a digest of the expression is appended."""
    text = str(source.meta.undo_aliases())
    if "Series" not in text and "python" not in text.lower() and "…" not in text:
        return f"polars: {text}"
    try:
        content = source.meta.serialize()
    except pl.exceptions.PolarsError as error:
        raise ExpressionError(f"the expression cannot be compared with others: {error}", text=text) from error
    return f"polars: {text} #{hashlib.sha256(content).hexdigest()[:16]}"
