"""Functions that make JSON of values, as the JSON functions of SQL:2016 write it: maps as objects, decimals as numbers."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import polars as pl
from headrace_columnar.casts import to_text
from headrace_columnar.functions.json import json_valid
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_values
from headrace_columnar.sql_types import entry_types, in_calendar, inner_type, is_text

_encoder = msgspec.json.Encoder(decimal_format="number")
_Converter = Callable[[Any], Any]


@function(
    "json_string",
    signature="value any -> string",
    summary="The value as JSON: rows and maps as objects, decimals as numbers, times as ISO text, bytes in base 64.",
    examples=[
        ("json_string('a\"b')", '"a\\"b"'),
        ("json_string(array(1, NULL))", "[1,null]"),
        ("json_string(map('a', 1))", '{"a":1}'),
        ("json_string(CAST(1.50 AS DECIMAL(4, 2)))", "1.50"),
        ("json_string(NULL)", None),
    ],
)
def json_string(call: Call) -> pl.Expr:
    kind = call.arguments[0].data_type
    if kind.is_integer() or isinstance(kind, pl.Boolean):
        return call[0].cast(pl.String)
    return in_calendar(call[0], kind).map_batches(
        functools.partial(_encoded, kind), return_dtype=pl.String, is_elementwise=True
    )


def _encoded(kind: pl.DataType, series: pl.Series) -> pl.Series:
    convert = _converter(kind)
    values = [
        None if value is None else _encoder.encode(value if convert is None else convert(value)).decode()
        for value in series.to_list()
    ]
    return pl.Series(series.name, values, dtype=pl.String)


def _converter(kind: Any) -> _Converter | None:
    """Return what makes a value of a type one that is encoded as JSON; None: it is encoded as it is."""
    entries = entry_types(kind)
    if entries is not None:
        return functools.partial(_as_object, _converter(entries[1]))
    if isinstance(kind, pl.List | pl.Array):
        inner = _converter(inner_type(kind))
        return None if inner is None else functools.partial(_as_array, inner)
    if isinstance(kind, pl.Struct):
        return functools.partial(_as_row, {each.name: _converter(each.dtype) for each in kind.fields})
    if isinstance(kind, pl.Float32) or kind == pl.Float32:
        return lambda value: float(str(np.float32(value)))
    return _time_text if kind in (pl.Datetime, pl.Time) or isinstance(kind, pl.Datetime | pl.Time) else None


def _converted(convert: _Converter | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _as_object(convert: _Converter | None, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {str(each["key"]): _converted(convert, each["value"]) for each in entries if each is not None}


def _as_array(convert: _Converter, values: list[Any]) -> list[Any]:
    return [_converted(convert, value) for value in values]


def _as_row(fields: dict[str, _Converter | None], row: dict[str, Any]) -> dict[str, Any]:
    return {name: _converted(convert, row[name]) for name, convert in fields.items()}


def _time_text(value: datetime.datetime | datetime.time) -> str:
    """ISO text with as many digits of a second as are not zero: none, three or six."""
    digits = "seconds" if not value.microsecond else "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
    return value.isoformat(timespec=digits).removesuffix("+00:00") + ("Z" if value.tzinfo is not None else "")


@function(
    "json_raw",
    signature="text string -> string",
    summary="The text itself, which must be JSON: a row with another text fails. In SQL texts JSON('…') inside of JSON_OBJECT "
    "and JSON_ARRAY.",
    examples=[("""json_raw('{"a":[1]}')""", '{"a":[1]}')],
)
def json_raw(call: Call) -> pl.Expr:
    built = json_valid(call)
    valid = built if isinstance(built, pl.Expr) else built.expression
    call.compiler.fail_when(~valid, "JSON(…): {value} is not JSON", call[0])
    return call[0]


@function(
    "json_key",
    signature="key scalar -> string",
    summary="The key of a JSON object as JSON: a text. A row without a key fails. In SQL texts the key of JSON_OBJECTAGG.",
    examples=[("json_key(true)", '"true"'), ("json_key(current_date() IS NULL)", '"false"')],
    answers_null=True,
)
def json_key(call: Call) -> pl.Expr:
    call.compiler.fail_when(call[0].is_null(), "a key of a JSON object must not be NULL")
    return map_values(to_text(call.arguments[0]), _quoted_key, pl.String())


def _quoted_key(text: str) -> str:
    return _encoder.encode(text).decode()


@function(
    "json_join",
    signature=[
        "brackets constant string, parts array<string> -> string",
        "brackets constant string, part string, [more string...] -> string",
        "brackets constant string -> string",
    ],
    summary="Parts that are JSON texts, with commas between them and brackets around; NULL parts are left out.",
    examples=[
        ("json_join('[]', '1', NULL, '\"a\"')", '[1,"a"]'),
        ("json_join('{}', '\"a\":1', '\"b\":2')", '{"a":1,"b":2}'),
        ("json_join('[]', array('1', '2'))", "[1,2]"),
        ("json_join('[]')", "[]"),
    ],
    answers_null=True,
)
def json_join(call: Call) -> pl.Expr:
    brackets = str(call.constant(0))
    if brackets not in ("[]", "{}"):
        raise call.error(0, "must be '[]' or '{}'")
    if len(call) == 1:
        return pl.lit(brackets)
    parts = call.expressions()[1:]
    listed = parts[0] if isinstance(call.arguments[1].data_type, pl.List | pl.Array) else pl.concat_list(parts)
    return pl.lit(brackets[0]) + listed.list.join(",", ignore_nulls=True) + pl.lit(brackets[1])


@function(
    "json_entries",
    signature="entries map, null_on_null constant boolean -> string",
    summary="A JSON object of entries whose keys and values are JSON texts, in the order of the keys. Of equal keys the last counts; "
    "entries without value are null, or are left out.",
    examples=[
        ("""json_entries(map('"b"', '1', '"a"', NULL), true)""", '{"a":null,"b":1}'),
        ("""json_entries(map('"a"', '1', '"b"', NULL), false)""", '{"a":1}'),
    ],
)
def json_entries(call: Call) -> pl.Expr:
    types = entry_types(call.arguments[0].data_type)
    assert types is not None, "the signature asks for a map"
    if not all(is_text(kind) or isinstance(kind, pl.Null) for kind in types):
        raise call.error(0, "keys and values must be texts")
    return map_values(call[0], functools.partial(_joined_entries, bool(call.constant(1))), pl.String())


def _joined_entries(null_on_null: bool, entries: list[dict[str, str | None]]) -> str:
    found = {str(each["key"]): each["value"] for each in entries if null_on_null or each["value"] is not None}
    parts = [f"{key}:{found[key] or 'null'}" for key in sorted(found, key=_place_of_key)]
    return "{" + ",".join(parts) + "}"


def _place_of_key(key: str) -> bytes:
    """Return what keys that are JSON texts are ordered by: their texts, as Java compares them."""
    text = json.loads(key) if "\\" in key else key[1:-1]
    return str(text).encode("utf-16-be", "surrogatepass")


@function(
    "json_quote",
    signature="text string -> string",
    summary="The text as a JSON string: in double quotes, with quotes, slashes, control characters and letters beyond ASCII escaped.",
    examples=[("json_quote('a\"b')", '"a\\"b"'), ("json_quote('a/é')", '"a\\/\\u00e9"')],
)
def json_quote(call: Call) -> pl.Expr:
    return map_values(call[0], _quoted, pl.String())


def _quoted(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")


@function(
    "json_unquote",
    signature="text string -> string",
    summary="The text of a JSON string; a text that is not a JSON string is returned unchanged.",
    examples=[("""json_unquote('"a\\u0041"')""", "aA"), ("json_unquote('a')", "a"), ("""json_unquote('"a')""", '"a')],
)
def json_unquote(call: Call) -> pl.Expr:
    return map_values(call[0], _unquoted, pl.String())


def _unquoted(text: str) -> str:
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
    return found if isinstance(found, str) else text
