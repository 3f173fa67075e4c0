"""Types as Flink and PyFlink write them: ``"ROW<a INT, b ARRAY<STRING>>"``, and PyFlink's ``DataTypes``.

``headrace.flow.schema.data_type`` reads headrace's own type names. Some of them have another meaning in Flink, where
``INT`` has 32 bits. PyFlink is not imported: its types are recognised by the names of their classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import OptionError

if TYPE_CHECKING:
    import polars as pl

_NULLABLE = re.compile(r"(?is)\s+(NOT\s+)?NULL\s*$")
_NESTED = re.compile(r"(?is)(ROW|ARRAY|MAP|MULTISET)\s*[<(](.*)[>)]")
_WORD = re.compile(
    r"(?i)([A-Z_]+(?:\s+(?:PRECISION|VARYING|WITH\s+LOCAL\s+TIME\s+ZONE))*)\s*(?:\(\s*([\d\s,]*)\s*\))?(?:\s+WITH\s+LOCAL\s+TIME\s+ZONE)?"
)


def flink_type(declared: Any) -> pl.DataType:
    """Return the polars type of a type of Flink: a text, or an object of PyFlink's ``DataTypes``. Raises OptionError."""
    if isinstance(declared, str):
        return _of_text(declared)
    name = type(declared).__name__
    made = _objects().get(name)
    if made is None:
        raise OptionError(f"{declared!r:.100} is not a type of Flink that headrace knows")
    return made(declared)


def _simple() -> dict[str, pl.DataType]:
    import polars as pl

    return {
        "CHAR": pl.String(), "VARCHAR": pl.String(), "STRING": pl.String(), "BOOLEAN": pl.Boolean(), "BINARY": pl.Binary(),
        "VARBINARY": pl.Binary(), "BYTES": pl.Binary(), "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INT": pl.Int32(),
        "INTEGER": pl.Int32(), "BIGINT": pl.Int64(), "FLOAT": pl.Float32(), "DOUBLE": pl.Float64(),
        "DOUBLE PRECISION": pl.Float64(), "DATE": pl.Date(), "TIME": pl.Time(), "TIMESTAMP": pl.Datetime("us"),
        "TIMESTAMP_LTZ": pl.Datetime("us", "UTC"),
    }  # fmt: skip


def _of_text(text: str) -> pl.DataType:
    import polars as pl

    plain = _NULLABLE.sub("", text.strip())
    nested = _NESTED.fullmatch(plain)
    if nested is not None:
        word, inside = nested[1].upper(), nested[2]
        if word == "ROW":
            return pl.Struct({name: _of_text(kind) for name, kind in _fields(inside)})
        parts = [_of_text(each) for each in _divided(inside)]
        if word == "MAP":
            if len(parts) != 2:
                raise OptionError(f"{text!r}: MAP takes two types")
            return map_type(*parts)
        return pl.List(parts[0])
    found = _WORD.fullmatch(plain)
    if found is not None:
        word = " ".join(found[1].upper().split())
        if "LOCAL TIME ZONE" in plain.upper():
            word = "TIMESTAMP_LTZ"
        numbers = [int(each) for each in re.findall(r"\d+", found[2] or "")]
        if word in ("DECIMAL", "DEC", "NUMERIC"):
            return pl.Decimal(numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
        simple = _simple().get(word)
        if simple is not None:
            return simple
    raise OptionError(
        f"{text!r} is not a type of Flink that headrace knows",
        hint="BIGINT, STRING, ROW<a INT, b DOUBLE>, ARRAY<STRING>, …",
    )


def map_type(key: pl.DataType, value: pl.DataType) -> pl.DataType:
    """Return the type of a map: an array of entries."""
    import polars as pl

    return pl.List(pl.Struct({"key": key, "value": value}))


def _divided(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(_divided(text)):
        found = re.fullmatch(r"(?s)`((?:[^`]|``)+)`\s+(.+)|(\w+)\s+(.+)", each)
        if found is None or (found[3] and re.fullmatch(r"(?i)(NOT\s+)?NULL|PRECISION|WITH\b.*", found[4])):
            yield f"f{number}", each  # ROW<INT, STRING>
        else:
            yield (found[1].replace("``", "`"), found[2]) if found[1] else (found[3], found[4])


def _objects() -> dict[str, Callable[[Any], pl.DataType]]:
    import polars as pl

    simple = _simple()
    names = {
        "CharType": "CHAR", "VarCharType": "VARCHAR", "BooleanType": "BOOLEAN", "BinaryType": "BINARY", "VarBinaryType": "BYTES",
        "TinyIntType": "TINYINT", "SmallIntType": "SMALLINT", "IntType": "INT", "BigIntType": "BIGINT", "FloatType": "FLOAT",
        "DoubleType": "DOUBLE", "DateType": "DATE", "TimeType": "TIME", "TimestampType": "TIMESTAMP",
        "LocalZonedTimestampType": "TIMESTAMP_LTZ",
    }  # fmt: skip
    made: dict[str, Callable[[Any], pl.DataType]] = {
        name: partial(_of_word, simple[word]) for name, word in names.items()
    }
    made["DecimalType"] = lambda it: pl.Decimal(it.precision, it.scale)
    made["ArrayType"] = made["MultisetType"] = lambda it: pl.List(flink_type(it.element_type))
    made["ListViewType"] = lambda it: pl.List(flink_type(it._element_type))
    made["MapType"] = lambda it: map_type(flink_type(it.key_type), flink_type(it.value_type))
    made["RowType"] = lambda it: pl.Struct({each.name: flink_type(each.data_type) for each in it.fields})
    return made


def _of_word(kind: pl.DataType, declared: Any) -> pl.DataType:
    return kind
