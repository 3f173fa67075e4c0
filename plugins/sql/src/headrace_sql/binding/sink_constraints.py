"""The constraints of a table's columns for rows of INSERT, and the session's options for rows that break them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headrace_sql.binding.scope import error_at
from headrace_sql.binding.tables import Table
from headrace_sql.binding.types import word_of
from headrace_sql.operators.constraints import Constraints, Limits, Policy
from headrace_sql.reading import nodes
from headrace_sql.reading.options import choice

_TEXTS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")


def constraints_of(table: Table, options: Mapping[str, str]) -> Constraints | None:
    """Return the operator that enforces the constraints of a table's columns; None: there are none.

    Raises ExpressionError if values in arrays and maps would have to be cut.
    """
    depth = choice(options, "table.exec.sink.nested-constraint-enforcer")
    lengths = choice(options, "table.exec.sink.type-length-enforcer")
    if depth == "ROWS_AND_COLLECTIONS" and lengths == "TRIM_PAD":
        raise error_at(
            table.node.this.this, table.text,
            "values in arrays and maps cannot be cut and filled up: TRIM_PAD does not go with ROWS_AND_COLLECTIONS",
            "SET 'table.exec.sink.nested-constraint-enforcer' = 'ROWS', or 'table.exec.sink.type-length-enforcer' = 'ERROR'",
        )  # fmt: skip
    columns = {
        element.name: _limits(element.args["kind"], depth, not_null=_is_not_null(table, element))
        for element in table.node.this.expressions
        if isinstance(element, exp.ColumnDef)
        and element.args.get("kind") is not None
        and element.name in table.sink_columns
    }
    policy = Policy(choice(options, "table.exec.sink.not-null-enforcer") == "DROP", lengths)
    made = Constraints(
        {name: each if lengths != "IGNORE" else _without_texts(each) for name, each in columns.items()}, policy
    )
    return made if made.columns else None


def _is_not_null(table: Table, element: exp.ColumnDef) -> bool:
    """Return whether a column takes no NULL: it says so, or belongs to the primary key."""
    kinds = [each.args["kind"] for each in element.args.get("constraints") or ()]
    said = any(isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null") for kind in kinds)
    return said or element.name in table.primary_key


def _limits(kind: exp.Expr, depth: str, *, not_null: bool) -> Limits:
    word, inner = word_of(kind), kind.expressions
    if word in _TEXTS:
        length = inner[0].name if inner else ""
        # CHAR and BINARY without a number have one character or byte.
        known = int(length) if length.isdigit() else 1 if word in ("CHAR", "BINARY") else None
        return Limits(not_null, None if known is None else (word, known))  # type: ignore[arg-type]
    if word == "STRUCT" and depth != "IGNORE":
        fields = [(each.name, each.args["kind"]) for each in inner]
        return Limits(not_null, inner=tuple((name, _inner(each, depth)) for name, each in fields))
    if depth == "ROWS_AND_COLLECTIONS" and word in ("ARRAY", "LIST") and inner:
        return Limits(not_null, inner=(("", _inner(inner[0], depth)),))
    if depth == "ROWS_AND_COLLECTIONS" and word == "MAP" and len(inner) == 2:
        entry = Limits(inner=(("key", _inner(inner[0], depth)), ("value", _inner(inner[1], depth))))
        return Limits(not_null, inner=(("", entry),))
    return Limits(not_null)


def _inner(kind: exp.Expr, depth: str) -> Limits:
    return _limits(kind, depth, not_null=bool(kind.meta.get(nodes.NOT_NULL)))


def _without_texts(limits: Limits) -> Limits:
    return Limits(limits.not_null, None, tuple((name, _without_texts(each)) for name, each in limits.inner))
