"""Comparisons with ANY and ALL of a subquery, and IN, which is ``= ANY``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.GT: exp.LTE, exp.LTE: exp.GT, exp.LT: exp.GTE, exp.GTE: exp.LT,
}  # fmt: skip


@dataclass(frozen=True)
class Quantified:
    """``x > ALL (SELECT …)`` and its like; ``x IN (…)`` is ``x = ANY (…)``."""

    operator: type[exp.Expr]
    this: exp.Expr
    query: exp.Expr
    #: ALL instead of ANY.
    every: bool

    def negation(self) -> Quantified:
        return replace(self, operator=_NEGATED[self.operator], every=not self.every)

    def compared(self, value: exp.Expr) -> exp.Expr:
        return self.operator(this=self.this.copy(), expression=value.copy())


def quantified_in(node: exp.Expr) -> Quantified | None:
    """Return the parts of a comparison with ANY, SOME or ALL of a subquery, or of an IN; None for anything else."""
    if isinstance(node, exp.In) and node.args.get("query") is not None and not isinstance(node.this, exp.Tuple):
        query = node.args["query"]
        return Quantified(exp.EQ, node.this, query.this if isinstance(query, exp.Subquery) else query, every=False)
    if type(node) not in _NEGATED:
        return None
    right = node.expression
    query = right.this if isinstance(right, exp.Any | exp.All) else None
    every = isinstance(right, exp.All)
    if (
        isinstance(right, exp.Anonymous)
        and right.name.upper() in ("ANY", "SOME", "ALL")
        and len(right.expressions) == 1
    ):
        query, every = right.expressions[0], right.name.upper() == "ALL"
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    return Quantified(type(node), node.this, query, every) if isinstance(query, exp.Query | exp.Values) else None
