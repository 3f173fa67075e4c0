"""Table functions and UNNEST: each row with every row that is made from it."""

from __future__ import annotations

import inspect
from typing import Any

import polars as pl
from headrace.interfaces.function_arguments import misfit
from headrace.interfaces.functions import TableFunction
from headrace_columnar.sql_types import shown
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import conjuncts
from headrace_sql.binding.scope import Column, Relation, unused_name
from headrace_sql.operators.correlate import BUILT_IN, Correlate
from headrace_sql.reading import nodes


def correlated(context: Context, left: Relation, join: exp.Join) -> Relation:
    """Return the relation of ``, LATERAL TABLE(f(x)) AS t(a)``, of LEFT JOIN LATERAL … ON TRUE and of CROSS JOIN UNNEST(…)."""
    item = join.this
    outer = (join.side or "").upper() == "LEFT"
    if (join.side or "").upper() in ("RIGHT", "FULL"):
        raise context.error(item, "a table function can be joined by INNER, CROSS or LEFT JOIN")
    conditions = [each for each in conjuncts(join.args.get("on")) if not (isinstance(each, exp.Boolean) and each.this)]
    if conditions and outer:
        raise context.error(
            join.args["on"], "LEFT JOIN of a table function needs ON TRUE", "write the condition in WHERE"
        )
    alias = item.args.get("alias")
    table = alias.name if alias is not None else ""
    names = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
    translator = context.translator(left)
    ordinal: Any = None
    if isinstance(item, exp.Unnest) or (isinstance(item, exp.Lateral) and isinstance(item.this, exp.Unnest)):
        unnest = item if isinstance(item, exp.Unnest) else item.this
        ordinal = unnest.args.get("offset")
        if len(unnest.expressions) != 1:
            raise context.error(unnest, "UNNEST takes one array")
        arguments = [translator.sql(unnest.expressions[0])]
        kind = translator.type_of(unnest.expressions[0])
        if not isinstance(kind, pl.List):
            raise context.error(unnest.expressions[0], "UNNEST takes an array")
        inner: Any = kind.inner
        types = {f.name: f.dtype for f in inner.fields} if isinstance(inner, pl.Struct) else {"value": inner}
        function = None
    else:
        function, arguments = _function(context, item, translator)
        types = dict(function.schema)
    if names and len(names) != len(types):
        raise context.error(item, f"{len(names)} names for {len(types)} columns: {', '.join(types)}")
    names = names or list(types)
    taken = set(left.schema)
    columns, physical_types = [], {}
    for name, kind in zip(names, types.values(), strict=True):
        target = unused_name(name, taken)
        taken.add(target)
        physical_types[target] = kind
        columns.append(Column(name, target, table or None))
    place = None
    if ordinal:
        name = ordinal.name if isinstance(ordinal, exp.Identifier) else "ORDINALITY"
        place = unused_name(name, taken)
        columns.append(Column(name, place, table or None))
    spec = Correlate(
        function, arguments, physical_types, outer=outer, functions=context.catalog.functions, ordinal=place
    )
    made = Relation(left.stream.apply(spec), (*left.columns, *columns))
    return context.where(made, conditions)


def _function(context: Context, item: Any, translator: Any) -> tuple[TableFunction, list[str]]:
    call = item.this.this if isinstance(item.this, nodes.TableCall) else item.this
    if not isinstance(call, exp.Anonymous):
        raise context.error(item, "expected the call of a table function", "LATERAL TABLE(f(x)) AS t(a, b)")
    function = context.catalog.functions.get(call.name.lower()) or BUILT_IN.get(call.name.lower())
    if not isinstance(function, TableFunction):
        what = "is not a table function" if function is not None else "is unknown"
        raise context.error(call, f"{call.name!r} {what}", "make it with hr.udtf and pass it: hr.sql(…, functions=[f])")
    wrong = misfit(function.function, [translator.type_of(each) for each in call.expressions])
    if wrong is not None:
        place, annotation = wrong
        found = shown(translator.type_of(call.expressions[place]))
        raise context.error(
            call.expressions[place], f"function {call.name!r} expects {annotation} here, but the argument is {found}",
            "CAST the argument, or change the annotation of the function",
        )  # fmt: skip
    _check_count(context, call, function)
    return function, [translator.sql(each) for each in call.expressions]


def _check_count(context: Context, call: exp.Anonymous, function: TableFunction) -> None:
    try:
        signature = inspect.signature(function.function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call.expressions)
    except TypeError as error:
        message = f"function {call.name!r} cannot be called so: {error}"
        raise context.error(call, message, f"its signature is {call.name}{signature}") from None
