"""FROM: its items and joins."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Relation
from headrace_sql.compiling.from_items import from_item, pruned, windowed
from headrace_sql.compiling.joins import joined
from headrace_sql.compiling.match import matched
from headrace_sql.compiling.values import one_row


def from_clause(context: Context, node: exp.Select, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
    """Return the relation of FROM with its joins, and the conditions of WHERE that are not used up by them.

    Without FROM there is one row without columns.
    """
    if node.args.get("from_") is None:
        return one_row(context), conditions
    if node.args.get("match") is not None:
        item = node.args["from_"].this
        relation = matched(context, node.args["match"], context.settled(item, from_item(context, item)))
        joins = list(node.args["match"].args.get("joins") or ())
        return _all_joined(context, node, relation, joins, conditions)
    relation = from_item(context, node.args["from_"].this)
    joins = [*(node.args["from_"].this.args.get("joins") or ()), *(node.args.get("joins") or ())]
    joins += [exp.Join(this=each) for each in node.args.get("laterals") or ()]
    if joins:
        relation = pruned(context, node, windowed(context, node, relation))
    return _all_joined(context, node, relation, joins, conditions)


def _all_joined(
    context: Context, node: exp.Select, relation: Relation, joins: Sequence[exp.Join], conditions: list[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    for at, join in enumerate(joins):
        # A RIGHT or FULL JOIN behind it gives rows that WHERE has to see: nothing of WHERE may be asked before it only.
        pushes = all((each.side or "").upper() in ("", "LEFT") for each in joins[at + 1 :])
        relation, conditions = joined(context, node, relation, join, conditions, pushes=pushes)
    return relation, conditions
