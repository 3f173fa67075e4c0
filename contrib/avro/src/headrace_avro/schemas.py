"""Avro schemas as trees: every name in them is resolved, so that what reads, writes and compares them sees types alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from headrace.foundation.errors import OptionError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
#: Levels of types within each other. What walks a tree is recursive.
_DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type. ``kind`` is one of the primitives, record, enum, fixed, array, map, union, or recursion: a name of a type it is part of."""

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    size: int = 0
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = field(default=())

    @property
    def inner(self) -> AvroType:
        """The type of the items of an array, or of the values of a map."""
        assert self.items is not None
        return self.items

    @property
    def nullable(self) -> tuple[int, AvroType] | None:
        """For a union of null and one other type: the place of null, and the other type. Else None."""
        if self.kind != "union" or len(self.branches) != 2:
            return None
        kinds = [branch.kind for branch in self.branches]
        if kinds.count("null") != 1:
            return None
        place = kinds.index("null")
        return place, self.branches[1 - place]

    def field(self, name: str) -> AvroField | None:
        """Return the field of this name of a record."""
        return next((each for each in self.fields if each.name == name), None)

    def with_fields(self, names: Sequence[str]) -> AvroType:
        """Return the record with only these fields, in their order here."""
        return replace(self, fields=tuple(each for each in self.fields if each.name in set(names)))

    def __str__(self) -> str:
        if self.kind == "union":
            return "union of " + ", ".join(map(str, self.branches))
        shown = f"{self.kind} {self.name}" if self.name else self.kind
        if self.logical == "decimal":
            return f"{shown} (decimal({self.precision}, {self.scale}))"
        return f"{shown} ({self.logical})" if self.logical else shown


def parse_schema(text: str, *, plugin: str, option: str, references: Sequence[str] = ()) -> AvroType:
    """Return the record that a schema describes. Raises OptionError for a text that is none, with the reason.

    ``references``: schemas of types that it uses by their names, those that others need first.
    """

    def refused(why: str) -> OptionError:
        hint = 'a schema is a JSON text such as \'{"type": "record", "name": "event", "fields": […]}\''
        return OptionError(f"this is not an Avro schema of a record: {why}", plugin=plugin, option=option, hint=hint)

    named: dict[str, Any] = {}
    tree = _Tree({})
    try:
        for each in references:
            tree.read(fastavro.parse_schema(json.loads(each), named_schemas=named))
        parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except RecursionError:
        raise refused("the schema is nested too deeply") from None
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError) as error:
        raise refused(f"{type(error).__name__}: {error}") from error
    if not isinstance(parsed, Mapping) or parsed.get("type") != "record":
        raise refused("the schema describes a type that is not a record")
    try:
        return tree.read(parsed)
    except (KeyError, TypeError, ValueError) as error:
        raise refused(str(error)) from error


class _Tree:
    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named
        self._open: list[str] = []

    def read(self, given: Any, depth: int = 0) -> AvroType:
        if depth > _DEPTH_MAX:
            raise ValueError("the schema is nested too deeply")
        if isinstance(given, str):
            if given in PRIMITIVES:
                return AvroType(given)
            if given in self._open:
                return AvroType("recursion", name=given)
            return self._named[given]
        if isinstance(given, list):
            return AvroType("union", branches=tuple(self.read(each, depth + 1) for each in given))
        kind = given["type"]
        if not isinstance(kind, str) or kind in self._named or kind in self._open:
            return self.read(kind, depth + 1)
        logical = _logical(given, kind)
        precision, scale = (int(given["precision"]), int(given.get("scale", 0))) if logical == "decimal" else (0, 0)
        if kind in PRIMITIVES:
            return AvroType(kind, logical, precision, scale)
        if kind in ("array", "map"):
            return AvroType(kind, items=self.read(given["items" if kind == "array" else "values"], depth + 1))
        aliases = tuple(given.get("aliases", ()))
        name = given["name"]
        if kind == "fixed":
            made = AvroType(kind, logical, precision, scale, name=name, aliases=aliases, size=int(given["size"]))
        elif kind == "enum":
            symbols = tuple(given["symbols"])
            made = AvroType(kind, name=name, aliases=aliases, symbols=symbols, default_symbol=given.get("default"))
        else:
            self._open.append(name)
            fields = tuple(self._field(each, depth) for each in given["fields"])
            self._open.pop()
            made = AvroType("record", name=name, aliases=aliases, fields=fields)
        self._named[name] = made
        return made

    def _field(self, given: Mapping[str, Any], depth: int) -> AvroField:
        return AvroField(
            given["name"],
            self.read(given["type"], depth + 1),
            tuple(given.get("aliases", ())),
            "default" in given,
            given.get("default"),
        )


#: The types that each logical type can be of. Others are taken as if they had no logical type, as Avro says.
_LOGICAL: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
}
_DECIMAL_DIGITS_MAX = 38


def _logical(given: Mapping[str, Any], kind: str) -> str | None:
    """Return the logical type, or None when there is none that holds."""
    logical = given.get("logicalType")
    if kind not in _LOGICAL.get(str(logical), ()):
        return None
    if logical == "uuid" and kind == "fixed" and given.get("size") != 16:
        return None
    if logical == "decimal":
        precision, scale = given.get("precision"), given.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return None
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
            return None
    return str(logical)


def rendered(kind: AvroType, *, logical: bool = True) -> Any:
    """Return a schema as JSON values, as fastavro takes it. ``logical``: whether it has its logical types."""
    return _rendered(kind, set(), logical)


def canonical_text(record: AvroType) -> str:
    """Return a schema as a text, the same one for the same schema."""
    return json.dumps(rendered(record), separators=(",", ":"))


def _rendered(kind: AvroType, known: set[str], logical: bool) -> Any:
    if kind.kind == "recursion" or (kind.name and kind.name in known):
        return kind.name
    if kind.name:
        known.add(kind.name)
    if kind.kind == "union":
        return [_rendered(branch, known, logical) for branch in kind.branches]
    made: dict[str, Any] = {"type": kind.kind}
    if kind.name:
        made["name"] = kind.name
    if kind.aliases:
        made["aliases"] = list(kind.aliases)
    if logical and kind.logical:
        made["logicalType"] = kind.logical
        if kind.logical == "decimal":
            made |= {"precision": kind.precision, "scale": kind.scale}
    if kind.kind == "array":
        made["items"] = _rendered(kind.inner, known, logical)
    elif kind.kind == "map":
        made["values"] = _rendered(kind.inner, known, logical)
    elif kind.kind == "fixed":
        made["size"] = kind.size
    elif kind.kind == "enum":
        made["symbols"] = list(kind.symbols)
        if kind.default_symbol is not None:
            made["default"] = kind.default_symbol
    elif kind.kind == "record":
        made["fields"] = [_rendered_field(each, known, logical) for each in kind.fields]
    return made if len(made) > 1 else kind.kind


def _rendered_field(each: AvroField, known: set[str], logical: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"name": each.name, "type": _rendered(each.type, known, logical)}
    if each.aliases:
        made["aliases"] = list(each.aliases)
    if each.has_default:
        made["default"] = each.default
    return made
