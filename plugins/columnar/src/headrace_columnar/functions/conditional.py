"""Functions that choose between values."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.sql_types import Typed, is_decimal


@function(
    "coalesce",
    signature="value T, [others T...] -> T",
    summary="The first argument that is not NULL. Later arguments are not evaluated for the row.",
    examples=[("coalesce(NULL, 'a', 'b')", "a"), ("coalesce(CAST(NULL AS STRING), '30')", "30")],
    answers_null=True,
)
def coalesce(call: Call) -> pl.Expr:
    return pl.coalesce(call.expressions())


@function(
    "if",
    "iff",
    signature="condition boolean, then T, otherwise T -> T",
    summary="The second argument where the condition is true, else (also for NULL) the third.",
    examples=[("if(1 < 2, 'Jack', 'Harry')", "Jack"), ("if(CAST(NULL AS BOOLEAN), 'a', 'b')", "b")],
    answers_null=True,
)
def if_(call: Call) -> pl.Expr:
    return pl.when(call[0]).then(call[1]).otherwise(call[2])


@function(
    "nvl",
    "ifnull",
    signature="value T, instead T -> T",
    summary="The second argument where the first is NULL.",
    examples=[("nvl(NULL, 5)", 5), ("ifnull('a', 'b')", "a")],
    answers_null=True,
)
def nvl(call: Call) -> pl.Expr:
    return pl.coalesce(call.expressions())


@function(
    "nvl2",
    signature="value any, then T, otherwise T -> T",
    summary="The second argument where the first is not NULL, else the third.",
    examples=[("nvl2('x', 1, 2)", 1), ("nvl2(NULL, 1, 2)", 2)],
    answers_null=True,
)
def nvl2(call: Call) -> pl.Expr:
    return pl.when(call[0].is_not_null()).then(call[1]).otherwise(call[2])


@function(
    "nullif",
    signature="value T, unwanted T -> T",
    summary="NULL where both are equal, else the first.",
    examples=[("nullif('', '')", None), ("nullif(5, 0)", 5), ("nullif(5, NULL)", 5)],
    answers_null=True,
)
def nullif(call: Call) -> pl.Expr:
    from headrace_columnar.comparisons import compare

    equal = compare(call.compiler, call.node, "=", *call.arguments)
    return pl.when(equal.expression.fill_null(False)).then(None).otherwise(call[0])


def _extreme(call: Call, *, greatest: bool) -> pl.Expr:
    # polars skips NULL here; in Flink one NULL makes the result NULL.
    if call.result_type.is_nested():
        raise call.error(0, "the values must be of a simple type")
    values = call.expressions()
    found = pl.max_horizontal(values) if greatest else pl.min_horizontal(values)
    if call.result_type.is_numeric() and call.result_type.is_float() and greatest:
        # NaN is the greatest number, as in comparisons.
        found = pl.when(pl.any_horizontal([value.is_nan() for value in values])).then(float("nan")).otherwise(found)
    if is_decimal(call.result_type):
        found = found.cast(call.result_type)
    return pl.when(pl.all_horizontal([value.is_not_null() for value in values])).then(found)


@function(
    "greatest",
    signature="value T, others T... -> T",
    summary="The greatest argument; NULL if any is NULL (as in Flink; Spark skips NULL).",
    examples=[("greatest(3, 1, 2)", 3), ("greatest('a', 'c', 'b')", "c"), ("greatest(1, NULL)", None)],
)
def greatest(call: Call) -> pl.Expr:
    return _extreme(call, greatest=True)


@function(
    "least",
    signature="value T, others T... -> T",
    summary="The least argument; NULL if any is NULL (as in Flink; Spark skips NULL).",
    examples=[("least(3, 1, 2)", 1), ("least(1.5, 2)", Decimal("1.5")), ("least(1, NULL)", None)],
)
def least(call: Call) -> pl.Expr:
    return _extreme(call, greatest=False)


@function(
    "isnull",
    signature="value any -> boolean",
    summary="Whether the value is NULL.",
    examples=[("isnull(NULL)", True), ("isnull(1)", False)],
    answers_null=True,
)
def isnull(call: Call) -> pl.Expr:
    return call[0].is_null()


@function(
    "isnotnull",
    signature="value any -> boolean",
    summary="Whether the value is not NULL.",
    examples=[("isnotnull(NULL)", False), ("isnotnull(1)", True)],
    answers_null=True,
)
def isnotnull(call: Call) -> pl.Expr:
    return call[0].is_not_null()


@function(
    "typeof",
    signature="value any -> string",
    summary="The name of the value's type.",
    examples=[("typeof(1)", "int64"), ("typeof('a')", "string"), ("typeof(1.5)", "decimal(2, 1)")],
    answers_null=True,
)
def typeof(call: Call) -> Typed:
    from headrace_columnar.sql_types import shown

    name = shown(call.arguments[0].data_type)
    return Typed(pl.lit(name), pl.String(), call.node, name)
