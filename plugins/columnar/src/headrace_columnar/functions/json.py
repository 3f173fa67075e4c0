"""Functions of JSON, which is kept as text. Text that is not JSON gives NULL (json_exists and json_valid: false)."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import polars as pl
from headrace_columnar.json_paths import MISSING, JsonPath, PathError, parse_path
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_values
from headrace_columnar.sql_types import in_calendar

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def json_text(value: pl.Expr) -> pl.Expr:
    """Return any value as JSON text: times as ISO text, decimals as text, bytes in base 64."""
    return value.map_batches(_encode_series, return_dtype=pl.String, is_elementwise=True)


def _encode_series(series: pl.Series) -> pl.Series:
    try:
        values = series.to_list()
    except (ValueError, OverflowError):
        # A time outside of Python's calendar: only its own row has no JSON.
        return pl.Series(series.name, [_encoded_alone(series, row) for row in range(len(series))], dtype=pl.String)
    encoded = [None if value is None else _encoded(value) for value in values]
    return pl.Series(series.name, encoded, dtype=pl.String)


def _encoded_alone(series: pl.Series, row: int) -> str | None:
    try:
        value = series[row]
    except (ValueError, OverflowError):
        return None
    return None if value is None else _encoded(value)


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _decoded(text: str) -> Any:
    """Return the decoded value, or MISSING for a text that is not JSON."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return MISSING


def _path(call: Call, index: int = 1) -> JsonPath:
    try:
        return parse_path(str(call.constant(index)))
    except PathError as error:
        raise call.error(index, str(error)) from None


def _scalar(value: Any) -> str | None:
    if value is None or value is MISSING or isinstance(value, dict | list):
        return None
    if isinstance(value, str):
        return value
    return _encoded(value)


@function(
    "get_json_object",
    signature="json string, path constant string -> string",
    summary="The value at a path such as '$.a.b[0]': a text unquoted, other values as JSON; NULL if there is no value.",
    examples=[
        ("""get_json_object('{"a":{"b":1}}', '$.a.b')""", "1"),
        ("""get_json_object('{"a":{"b":1}}', '$.a')""", '{"b":1}'),
        ("""get_json_object('{"a":["x","y"]}', '$.a[*]')""", '["x","y"]'),
        ("""get_json_object('{xx]', '$.a')""", None),
    ],
)
def get_json_object(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_object_at, _path(call)), pl.String())


def _object_at(path: JsonPath, text: str) -> str | None:
    value = path.find(_decoded(text))
    if value is None or value is MISSING:
        return None
    return value if isinstance(value, str) else _encoded(value)


@function(
    "json_value",
    signature=["json string, path constant string -> string"],
    summary="The simple value at a path, as text; NULL for an object or array. "
    "JSON_VALUE(json, path RETURNING type DEFAULT x ON EMPTY DEFAULT y ON ERROR): a missing path is an error in strict "
    "mode (the default), and empty where the path begins with 'lax'.",
    examples=[
        ("""json_value('{"a":true}', '$.a')""", "true"),
        ("""json_value('{"ccc":{"hhh":["h0","h1"]}}', '$.ccc.hhh[1]')""", "h1"),
        ("""json_value('{"a":{"b":1}}', '$.a')""", None),
        ("""json_value('{"a":"5"}', '$.a' RETURNING INT)""", 5),
        ("""json_value('{}', '$.a' DEFAULT 'd' ON EMPTY)""", None),
        ("""json_value('{}', 'lax $.a' DEFAULT 'd' ON EMPTY)""", "d"),
        ("""json_value('{}', '$.a' DEFAULT 'd' ON ERROR)""", "d"),
    ],
)
def json_value(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_value_at, _path(call)), pl.String())


@function(
    "json_value_or",
    signature="json string, path constant string, on_empty string, on_error string -> string",
    summary="What JSON_VALUE(json, path DEFAULT on_empty ON EMPTY DEFAULT on_error ON ERROR) gives.",
    examples=[("json_value_or('{}', 'lax $.a', 'x', 'y')", "x"), ("json_value_or('{a', '$.a', 'x', 'y')", "y")],
    answers_null=True,
)
def json_value_or(call: Call) -> pl.Expr:
    # The three kinds of outcome are distinguished by the prefix of the value.
    outcome = map_values(call[0], functools.partial(_outcome_at, _path(call)), pl.String())
    kind = outcome.str.slice(0, 1)
    chosen = pl.when(kind == "=").then(outcome.str.slice(1))
    return chosen.when(kind == "0").then(call[2]).when(kind == "!").then(call[3])


def _value_at(path: JsonPath, text: str) -> str | None:
    return _scalar(path.find(_decoded(text)))


def _outcome_at(path: JsonPath, text: str) -> str | None:
    """Return ``=`` and the value, ``0`` for empty, ``!`` for an error, None for null."""
    decoded = _decoded(text)
    if decoded is MISSING:
        return "!"
    value = path.find(decoded)
    if value is MISSING:
        return "0" if path.lax else "!"
    if isinstance(value, dict | list):
        return "0" if path.lax else "!"
    shown = _scalar(value)
    return None if shown is None else "=" + shown


@function(
    "json_query",
    signature="json string, path constant string -> string",
    summary="The object or array at a path, as JSON; NULL for a simple value.",
    examples=[("""json_query('{"a":[1,2]}', '$.a')""", "[1,2]"), ("""json_query('{"a":1}', '$.a')""", None)],
)
def json_query(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_nested_at, _path(call)), pl.String())


def _nested_at(path: JsonPath, text: str) -> str | None:
    value = path.find(_decoded(text))
    return _encoded(value) if isinstance(value, dict | list) else None


@function(
    "json_string_at",
    signature="json string, path constant string -> string",
    summary="The simple value at a path, as JSON; NULL for an object or array, and if nothing is there.",
    examples=[
        ("""json_string_at('{"a":"x"}', '$.a')""", '"x"'),
        ("""json_string_at('{"a":1}', '$.a')""", "1"),
        ("""json_string_at('{"a":[1]}', '$.a')""", None),
    ],
)
def json_string_at(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_simple_at, _path(call)), pl.String())


def _simple_at(path: JsonPath, text: str) -> str | None:
    value = path.find(_decoded(text))
    return None if value is None or value is MISSING or isinstance(value, dict | list) else _encoded(value)


@function(
    "json_exists",
    signature="json string, path constant string -> boolean",
    summary="Whether there is a value other than null at a path.",
    examples=[
        ("""json_exists('{"a":1}', '$.a')""", True),
        ("""json_exists('{"a":null}', '$.a')""", False),
        ("json_exists('x', '$.a')", False),
    ],
)
def json_exists(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_exists_at, _path(call)), pl.Boolean())


def _exists_at(path: JsonPath, text: str) -> bool:
    value = path.find(_decoded(text))
    return value is not None and value is not MISSING


@function(
    "json_array_length",
    signature="json string -> int64",
    summary="The number of elements of a JSON array; NULL for anything else.",
    examples=[("json_array_length('[1,2,3]')", 3), ("json_array_length('{}')", None)],
)
def json_array_length(call: Call) -> pl.Expr:
    return map_values(call[0], _elements, pl.Int64())


def _elements(text: str) -> int | None:
    value = _decoded(text)
    return len(value) if isinstance(value, list) else None


@function(
    "json_object_keys",
    signature="json string -> array<string>",
    summary="The keys of a JSON object; NULL for anything else.",
    examples=[("""json_object_keys('{"a":1,"b":2}')""", ["a", "b"])],
)
def json_object_keys(call: Call) -> pl.Expr:
    return map_values(call[0], _keys, pl.List(pl.String()))


def _keys(text: str) -> list[str] | None:
    value = _decoded(text)
    return list(value) if isinstance(value, dict) else None


@function(
    "json_valid",
    "is_json",
    signature="text string -> boolean",
    summary="Whether the text is JSON.",
    examples=[("""json_valid('{"a":1}')""", True), ("json_valid('{a}')", False)],
)
def json_valid(call: Call) -> pl.Expr:
    return map_values(call[0], _is_valid, pl.Boolean())


def _is_valid(text: str) -> bool:
    return _decoded(text) is not MISSING


@function(
    "to_json",
    signature="value any -> string",
    summary="The value as JSON: structs as objects, times as ISO text, bytes in base 64.",
    examples=[("to_json(named_struct('a', 1, 'b', array('x')))", '{"a":1,"b":["x"]}'), ("to_json('é')", '"é"')],
)
def to_json(call: Call) -> pl.Expr:
    return json_text(in_calendar(call[0], call.arguments[0].data_type))


@function(
    "json_object",
    signature="key string, value any, [more any...] -> string",
    summary="A JSON object of keys and values: json_object('a', 1, 'b', 'x').",
    examples=[("json_object('a', 1, 'b', NULL)", '{"a":1,"b":null}')],
    answers_null=True,
)
def json_object(call: Call) -> pl.Expr:
    if len(call) % 2:
        raise call.error(len(call) - 1, "this key has no value")
    for index in range(0, len(call), 2):
        if not call.is_constant(index) or not isinstance(call.constant(index), str):
            raise call.error(index, "a key must be a constant text")
    keys = [str(call.constant(index)) for index in range(0, len(call), 2)]
    values = [call[index].alias(f"{index}") for index in range(1, len(call), 2)]
    return pl.struct(values).map_batches(functools.partial(_objects, keys), return_dtype=pl.String, is_elementwise=True)


def _objects(keys: list[str], series: pl.Series) -> pl.Series:
    made = [_encoded(dict(zip(keys, row.values(), strict=True))) for row in series.to_list()]
    return pl.Series(series.name, made, dtype=pl.String)
