"""Values of MAP columns: entries of a JSON object's text, and the text of entries. Called by functions of ``binding.json_maps``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.foundation.errors import DataError


@dataclass(frozen=True)
class ReadMap:
    """Makes entries of the text of a JSON object. Raises DataError for other texts and for values that do not fit."""

    key: pl.DataType
    value: pl.DataType

    def __call__(self, text: str | None) -> list[dict[str, Any]] | None:
        if text is None:
            return None
        found = json.loads(text, parse_float=Decimal)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise DataError(f"a MAP is a JSON object, not {text[:80]}")
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
    """Convert a JSON value to a type. Raises DataError if it does not fit."""
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
    raise DataError(f"{str(value)[:80]!r} in a MAP is no {kind}")


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
