"""Types of Flink SQL as polars types, and as the words that expressions have for them."""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace.foundation.errors import ExpressionError
from headrace_columnar.dialect import span
from headrace_columnar.sql_types import entry_types
from sqlglot import exp

_SIMPLE: dict[str, pl.DataType] = {
    "CHAR": pl.String(), "VARCHAR": pl.String(), "TEXT": pl.String(), "NCHAR": pl.String(), "NVARCHAR": pl.String(),
    "BOOLEAN": pl.Boolean(), "BINARY": pl.Binary(), "VARBINARY": pl.Binary(),
    "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INT": pl.Int32(), "BIGINT": pl.Int64(),
    "FLOAT": pl.Float32(), "DOUBLE": pl.Float64(), "DATE": pl.Date(), "TIME": pl.Time(),
    "TIMESTAMP": pl.Datetime("us"), "TIMESTAMPNTZ": pl.Datetime("us"), "DATETIME": pl.Datetime("us"),
    "TIMESTAMPLTZ": pl.Datetime("us", "UTC"), "TIMESTAMPTZ": pl.Datetime("us", "UTC"),
}  # fmt: skip
#: How the expressions of headrace-columnar spell these types in a CAST.
_WORDS = {
    "CHAR": "VARCHAR", "VARCHAR": "VARCHAR", "TEXT": "VARCHAR", "NCHAR": "VARCHAR", "NVARCHAR": "VARCHAR",
    "BOOLEAN": "BOOLEAN", "BINARY": "BINARY", "VARBINARY": "BINARY", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT",
    "INT": "INT32", "BIGINT": "BIGINT", "FLOAT": "FLOAT32", "DOUBLE": "DOUBLE", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMPNTZ": "TIMESTAMP_NTZ", "DATETIME": "TIMESTAMP_NTZ",
    "TIMESTAMPLTZ": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP",
}  # fmt: skip
#: Precision of TIMESTAMP without a number.
DEFAULT_PRECISION = 6


def word_of(node: exp.Expr) -> str:
    """Return sqlglot's word for a type node."""
    kind: Any = node.this
    return str(getattr(kind, "value", kind))


def polars_type(node: exp.Expr, text: str) -> pl.DataType:
    """Return the polars type of a declared type. Raises ExpressionError with the place in the text."""
    word = word_of(node)
    if word in _SIMPLE:
        return _SIMPLE[word]
    inner = node.expressions
    if word in ("DECIMAL", "NUMERIC"):
        if not all(each.name.isdigit() for each in inner) or len(inner) > 2:
            raise _error(node, text, "DECIMAL takes a precision and a scale: DECIMAL(10, 2)")
        precision, scale = (int(inner[0].name), int(inner[1].name) if len(inner) > 1 else 0) if inner else (10, 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise _error(node, text, "precision is 1 to 38 and scale at most the precision")
        return pl.Decimal(precision, scale)
    if word in ("ARRAY", "LIST", "MULTISET") and inner:
        return pl.List(polars_type(inner[0], text))
    if word == "STRUCT":
        return pl.Struct({each.name: polars_type(each.args["kind"], text) for each in inner})
    if word == "MAP" and len(inner) == 2:
        return pl.List(pl.Struct({"key": polars_type(inner[0], text), "value": polars_type(inner[1], text)}))
    raise _error(node, text, f"type {node.sql(dialect='flink')} is not supported")


def cast_word(node: exp.Expr, text: str) -> str:
    """Return a type as it is written in a CAST of an expression."""
    word, inner = word_of(node), node.expressions
    if word in ("VARCHAR", "CHAR", "NVARCHAR", "NCHAR") and inner and inner[0].name.isdigit():
        return f"VARCHAR({inner[0].name})"
    if word in _WORDS:
        return _WORDS[word]
    if word in ("DECIMAL", "NUMERIC"):
        return f"DECIMAL({', '.join(each.name for each in inner)})" if inner else "DECIMAL(10, 0)"
    if word == "ARRAY" and inner:
        return f"ARRAY<{cast_word(inner[0], text)}>"
    if word == "STRUCT":
        fields = [f"{each.name}: {cast_word(each.args['kind'], text)}" for each in inner]
        return f"STRUCT<{', '.join(fields)}>"
    if word == "MAP" and len(inner) == 2:
        return f"ARRAY<STRUCT<key: {cast_word(inner[0], text)}, value: {cast_word(inner[1], text)}>>"
    raise _error(node, text, f"type {node.sql(dialect='flink')} is not supported in CAST")


def word_for(kind: pl.DataType) -> str | None:
    """Return the word by which a CAST of an expression gives this type, or None where it has none."""
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMP" if kind.time_zone else "TIMESTAMP_NTZ"
    words = {
        "String": "VARCHAR", "Boolean": "BOOLEAN", "Binary": "BINARY", "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT32",
        "Int64": "BIGINT", "Float32": "FLOAT32", "Float64": "DOUBLE", "Date": "DATE", "Time": "TIME",
    }  # fmt: skip
    return words.get(type(kind).__name__)


def declared_as(kind: pl.DataType) -> str | None:
    """Return how a table declares a column of this type; None for a type that no table can have."""
    words = {
        "String": "STRING", "Boolean": "BOOLEAN", "Binary": "BYTES", "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT",
        "Int64": "BIGINT", "Float32": "FLOAT", "Float64": "DOUBLE", "Date": "DATE", "Time": "TIME", "UInt8": "SMALLINT",
        "UInt16": "INT", "UInt32": "BIGINT", "UInt64": "DECIMAL(20, 0)", "Int128": "DECIMAL(38, 0)", "Categorical": "STRING",
    }  # fmt: skip
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMP_LTZ(6)" if kind.time_zone else "TIMESTAMP(6)"
    entries = entry_types(kind)
    if entries is not None:
        inner = [declared_as(each) for each in entries]
        return None if None in inner else f"MAP<{inner[0]}, {inner[1]}>"
    if isinstance(kind, pl.List):
        element = kind.inner if isinstance(kind.inner, pl.DataType) else kind.inner()
        word = declared_as(element)
        return None if word is None else f"ARRAY<{word}>"
    if isinstance(kind, pl.Struct):
        fields = [
            (each.name, declared_as(each.dtype if isinstance(each.dtype, pl.DataType) else each.dtype()))
            for each in kind.fields
        ]
        listed = ", ".join(f"`{name.replace('`', '``')}` {word}" for name, word in fields)
        return None if any(word is None for _, word in fields) else f"ROW<{listed}>"
    return words.get(type(kind).__name__)


def _error(node: exp.Expr, text: str, message: str) -> ExpressionError:
    position, length = span(text, node)
    whole = length == len(text)
    return ExpressionError(message, text=text, position=None if whole else position, length=length)
