"""How values of a stream's types are stored in SQLite, and which columns keep them unchanged.

Source: https://www.sqlite.org/datatype3.html (storage classes, affinity).
"""

from __future__ import annotations

import msgspec
import polars as pl
from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError

from headrace_sqlite.tables import TableColumn

#: Decimal digits that SQLite certainly keeps: of a text that becomes REAL, and of an INTEGER.
_REAL_DIGITS, _INTEGER_DIGITS = 15, 18
_TIMES = ("DATE", "TIME")
_NESTED = (pl.List, pl.Array, pl.Struct)
_TEXTS = (pl.String, pl.Categorical, pl.Enum)


def declared_type(kind: pl.DataType) -> str:
    """Return the type of a column of a table that is created."""
    if isinstance(kind, pl.Boolean):
        return "BOOLEAN"
    if kind.is_integer() or isinstance(kind, pl.Duration):
        return "INTEGER"
    if kind.is_float():
        return "REAL"
    return "BLOB" if isinstance(kind, pl.Binary) else "TEXT"


def affinity(declared: str) -> str:
    """Return the affinity of a column, by which SQLite converts values: INTEGER, TEXT, REAL, NUMERIC, or BLOB, which
    converts none.
    """
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not upper or "BLOB" in upper:
        return "BLOB"
    return "REAL" if any(part in upper for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def misfit(kind: pl.DataType, column: TableColumn) -> str | None:
    """Return why values of a type cannot go into a column, or None when they can.

    Types are refused if SQLite would change values without an error: the text 007 in a column for numbers becomes 7.
    """
    if column.computed:
        return f"SQLite computes the column {column.name!r}"
    if isinstance(kind, pl.Null) or affinity(column.declared_type) in _accepting(kind):
        return None
    upper = column.declared_type.upper()
    if isinstance(kind, pl.Date | pl.Datetime | pl.Time) and any(word in upper for word in _TIMES):
        return None  # NUMERIC, but these texts are not numbers
    if isinstance(kind, _NESTED) and "JSON" in upper:
        return None
    return f"{type_name(kind)} values do not fit the column {column.name!r} {upper}"


def _accepting(kind: pl.DataType) -> set[str]:
    if kind.is_integer():
        exact = not isinstance(kind, pl.Int64 | pl.UInt64)  # a double holds 53 bits
        return {"INTEGER", "NUMERIC", "BLOB", *(["REAL"] if exact else [])}
    if isinstance(kind, pl.Boolean | pl.Duration):
        return {"INTEGER", "NUMERIC", "BLOB"}
    if kind.is_float():
        return {"REAL", "NUMERIC", "BLOB"}
    if isinstance(kind, pl.Decimal):
        digits = kind.precision or _INTEGER_DIGITS + 1
        numbers = {"REAL", "NUMERIC"} if digits <= _REAL_DIGITS else set()
        return {"TEXT", "BLOB", *numbers, *(["INTEGER"] if kind.scale == 0 and digits <= _INTEGER_DIGITS else [])}
    return {"BLOB"} if isinstance(kind, pl.Binary) else {"TEXT", "BLOB"}


def stored(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the stored form of its values: numbers, texts and bytes.

    Raises DataError for NaN, which SQLite would store as NULL, and for values of types that it cannot hold.
    """
    return pl.DataFrame([_stored(series) for series in frame.get_columns()])


def _stored(values: pl.Series) -> pl.Series:
    kind = values.dtype
    if isinstance(kind, _NESTED):
        texts = [None if value is None else msgspec.json.encode(value).decode() for value in values.to_list()]
        return pl.Series(values.name, texts, dtype=pl.String)
    if kind.is_float():
        if values.is_nan().any():
            raise DataError(f"column {values.name!r} has NaN, which SQLite cannot store", plugin="sqlite")
        return values
    if kind.is_integer() or isinstance(kind, pl.Boolean | pl.Binary | pl.Null):
        return values
    if isinstance(kind, (pl.Decimal, pl.Date, *_TEXTS)):
        return values.cast(pl.String)
    if isinstance(kind, pl.Datetime):
        utc = values.dt.convert_time_zone("UTC") if kind.time_zone else values
        return utc.dt.strftime("%Y-%m-%d %H:%M:%S%.6f" + ("+00:00" if kind.time_zone else ""))
    if isinstance(kind, pl.Time):
        return values.dt.strftime("%H:%M:%S%.6f")
    if isinstance(kind, pl.Duration):
        return values.dt.total_microseconds()
    raise DataError(f"{type_name(kind)} values cannot be written to SQLite", plugin="sqlite")
