"""Functions of arrays and structs."""

from __future__ import annotations

import polars as pl
from headrace_columnar.registry import Call, function


@function(
    "array",
    signature="value T... -> array<T>",
    summary="An array of the arguments. Also written ARRAY[…].",
    examples=[("array(1, 2, 3)", [1, 2, 3]), ("ARRAY['a', NULL]", ["a", None])],
)
def array(call: Call) -> pl.Expr:
    return pl.concat_list(call.expressions())
