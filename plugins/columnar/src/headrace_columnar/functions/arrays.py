"""Functions of arrays and structs."""

from __future__ import annotations

import polars as pl
from headrace_columnar.casts import to_text
from headrace_columnar.functions.strings import LARGEST_PRODUCT
from headrace_columnar.operators import element_at as element
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_rows
from headrace_columnar.sql_types import Typed, inner_type, is_scalar, is_text


@function(
    "array",
    signature="value T... -> array<T>",
    summary="An array of the arguments. Also written ARRAY[…].",
    examples=[("array(1, 2, 3)", [1, 2, 3]), ("ARRAY['a', NULL]", ["a", None])],
    answers_null=True,
)
def array(call: Call) -> pl.Expr:
    return pl.concat_list([_wrapped(call, index) for index in range(len(call))])


def _wrapped(call: Call, index: int) -> pl.Expr:
    """An array of just this value. polars would take an array in concat_list for its elements."""
    kind = call.arguments[index].data_type
    if not isinstance(kind, pl.List):
        return call[index]
    return call[index].map_batches(_wrap_series, return_dtype=pl.List(kind), is_elementwise=True)


def _wrap_series(series: pl.Series) -> pl.Series:
    return pl.Series(series.name, [[value] for value in series.to_list()], dtype=pl.List(series.dtype))


@function(
    "cardinality",
    "size",
    "array_size",
    signature="values array -> int64",
    summary="The number of elements.",
    examples=[("cardinality(array(1, 2))", 2), ("size(array(1, NULL))", 2)],
)
def cardinality(call: Call) -> pl.Expr:
    return call[0].list.len().cast(pl.Int64)


@function(
    "element_at",
    signature="values array, index integer -> ?",
    summary="The element at a place counted from 1 (from the end if negative); NULL if there is none. Also values[index].",
    examples=[
        ("element_at(array('a', 'b'), 2)", "b"),
        ("element_at(array(1, 2), -1)", 2),
        ("array(1, 2)[1]", 1),
        ("array(1)[5]", None),
    ],
)
def element_at(call: Call) -> Typed:
    return Typed(element(call[0], call[1]), inner_type(call.arguments[0].data_type))


@function(
    "array_contains",
    signature="values array<T>, value T -> boolean",
    summary="Whether an element equals the value; NULL if either is NULL, or if none does and an element is NULL.",
    examples=[("array_contains(array(1, 2), 2)", True), ("array_contains(array(1, NULL), 3)", None)],
    answers_null=True,
)
def array_contains(call: Call) -> pl.Expr:
    found = pl.when(call[1].is_not_null()).then(call[0].list.contains(call[1], nulls_equal=False))
    unknown = call[0].list.eval(pl.element().is_null()).list.any()
    return pl.when(found).then(True).when(unknown).then(None).otherwise(found)


@function(
    "array_position",
    signature="values array<T>, value T -> int64",
    summary="The place of the first element that equals the value, counted from 1; 0 if there is none.",
    examples=[("array_position(array('a', 'b'), 'b')", 2), ("array_position(array(1), 5)", 0)],
)
def array_position(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _place, pl.Int64())


def _place(values: list[object], value: object) -> int:
    wanted = _key(value)
    return next((place for place, one in enumerate(values, start=1) if _key(one) == wanted), 0)


@function(
    "array_join",
    signature="values array, separator string, [instead_of_null string] -> string",
    summary="The elements as one text; NULL elements are left out or replaced.",
    examples=[("array_join(array('a', 'b'), '-')", "a-b"), ("array_join(array('a', NULL, 'c'), ',', 'x')", "a,x,c")],
    answers_null=True,
)
def array_join(call: Call) -> pl.Expr:
    kind = inner_type(call.arguments[0].data_type)
    if not is_scalar(kind):
        raise call.error(0, "the elements must be of a simple type")
    texts = call[0] if is_text(kind) else call[0].list.eval(to_text(Typed(pl.element(), kind)))
    if len(call) == 3:
        replacement = call.constant(2)
        if not isinstance(replacement, str):
            raise call.error(2, "must be a constant text")
        texts = texts.list.eval(pl.element().fill_null(replacement))
    return texts.list.join(call[1], ignore_nulls=True)


@function(
    "array_distinct",
    signature="values array<T> -> array<T>",
    summary="The elements without repetitions, in the order of their first occurrence.",
    examples=[("array_distinct(array(1, 2, 1))", [1, 2])],
)
def array_distinct(call: Call) -> pl.Expr:
    return call[0].list.unique(maintain_order=True)


@function(
    "array_reverse",
    signature="values array<T> -> array<T>",
    summary="The elements in the opposite order.",
    examples=[("array_reverse(array(1, NULL, 3))", [3, None, 1])],
)
def array_reverse(call: Call) -> pl.Expr:
    return call[0].list.reverse()


@function(
    "array_max",
    signature="values array -> ?",
    summary="The greatest element; NULL elements are left out.",
    examples=[("array_max(array(1, 3, NULL))", 3)],
)
def array_max(call: Call) -> Typed:
    return Typed(call[0].list.max(), _ordered(call))


def _ordered(call: Call) -> pl.DataType:
    """Return the type of the elements, which must have an order."""
    kind = inner_type(call.arguments[0].data_type)
    if kind.is_nested():
        raise call.error(0, "the elements must be of a simple type")
    return kind


@function(
    "array_min",
    signature="values array -> ?",
    summary="The least element; NULL elements are left out.",
    examples=[("array_min(array(1, 3, NULL))", 1)],
)
def array_min(call: Call) -> Typed:
    return Typed(call[0].list.min(), _ordered(call))


@function(
    "array_sort",
    "sort_array",
    signature="values array<T>, [ascending constant boolean] -> array<T>",
    summary="The elements in order, NULL last; backwards if the second argument is false.",
    examples=[("array_sort(array(3, 1, NULL, 2))", [1, 2, 3, None]), ("sort_array(array(3, 1), false)", [3, 1])],
)
def array_sort(call: Call) -> pl.Expr:
    return call[0].list.sort(descending=call.constant(1, True) is False, nulls_last=True)


@function(
    "array_concat",
    signature="values array<T>, others array<T>... -> array<T>",
    summary="The arrays one behind the other.",
    examples=[("array_concat(array(1), array(2, 3))", [1, 2, 3])],
)
def array_concat(call: Call) -> pl.Expr:
    return _of_present(call, pl.concat_list(call.expressions()))


def _of_present(call: Call, made: pl.Expr) -> pl.Expr:
    """NULL where an argument is NULL."""
    return pl.when(pl.all_horizontal([value.is_not_null() for value in call.expressions()])).then(made)


@function(
    "array_append",
    signature="values array<T>, value T -> array<T>",
    summary="The array with one more element at its end.",
    examples=[("array_append(array(1), 2)", [1, 2])],
    answers_null=True,
)
def array_append(call: Call) -> pl.Expr:
    return pl.when(call[0].is_not_null()).then(pl.concat_list([call[0], _wrapped(call, 1)]))


@function(
    "array_prepend",
    signature="values array<T>, value T -> array<T>",
    summary="The array with one more element at its start.",
    examples=[("array_prepend(array(1), 2)", [2, 1])],
    answers_null=True,
)
def array_prepend(call: Call) -> pl.Expr:
    return pl.when(call[0].is_not_null()).then(pl.concat_list([_wrapped(call, 1), call[0]]))


@function(
    "array_remove",
    signature="values array<T>, value T -> array<T>",
    summary="The array without the elements that equal the value.",
    examples=[("array_remove(array(1, 2, 1), 1)", [2])],
)
def array_remove(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _without, call.result_type)


def _without(values: list[object], value: object) -> list[object]:
    unwanted = _key(value)
    return [one for one in values if _key(one) != unwanted]


@function(
    "array_union",
    signature="left array<T>, right array<T> -> array<T>",
    summary="The elements of both, without repetitions.",
    examples=[("array_union(array(1, 2), array(2, 3))", [1, 2, 3])],
)
def array_union(call: Call) -> pl.Expr:
    return _of_present(call, pl.concat_list(call.expressions()).list.unique(maintain_order=True))


@function(
    "array_intersect",
    signature="left array<T>, right array<T> -> array<T>",
    summary="The elements of the first that the second has too, without repetitions.",
    examples=[("array_intersect(array(1, 2, 2), array(2, 3))", [2])],
)
def array_intersect(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _in_both, call.result_type)


def _in_both(left: list[object], right: list[object]) -> list[object]:
    wanted = {_key(one) for one in right}
    return [one for key, one in _first_of_each(left) if key in wanted]


def _first_of_each(values: list[object]) -> list[tuple[object, object]]:
    """Return (key, value) of each value that differs from those before it."""
    found: dict[object, object] = {}
    for one in values:
        found.setdefault(_key(one), one)
    return list(found.items())


def _key(value: object) -> object:
    """Return a hashable key that is equal for equal values: arrays can be long. NaN equals NaN."""
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return ("struct", *map(_key, value.values()))
    return "NaN" if isinstance(value, float) and value != value else ("value", value)


@function(
    "array_except",
    signature="left array<T>, right array<T> -> array<T>",
    summary="The elements of the first that the second has not, without repetitions.",
    examples=[("array_except(array(1, 2), array(2, 3))", [1])],
)
def array_except(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _only_left, call.result_type)


def _only_left(left: list[object], right: list[object]) -> list[object]:
    unwanted = {_key(one) for one in right}
    return [one for key, one in _first_of_each(left) if key not in unwanted]


@function(
    "arrays_overlap",
    signature="left array<T>, right array<T> -> boolean",
    summary="Whether the arrays have an element in common; NULL if it is not known because one holds NULL.",
    examples=[("arrays_overlap(array(1, 2), array(2, 3))", True), ("arrays_overlap(array(1, NULL), array(2))", None)],
)
def arrays_overlap(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _overlap, pl.Boolean())


def _overlap(left: list[object], right: list[object]) -> bool | None:
    found = {_key(one) for one in right if one is not None}
    if any(one is not None and _key(one) in found for one in left):
        return True
    return None if left and right and (None in left or None in right) else False


@function(
    "slice",
    "array_slice",
    signature="values array<T>, start integer, length integer -> array<T>",
    summary="At most ``length`` elements from a place on, counted from 1 (from the end if negative).",
    examples=[("slice(array(1, 2, 3, 4), 2, 2)", [2, 3]), ("slice(array(1, 2, 3), -2, 2)", [2, 3])],
)
def slice_(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _cut, call.result_type)


def _cut(values: list[object], start: int, length: int) -> list[object]:
    if start == 0 or length <= 0 or start < -len(values):
        return []
    first = start - 1 if start > 0 else len(values) + start
    return values[first : first + length]


@function(
    "array_repeat",
    signature="value T, count integer -> array<T>",
    summary="An array that holds the value this number of times; NULL above 10,000 times, or above 100 million bytes of text.",
    examples=[("array_repeat('a', 2)", ["a", "a"]), ("array_repeat('a', -1)", [])],
    answers_null=True,
)
def array_repeat(call: Call) -> pl.Expr:
    fits = call[1] <= 10_000
    if isinstance(call.arguments[0].data_type, pl.String):
        fits &= call[0].str.len_bytes().fill_null(0).cast(pl.Int64) * call[1].clip(0, 10_000) <= LARGEST_PRODUCT
    count = pl.when(fits).then(pl.max_horizontal(call[1], pl.lit(0)))
    return pl.when(call[1].is_not_null()).then(call[0].repeat_by(count))


@function(
    "flatten",
    signature="values array -> ?",
    summary="An array of arrays as one array; NULL if one of them is NULL.",
    examples=[("flatten(array(array(1, 2), array(3)))", [1, 2, 3])],
)
def flatten(call: Call) -> Typed:
    kind = inner_type(call.arguments[0].data_type)
    if not isinstance(kind, pl.List):
        raise call.error(0, "the elements must be arrays")
    return Typed(map_rows([call[0]], _flat, kind), kind)


def _flat(values: list[list[object] | None]) -> list[object] | None:
    if any(one is None for one in values):
        return None
    return [element for one in values if one is not None for element in one]


@function(
    "named_struct",
    signature="name constant string, value any, [more any...] -> ?",
    summary="A struct of names and values: named_struct('a', 1, 'b', 'x').",
    examples=[("named_struct('a', 1, 'b', 'x')", {"a": 1, "b": "x"}), ("named_struct('a', 1).a", 1)],
    answers_null=True,
)
def named_struct(call: Call) -> Typed:
    if len(call) % 2:
        raise call.error(len(call) - 1, "this name has no value")
    fields: dict[str, pl.DataType] = {}
    values: list[pl.Expr] = []
    for index in range(0, len(call), 2):
        name = call.constant(index)
        if not isinstance(name, str):
            raise call.error(index, "a field's name must be a constant text")
        if name in fields:
            raise call.error(index, f"the field {name!r} is there twice")
        fields[name] = call.arguments[index + 1].data_type
        values.append(call[index + 1].alias(name))
    return Typed(pl.struct(values), pl.Struct(fields))
