"""Converts a JSON Schema to columns, and columns to a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import polars as pl
from headrace.flow.schema import Schema

from headrace_jsonschema.documents import Document

_INTEGERS: Mapping[str, type[pl.DataType]] = {"int8": pl.Int8, "int16": pl.Int16, "int32": pl.Int32}
_TEXTS: Mapping[str, pl.DataType] = {"date-time": pl.Datetime("us", "UTC"), "date": pl.Date()}
_DRAFT = "http://json-schema.org/draft-07/schema#"


def columns_of(document: Document) -> Schema | None:
    """Return the columns of the properties at the top level; None if the schema has no properties.

    A property that does not have exactly one type becomes JSON text.
    """
    types = _Types(document)
    properties = types.properties(document.root, frozenset())
    if not properties:
        return None
    kinds = {name: types.of(node, frozenset()) for name, node in properties.items()}
    texts = [name for name, kind in kinds.items() if kind is None]
    return Schema({name: kind or pl.String() for name, kind in kinds.items()}, json_columns=texts)


class _Types:
    """Finds the types of properties. ``seen``: the references that lead to a node; one that leads to itself has no
    type.
    """

    def __init__(self, document: Document) -> None:
        self._root = document.root
        self._named = dict(document.references)

    def of(self, node: Any, seen: frozenset[str]) -> pl.DataType | None:
        node, seen = self._target(node, seen)
        if not isinstance(node, Mapping):
            return None
        alternatives = node.get("oneOf") or node.get("anyOf")
        if alternatives:
            others = [each for each in alternatives if not (isinstance(each, Mapping) and each.get("type") == "null")]
            return self.of(others[0], seen) if len(others) == 1 and "type" not in node else None
        name = _single_type(node)
        if name == "string":
            if node.get("contentEncoding") == "base64":
                return pl.Binary()
            return _TEXTS.get(str(node.get("format")), pl.String())
        if name == "integer":
            return _INTEGERS.get(str(node.get("connect.type") or node.get("format")), pl.Int64)()
        if name == "number":
            return pl.Float32() if node.get("connect.type") == "float32" else pl.Float64()
        if name == "boolean":
            return pl.Boolean()
        if name == "array" and isinstance(node.get("items"), Mapping):
            inner = self.of(node["items"], seen)
            return None if inner is None else pl.List(inner)
        if name == "object":
            return self._struct(node, seen)
        return None

    def _struct(self, node: Mapping[str, Any], seen: frozenset[str]) -> pl.DataType | None:
        fields = {name: self.of(each, seen) for name, each in self.properties(node, seen).items()}
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if fields and len(known) == len(fields) else None

    def properties(self, node: Any, seen: frozenset[str]) -> dict[str, Any]:
        """Return the properties of an object, with those of the parts of ``allOf``."""
        node, seen = self._target(node, seen)
        if not isinstance(node, Mapping):
            return {}
        found: dict[str, Any] = {}
        for part in node.get("allOf") or ():
            found |= self.properties(part, seen)
        given = node.get("properties")
        return found | dict(given) if isinstance(given, Mapping) else found

    def _target(self, node: Any, seen: frozenset[str]) -> tuple[Any, frozenset[str]]:
        """Return the target of a node's reference, if it has one."""
        while isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            if reference in seen:
                return None, seen
            seen = seen | {reference}
            node = self._found(reference)
        return node, seen

    def _found(self, reference: str) -> Any:
        name, _, path = reference.partition("#")
        place: Any = self._root
        if name:
            ends = [each for uri, each in self._named.items() if uri == name or uri.endswith("/" + name)]
            place = ends[0] if ends else None
        for part in path.strip("/").split("/") if path.strip("/") else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            place = place.get(key) if isinstance(place, Mapping) else None
        return place


def _single_type(node: Mapping[str, Any]) -> str | None:
    """Return the type of a node if it has exactly one type besides null."""
    given = node.get("type")
    if given is None:
        values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else []
        if values and all(isinstance(value, str | None) for value in values):
            return "string"
        return "object" if "properties" in node or "allOf" in node else None
    names = [each for each in (given if isinstance(given, list) else [given]) if each != "null"]
    return str(names[0]) if len(names) == 1 else None


def schema_of(columns: Schema, title: str) -> dict[str, Any]:
    """Return the JSON Schema of rows of these columns, each of which may be null."""
    properties = {
        name: {} if name in columns.json_columns else _nullable(_node_of(kind)) for name, kind in columns.items()
    }
    return {"$schema": _DRAFT, "title": title, "type": "object", "properties": properties}


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "type": [node["type"], "null"]} if "type" in node else node


def _node_of(kind: pl.DataType) -> dict[str, Any]:
    """Return the JSON Schema of the values that the format ``json`` writes for a type."""
    if kind.is_integer():
        small = next((name for name, each in _INTEGERS.items() if isinstance(kind, each)), None)
        return {"type": "integer", "connect.type": small} if small else {"type": "integer"}
    if kind.is_float():
        return {"type": "number"}
    if isinstance(kind, pl.Boolean):
        return {"type": "boolean"}
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.DataType):
        return {"type": "array", "items": _nullable(_node_of(kind.inner))}
    if isinstance(kind, pl.Struct):
        fields = {
            each.name: _nullable(_node_of(each.dtype)) for each in kind.fields if isinstance(each.dtype, pl.DataType)
        }
        return {"type": "object", "properties": fields}
    if isinstance(kind, pl.Datetime):
        return {"type": "string", "format": "date-time"} if kind.time_zone else {"type": "string"}
    if isinstance(kind, pl.Date):
        return {"type": "string", "format": "date"}
    if isinstance(kind, pl.Binary):
        return {"type": "string", "contentEncoding": "base64"}
    return {"type": "string"}
