"""Which types of a stream's columns fit which field types of an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, type_name

#: The longest keyword is 32,766 bytes of UTF-8; longer texts are stored, but not found by this field.
KEYWORD_CHARACTERS_MAX = 8191

_SIMPLE: Mapping[type[pl.DataType], str] = {
    pl.Boolean: "boolean", pl.Int8: "byte", pl.Int16: "short", pl.Int32: "integer", pl.Int64: "long",
    pl.UInt8: "short", pl.UInt16: "integer", pl.UInt32: "long", pl.UInt64: "unsigned_long",
    pl.Float32: "float", pl.Float64: "double", pl.Decimal: "double", pl.Date: "date", pl.Datetime: "date",
    pl.Binary: "binary",
}  # fmt: skip
_NUMBERS = {
    "long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long",
}  # fmt: skip
_DATES = {"date", "date_nanos"}
_TEXTS = {"keyword", "text", "wildcard", "constant_keyword", "match_only_text", "version", "search_as_you_type"}
_OBJECTS = {"object", "nested", "flattened", "passthrough"}


def properties_of(schema: Schema, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a stream's columns. ``own`` are the user's: a type's name, or a whole mapping."""
    found = {name: _declared(kind, any_json=name in schema.json_columns) for name, kind in schema.items()}
    found |= {name: {"type": given} if isinstance(given, str) else given for name, given in own.items()}
    return {name: mapping for name, mapping in found.items() if mapping is not None}


def _declared(kind: pl.DataType, *, any_json: bool = False) -> dict[str, Any] | None:
    """Return the mapping of a type; None leaves it to the first value."""
    if any_json:
        return {"type": "object", "enabled": False}
    if isinstance(kind, pl.List | pl.Array):
        return _declared(kind.inner)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        inner = {field.name: _declared(field.dtype) for field in kind.fields}  # type: ignore[arg-type]
        return {"properties": {name: mapping for name, mapping in inner.items() if mapping is not None}}
    if isinstance(kind, pl.Null):
        return None
    if type(kind) in _SIMPLE:
        return {"type": _SIMPLE[type(kind)]}
    return {"type": "keyword", "ignore_above": KEYWORD_CHARACTERS_MAX}


def mapped(name: str, mappings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the mapping of a field; dots in its name lead into objects. None if it has no mapping."""
    at: Mapping[str, Any] = mappings
    for part in name.split("."):
        found = at.get("properties", {}).get(part)
        if found is None:
            return None
        at = found
    return at


def is_strict(mappings: Mapping[str, Any]) -> bool:
    """Return whether the index refuses documents with fields that it does not know."""
    return str(mappings.get("dynamic", "true")).lower() == "strict"


def misfit(kind: pl.DataType, field: Mapping[str, Any], *, any_json: bool = False) -> str | None:
    """Return why an index refuses all values of a type in a field, or None when it accepts at least some.

    A text may be valid for a field of numbers or dates, so that is decided for each row.
    """
    if any_json or field.get("enabled") is False:
        return None
    if isinstance(kind, pl.List | pl.Array):
        return misfit(kind.inner, field)  # type: ignore[arg-type]
    wanted = field.get("type", "object")
    structured = isinstance(kind, pl.Struct)
    texts = isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null)
    moments = isinstance(kind, pl.Date | pl.Datetime)
    if wanted in _OBJECTS:
        fits = structured or isinstance(kind, pl.Null)
    elif wanted in _NUMBERS:
        fits = texts or kind.is_numeric()
    elif wanted == "boolean":
        fits = texts or isinstance(kind, pl.Boolean)
    elif wanted in _DATES:
        # Times of day are written as texts; the field may have a format for them.
        fits = texts or moments or kind.is_integer() or (isinstance(kind, pl.Time) and "format" in field)
    elif wanted in _TEXTS:
        fits = not structured
    else:
        return None
    return None if fits else f"{type_name(kind)} values do not fit a field of type {wanted!r}"
