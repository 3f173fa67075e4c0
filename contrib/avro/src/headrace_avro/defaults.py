"""Converts defaults of fields to values. Schemas are JSON, which has no bytes, so fastavro gives the text of such a
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastavro

from headrace_avro.schemas import AvroType, rendered


def parsed_for_reading(kind: AvroType) -> Any:
    """Return a reader's schema for fastavro, in which the defaults of fields are values of their types."""
    parsed = fastavro.parse_schema(rendered(kind, logical=False))
    named: dict[str, Any] = {}
    _collect(parsed, named)
    for each in list(named.values()):
        for field in each.get("fields", ()):
            if "default" in field:
                field["default"] = _value(field["type"], field["default"], named)
    return parsed


def _collect(kind: Any, named: dict[str, Any]) -> None:
    if isinstance(kind, list):
        for branch in kind:
            _collect(branch, named)
    elif isinstance(kind, dict):
        if "name" in kind:
            named[kind["name"]] = kind
        for field in kind.get("fields", ()):
            _collect(field["type"], named)
        for inner in ("items", "values"):
            if inner in kind:
                _collect(kind[inner], named)


def _value(kind: Any, default: Any, named: Mapping[str, Any]) -> Any:
    """Return a default as a value. The default of a union belongs to its first branch. For bytes, each character of
    the text is a byte.
    """
    if isinstance(kind, list):
        return _value(kind[0], default, named) if kind else default
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if name in ("float", "double") and isinstance(default, int):
        return float(default)
    if name == "array":
        return [_value(kind["items"], each, named) for each in default]
    if name == "map":
        return {key: _value(kind["values"], each, named) for key, each in default.items()}
    if name == "record":
        return {
            each["name"]: _value(each["type"], default.get(each["name"], each.get("default")), named)
            for each in kind["fields"]
        }
    return default
