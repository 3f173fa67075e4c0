"""MAP columns in JSON: an object on the wire, an array of entries in the rows.

A source reads the object as its text, and a function of this module makes entries of it; before a sink another one makes the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, type_name
from headrace.interfaces.functions import ScalarFunction
from headrace.jobs.dsl import Stream
from headrace_columnar.sql_types import entry_types

from headrace_sql.binding.trees import physical, text_of
from headrace_sql.operators.json_maps import ReadMap, write_map

Convert = Callable[[Any], Any]


def declared_as_text(columns: Mapping[str, pl.DataType]) -> Schema:
    """Return the columns as a JSON source reads them: maps as JSON text."""
    maps = [name for name, kind in columns.items() if entry_types(kind) is not None]
    return Schema({name: pl.String() if name in maps else kind for name, kind in columns.items()}, json_columns=maps)


def with_maps(stream: Stream, columns: Mapping[str, pl.DataType]) -> Stream:
    """Return the stream of a JSON source with the maps among its columns made of their texts.

    A row whose text is not an object, or whose values do not fit, goes to the dead letters.
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
        stream.pipeline.functions.add(function.name, function)
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
