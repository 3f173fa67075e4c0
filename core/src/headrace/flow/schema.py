"""Column names and their types, and the words a user writes for types."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.foundation.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
Owner = TypeVar("Owner")
_KEPT_SCHEMAS_MAX = 8

#: Columns whose names begin so belong to headrace: they carry the header beside the user's columns.
RESERVED_PREFIX = "__hr_"

TYPE_NAMES: Mapping[str, str] = {
    "string": "text",
    "boolean": "true or false",
    "int8": "8-bit integer",
    "int16": "16-bit integer",
    "int32": "32-bit integer",
    "int64": "64-bit integer",
    "float32": "32-bit floating point number",
    "float64": "64-bit floating point number",
    "decimal(p, s)": "exact number of p digits, s of them behind the point (p up to 38)",
    "date": "calendar day",
    "time": "time of day, microseconds",
    "timestamp": "an instant, microseconds, shown in UTC",
    "timestamp_ntz": "a date and time without time zone, microseconds",
    "duration": "a length of time, microseconds",
    "binary": "bytes",
    "json": "any JSON value, kept as its text",
    "array<t>": "list of t",
    "struct<a: t, b: u>": "named fields",
}
_ALIASES = {
    "str": "string", "varchar": "string", "text": "string",
    "bool": "boolean",
    "tinyint": "int8", "smallint": "int16", "int": "int64", "integer": "int64", "bigint": "int64", "long": "int64",
    "float": "float64", "double": "float64", "real": "float32",
    "datetime": "timestamp", "timestamp_ltz": "timestamp", "bytes": "binary",
}  # fmt: skip


class Schema(Mapping[str, "pl.DataType"]):
    """An ordered, immutable mapping of column name to polars data type. Header columns are not part of it."""

    __slots__ = ("_types", "json_columns")

    def __init__(self, types: Mapping[str, pl.DataType], *, json_columns: Collection[str] = ()) -> None:
        for name in types:
            if name.startswith(RESERVED_PREFIX):
                raise OptionError(f"column name {name!r} begins with {RESERVED_PREFIX!r}, which is reserved")
            if name == "*" or (name.startswith("^") and name.endswith("$")):
                raise OptionError(
                    f"{name!r} is not a name for a column", hint="'*' and '^…$' stand for several columns in polars"
                )
        self._types: dict[str, pl.DataType] = dict(types)
        #: The text columns that were declared ``json``: formats keep any value of theirs as its text. It matters at
        #: source and sink; a column that an expression makes is plain text.
        self.json_columns = frozenset(json_columns) & self._types.keys()

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Schema:
        """Build a schema from a user's mapping: type names, Python types or polars types as values.

        Raises OptionError for an unknown type, naming the column and the nearest type name.
        """
        if isinstance(declared, Schema):
            return declared
        if not isinstance(declared, Mapping):
            raise OptionError(
                f"a schema is a mapping of columns to types, not {type(declared).__name__}",
                option="schema",
                hint="schema={'column': 'type', ...}",
            )
        types = {name: data_type(declared_type, column=name) for name, declared_type in declared.items()}
        texts = [name for name, kind in declared.items() if isinstance(kind, str) and kind.strip().lower() == "json"]
        return cls(types, json_columns=texts)

    def part(self, names: Iterable[str], called: Mapping[str, str] | None = None) -> Schema:
        """Return the schema of some columns in this order, under other names where ``called`` says so.

        Raises KeyError for a column that is not here.
        """
        called, kept = called or {}, list(names)
        types = {called.get(name, name): self._types[name] for name in kept}
        return Schema(types, json_columns=[called.get(name, name) for name in kept if name in self.json_columns])

    def __getitem__(self, name: str) -> pl.DataType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Schema):
            return (list(self._types.items()), self.json_columns) == (list(other._types.items()), other.json_columns)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._types.items()))

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{name}: {type_name(t)}" for name, t in self._types.items()) + ")"


Columns = TypeVar("Columns", bound="Mapping[str, pl.DataType]")


def per_schema(method: Callable[[Owner, Columns], T]) -> Callable[[Owner, Columns], T]:
    """Decorate a method of a spec that compiles something against the columns before it: the result is kept.

    A spec is asked for the same several times while a job is built. What the method gives must depend on the spec as it was made and on
    the schema only. What is kept belongs to this object: it does not travel to other processes, and copies have their own.
    """
    kept: weakref.WeakKeyDictionary[Owner, dict[Any, T]] = weakref.WeakKeyDictionary()

    @functools.wraps(method)
    def made_once(self: Owner, schema: Columns) -> T:
        made, at = kept.setdefault(self, {}), tuple(schema.items())
        if at not in made:
            if len(made) >= _KEPT_SCHEMAS_MAX:
                made.clear()
            made[at] = method(self, schema)
        return made[at]

    return made_once


def data_type(declared: Any, *, column: str | None = None) -> pl.DataType:
    """Translate a user's type into a polars data type. Raises OptionError if it is not a type."""
    import polars as pl

    if isinstance(declared, pl.DataType):
        return declared
    if isinstance(declared, type) and issubclass(declared, pl.DataType):
        return declared()
    if isinstance(declared, str):
        return _parse(declared.strip(), column)
    try:
        found = pl.DataType.from_python(declared)
        return found if isinstance(found, pl.DataType) else found()
    except (TypeError, ValueError) as error:
        raise OptionError(f"{declared!r} is not a type", option=column) from error


@functools.cache
def _types_by_name() -> Mapping[str, pl.DataType]:
    """Return the types without parts. Made once: each column of each verb of a job looks one up."""
    import polars as pl

    return {
        "string": pl.String(), "boolean": pl.Boolean(),
        "int8": pl.Int8(), "int16": pl.Int16(), "int32": pl.Int32(), "int64": pl.Int64(),
        "float32": pl.Float32(), "float64": pl.Float64(),
        "date": pl.Date(), "time": pl.Time(), "duration": pl.Duration("us"),
        "timestamp": pl.Datetime("us", "UTC"), "timestamp_ntz": pl.Datetime("us"),
        "binary": pl.Binary(), "json": pl.String(), "decimal": pl.Decimal(38, 18),
    }  # fmt: skip


def _parse(text: str, column: str | None) -> pl.DataType:
    import polars as pl

    word = _ALIASES.get(text.lower(), text.lower())
    simple = _types_by_name()
    if word in simple:
        return simple[word]
    if found := re.fullmatch(r"(?i)(decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", text):
        precision, scale = int(found[2]), int(found[3] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise OptionError(f"{text!r}: precision is 1 to 38 and scale at most the precision", option=column)
        return pl.Decimal(precision, scale)
    if re.fullmatch(
        r"(?i)(varchar|char|timestamp|timestamp_ntz|timestamp_ltz|time|binary|varbinary)\s*\(\s*\d+\s*\)", text
    ):
        return _parse(text.partition("(")[0].strip().lower().replace("varbinary", "binary").replace("char", "string")
                      .replace("varstring", "string"), column)  # fmt: skip
    if found := re.fullmatch(r"(?is)(?:array|list)\s*<(.*)>", text):
        return pl.List(_parse(found[1].strip(), column))
    if found := re.fullmatch(r"(?is)(?:struct|row)\s*<(.*)>", text):
        return pl.Struct({name: _parse(kind, column) for name, kind in _fields(found[1], text, column)})
    raise OptionError(
        f"unknown type {text!r}" + (f" for column {column!r}" if column else ""),
        hint=did_you_mean(text, [*TYPE_NAMES, *_ALIASES], known="types"),
    )


def _fields(inner: str, text: str, column: str | None) -> Iterator[tuple[str, str]]:
    """Split ``a: t, b: u`` at the commas that are in no bracket."""
    depth, start, parts = 0, 0, []
    for at, character in enumerate(inner):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    for part in parts:
        found = re.fullmatch(r"(?s)\s*(\w+)\s*[:\s]\s*(.+?)\s*", part)
        if found is None:
            raise OptionError(f"type {text!r}: expected 'name: type', found {part.strip()!r}", option=column)
        yield found[1], found[2]


def type_name(kind: Any) -> str:
    """Return the word for a polars type as a user would write it in a schema."""
    import polars as pl

    if isinstance(kind, pl.Datetime):
        return "timestamp" if kind.time_zone else "timestamp_ntz"
    if isinstance(kind, pl.Decimal):
        return f"decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.List):
        return f"array<{type_name(kind.inner)}>"
    if isinstance(kind, pl.Struct):
        return "struct<" + ", ".join(f"{field.name}: {type_name(field.dtype)}" for field in kind.fields) + ">"
    return {"Duration": "duration"}.get(type(kind).__name__, str(kind).lower())
