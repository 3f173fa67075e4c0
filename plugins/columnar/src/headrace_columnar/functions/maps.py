"""Functions of maps. A map is an array of entries: structs with the fields ``key`` and ``value``, each key once.

Functions of arrays take maps too, and may put a NULL among the entries: it counts as no entry.
"""

from __future__ import annotations

import functools
from typing import Any

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_rows
from headrace_columnar.sql_types import Typed, common_type, entry_types, inner_type, is_scalar, shown, widen


def map_type(key: pl.DataType, value: pl.DataType) -> pl.DataType:
    """Return the type of a map."""
    return pl.List(pl.Struct({"key": key, "value": value}))


def _types(call: Call) -> tuple[pl.DataType, pl.DataType]:
    found = entry_types(call.arguments[0].data_type)
    assert found is not None, "the signature asks for a map"
    return found


@function(
    "map",
    signature="key scalar, value any, [more any...] -> ?",
    summary="A map of keys and values: map('a', 1, 'b', 2). In SQL texts also MAP['a', 1, 'b', 2]. Of equal keys the last counts.",
    examples=[("map('a', 1, 'b', 2)", [{"key": "a", "value": 1}, {"key": "b", "value": 2}])],
    answers_null=True,
)
def map_(call: Call) -> Typed:
    if len(call) % 2:
        raise call.error(len(call) - 1, "this key has no value")
    types: list[pl.DataType] = []
    for first in (0, 1):
        kind: pl.DataType = pl.Null()
        for index in range(first, len(call), 2):
            common = common_type(kind, call.arguments[index].data_type)
            if common is None:
                raise call.error(
                    index, f"{shown(call.arguments[index].data_type)} cannot be combined with {shown(kind)}"
                )
            if first == 0 and not is_scalar(common):
                raise call.error(index, "a key must be of a simple type")
            kind = common
        types.append(kind)
    values = [widen(argument, types[index % 2]) for index, argument in enumerate(call.arguments)]
    made = map_type(*types)
    entries = pl.concat_list(
        [pl.struct(values[at].alias("key"), values[at + 1].alias("value")) for at in range(0, len(call), 2)]
    )
    return Typed(map_rows([entries], _last_of_each, made), made)


def _last_of_each(entries: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in {one["key"]: one["value"] for one in entries if one}.items()]


@function(
    "map_value",
    signature="values map, key scalar -> ?",
    summary="The value of a key; NULL if there is none. Also values['key'].",
    examples=[("map_value(map('a', 1), 'a')", 1), ("map_value(map('a', 1), 'b')", None)],
)
def map_value(call: Call) -> Typed:
    key, value = _types(call)
    wanted = call.arguments[1]
    if common_type(key, wanted.data_type) is None:
        raise call.error(1, f"the keys are {shown(key)}, not {shown(wanted.data_type)}")
    if wanted.is_constant:
        fitting = pl.element().struct.field("key") == widen(wanted, wanted.data_type)
        found = call[0].list.eval(pl.element().filter(fitting)).list.get(0, null_on_oob=True)
        return Typed(found.struct.field("value"), value)
    return Typed(map_rows([call[0], call[1]], _value_of, value), value)


def _value_of(entries: list[dict[str, Any] | None], key: object) -> object:
    return next((one["value"] for one in entries if one and one["key"] == key), None)


@function(
    "map_keys",
    signature="values map -> ?",
    summary="The keys of a map, as an array.",
    examples=[("map_keys(map('a', 1, 'b', 2))", ["a", "b"])],
)
def map_keys(call: Call) -> Typed:
    return Typed(call[0].list.eval(pl.element().drop_nulls().struct.field("key")), pl.List(_types(call)[0]))


@function(
    "map_values",
    signature="values map -> ?",
    summary="The values of a map, as an array.",
    examples=[("map_values(map('a', 1, 'b', 2))", [1, 2])],
)
def map_values_(call: Call) -> Typed:
    return Typed(call[0].list.eval(pl.element().drop_nulls().struct.field("value")), pl.List(_types(call)[1]))


@function(
    "map_entries",
    signature="values map -> ?",
    summary="The entries of a map, as an array of structs with the fields key and value.",
    examples=[("map_entries(map('a', 1))", [{"key": "a", "value": 1}])],
)
def map_entries(call: Call) -> Typed:
    return Typed(call[0], map_type(*_types(call)))


@function(
    "map_from_arrays",
    signature="keys array, values array -> ?",
    summary="A map of keys and their values, which must be as many; if they are not, the row fails. Of equal keys the last counts.",
    examples=[
        ("map_from_arrays(array('a', 'b'), array(1, 2))", [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
        ("map_from_arrays(array('a', 'a'), array(1, 2))", [{"key": "a", "value": 2}]),
    ],
)
def map_from_arrays(call: Call) -> Typed:
    key, value = (inner_type(argument.data_type) for argument in call.arguments)
    if not is_scalar(key):
        raise call.error(0, "a key must be of a simple type")
    different = call[0].list.len() != call[1].list.len()
    call.compiler.fail_when(different, "MAP_FROM_ARRAYS: there are not as many keys as values: {value}", call[0])
    made = map_type(key, value)
    return Typed(map_rows([call[0], call[1]], _of_arrays, made), made)


def _of_arrays(keys: list[Any], values: list[Any]) -> list[dict[str, Any]]:
    # Lengths that differ fail the row, whatever stands here.
    return _last_of_each([{"key": key, "value": value} for key, value in zip(keys, values, strict=False)])


@function(
    "map_union",
    signature="values map, [more map...] -> ?",
    summary="The entries of all maps; of equal keys the last map's counts. NULL if a map is NULL.",
    examples=[("map_union(map('a', 1, 'b', 2), map('b', 3))", [{"key": "a", "value": 1}, {"key": "b", "value": 3}])],
)
def map_union(call: Call) -> Typed:
    kind: pl.DataType = pl.Null()
    for index, argument in enumerate(call.arguments):
        common = common_type(kind, argument.data_type)
        if common is None:
            raise call.error(index, f"{shown(argument.data_type)} cannot be combined with {shown(kind)}")
        kind = common
    return Typed(map_rows([widen(each, kind) for each in call.arguments], _all_entries, kind), kind)


def _all_entries(*maps: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return _last_of_each([entry for each in maps for entry in each])


@function(
    "str_to_map",
    signature="text string, [between constant string], [inside constant string] -> ?",
    summary="A map of the pairs in a text. By default ',' separates pairs, and '=' separates key and value.",
    examples=[
        ("str_to_map('k1=v1,k2=v2')", [{"key": "k1", "value": "v1"}, {"key": "k2", "value": "v2"}]),
        ("map_value(str_to_map('a:1;b:2', ';', ':'), 'b')", "2"),
    ],
)
def str_to_map(call: Call) -> Typed:
    between, inside = call.constant(1, ","), call.constant(2, "=")
    if not between or not inside:
        raise call.error(1 if not between else 2, "must not be empty")
    made = map_type(pl.String(), pl.String())
    return Typed(map_rows([call[0]], functools.partial(_pairs, between, inside), made), made)


def _pairs(between: str, inside: str, text: str) -> list[dict[str, Any]]:
    found: dict[str, str | None] = {}
    for pair in text.split(between):
        key, sign, value = pair.partition(inside)
        found[key] = value if sign else None
    return [{"key": key, "value": value} for key, value in found.items()]
