"""MAP columns in JSON: an object on the wire, an array of entries in the rows.

A source reads the object as its text, and a function of this module makes entries of it; before a sink another one makes the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import FunctionError
from headrace.interfaces.functions import ScalarFunction
from headrace.jobs.dsl import Stream
from headrace_columnar.sql_types import entry_types

from headrace_sql.binding.expressions import physical, text_of

Convert = Callable[[Any], Any]


def declared_as_text(columns: Mapping[str, pl.DataType]) -> Schema:
    """Return the columns as a JSON source reads them: maps as JSON text."""
    maps = [name for name, kind in columns.items() if entry_types(kind) is not None]
    return Schema({name: pl.String() if name in maps else kind for name, kind in columns.items()}, json_columns=maps)


def with_maps(stream: Stream, columns: Mapping[str, pl.DataType]) -> Stream:
    """Return the stream of a JSON source with the maps among its columns made of their texts.

    A row whose text is no object, or whose values do not fit, goes to the dead letters.
    """
    return _called(stream, {name: kind for name, kind in columns.items() if entry_types(kind)}, reads=True)


def with_texts(stream: Stream) -> tuple[Stream, list[str]]:
    """Return the stream with its maps as JSON texts, for a sink that writes JSON, and the names of those columns."""
    columns = {name: kind for name, kind in dict(stream.schema or {}).items() if entry_types(kind)}
    return _called(stream, columns, reads=False), list(columns)


def _called(stream: Stream, columns: Mapping[str, pl.DataType], *, reads: bool) -> Stream:
    made = {}
    for name, kind in columns.items():
        function = _reader(kind) if reads else _writer(kind)
        stream._pipeline.functions.add(function.name, function)
        made[name] = f"{function.name}({text_of(physical(name))})"
    return stream.with_columns(**made) if made else stream


def _name(what: str, kind: pl.DataType) -> str:
    return f"{what}_{re.sub(r'[^a-z0-9]+', '_', type_name(kind).lower()).strip('_')}"


def _reader(kind: pl.DataType) -> ScalarFunction:
    found = entry_types(kind)
    assert found is not None
    return ScalarFunction(_name("map_of_json", kind), ReadMap(*found), kind)


def _writer(kind: pl.DataType) -> ScalarFunction:
    return ScalarFunction(_name("json_of_map", kind), write_map, pl.String())


@dataclass(frozen=True)
class ReadMap:
    """Makes entries of the text of a JSON object. Raises FunctionError for other texts and for values that do not fit."""

    key: pl.DataType
    value: pl.DataType

    def __call__(self, text: str | None) -> list[dict[str, Any]] | None:
        if text is None:
            return None
        found = json.loads(text, parse_float=Decimal)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise FunctionError(f"a MAP is a JSON object, not {text[:80]}")
        return [{"key": fitted(key, self.key), "value": fitted(value, self.value)} for key, value in found.items()]


def write_map(entries: list[dict[str, Any]] | None) -> str | None:
    """Return entries as the text of a JSON object."""
    if entries is None:
        return None
    found = {_shown(one["key"]): one["value"] for one in entries}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), default=str)


def _shown(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def fitted(value: Any, kind: pl.DataType) -> Any:
    """Return a JSON value as one of a type. Raises FunctionError for one that is none."""
    if value is None:
        return None
    try:
        if isinstance(kind, pl.String):
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        if isinstance(kind, pl.Boolean):
            return {True: True, False: False, "true": True, "false": False}[value]
        if kind.is_integer() and not isinstance(value, bool):
            number = Decimal(value) if isinstance(value, str) else value
            if number == int(number):
                return int(number)
        elif kind.is_float():
            return float(value)
        elif isinstance(kind, pl.Decimal):
            return Decimal(value)
        elif isinstance(kind, pl.List) and isinstance(value, list):
            return [fitted(each, _type(kind.inner)) for each in value]
        elif isinstance(kind, pl.Struct) and isinstance(value, dict):
            return {field.name: fitted(value.get(field.name), _type(field.dtype)) for field in kind.fields}
        elif isinstance(kind, pl.Date | pl.Datetime | pl.Time) and isinstance(value, str):
            return _time(value, kind)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        pass
    raise FunctionError(f"{str(value)[:80]!r} in a MAP is no {kind}")


def _time(text: str, kind: pl.DataType) -> Any:
    found = pl.Series([text]).str.strip_chars().str.replace("T", " ").str.strip_suffix("Z")
    if isinstance(kind, pl.Date):
        return found.str.to_date("%Y-%m-%d")[0]
    if isinstance(kind, pl.Time):
        return found.str.to_time("%H:%M:%S%.f")[0]
    moment = found.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us")
    return (moment.dt.replace_time_zone("UTC") if isinstance(kind, pl.Datetime) and kind.time_zone else moment)[0]


def _type(kind: Any) -> pl.DataType:
    made: pl.DataType = kind if isinstance(kind, pl.DataType) else kind()
    return made
