"""Prepares a condition from its text: it is parsed, and its triggers and the functions that verify it are made."""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace_columnar import dialect
from headrace_columnar.expressions import compile_node, compile_predicate
from sqlglot import exp

from headrace_rules.atoms import Need, ValueAtom, choice
from headrace_rules.conditions import native_condition
from headrace_rules.needed_columns import needed_columns
from headrace_rules.prepared import CheapPart, Clause, Parts, PreparedCondition, Preparer
from headrace_rules.slots import NotNativeError
from headrace_rules.triggers import equality_of, need_of, operands


def prepared(text: str, preparer: Preparer) -> PreparedCondition:
    """Return a condition, with its parts. Raises ExpressionError."""
    schema, functions = preparer.schema, preparer.functions
    node: Any = dialect.parse(text)
    if isinstance(node, exp.Alias):
        node = node.this
    inside = node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    cheap: list[CheapPart] = []
    clauses: list[Clause] = []
    needs: list[Need] = []
    equalities: list[ValueAtom] = []
    for part in operands(inside) if isinstance(inside, exp.And) else [inside]:
        need = need_of(part, schema, functions)
        try:
            condition, cost, slots = native_condition(part, preparer.slots, schema, functions, text)
            cheap.append(CheapPart(condition, cost, need, slots))
        except NotNativeError:
            clause = _clause(part, text, preparer)
            if clause is None:
                # This part can fail. Only the parts before it may decide for which rows it is evaluated, so only they give triggers.
                whole = compile_predicate(text, schema, functions)
                need = choice(needs) if whole.deterministic else None
                return PreparedCondition(
                    text, need, columns=whole.columns, is_whole=True, parts=Parts(whole=whole), calls=_calls(node)
                )
            clauses.append(clause)
        if need is not None:
            needs.append(need)
        equality = equality_of(part, schema, functions)
        if equality is not None:
            equalities.append(equality)
    return PreparedCondition(
        text,
        choice(needs),
        equalities=tuple(equalities),
        # It may have columns that are not read, because names of fields and units are identifiers too. This does no harm.
        columns=preparer.shared(one.name for one in node.find_all(exp.Identifier) if one.name in schema),
        parts=Parts(tuple(cheap), tuple(clauses), needed=preparer.shared(needed_columns(node, schema, functions))),
        calls=_calls(node),
    )


def _calls(node: exp.Expr) -> frozenset[str]:
    """Return the functions that a condition calls by name, in lower case."""
    called = node.find_all(exp.Anonymous)
    return frozenset((each.this if isinstance(each.this, str) else each.this.name).lower() for each in called)


def _clause(node: exp.Expr, text: str, preparer: Preparer) -> Clause | None:
    """Return the clause of a part; None when it can fail or is not a function of the row alone."""
    key = repr(node)
    found = preparer.clauses.get(key)
    if found is not None:
        return found
    compiled = compile_node(node, text, preparer.schema, preparer.functions)
    if not isinstance(compiled.data_type, pl.Boolean | pl.Null):
        return None  # compiling the whole condition raises the error, with the right message
    if compiled.can_fail or not compiled.deterministic or not compiled.columns:
        return None
    position, length = dialect.span(text, node)
    expression = compiled.staged if isinstance(compiled.data_type, pl.Boolean) else pl.lit(None, dtype=pl.Boolean)
    made = Clause(text[position : position + length], expression.fill_null(False), compiled.columns)
    preparer.clauses[key] = made
    return made
