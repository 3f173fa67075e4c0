"""Rows as the text format of COPY, a column at a time.

Source: https://www.postgresql.org/docs/current/sql-copy.html ("Text Format"). The format csv is not used: a line of a text that is
``\\.`` would end the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl
from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError

from headrace_postgres.tables import TableColumn

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_SPECIAL = r"[\\\t\n\r]"
_NULL = "\\N"


def copy_text(frame: pl.DataFrame, columns: Mapping[str, TableColumn]) -> bytes:
    """Return the lines of a frame. ``columns`` has the table's column for each of the frame's.

    Nested values are JSON. Raises DataError for a value without a text form, such as one of a type that headrace does not know.
    """
    given: dict[str, pl.Series] = {}
    parts: list[pl.Expr] = []
    for number, (name, kind) in enumerate(frame.schema.items()):
        key = f"c{number}"
        given[key] = _as_json(frame[name]) if isinstance(kind, pl.List | pl.Array | pl.Struct) else frame[name]
        parts.append(_text(pl.col(key), given[key], columns[name]))
    texts = pl.DataFrame(given).select(parts)
    written = texts.write_csv(
        include_header=False, separator="\t", quote_style="never", null_value=_NULL, line_terminator="\n"
    )
    return written.encode()


def _text(value: pl.Expr, series: pl.Series, column: TableColumn) -> pl.Expr:
    kind = series.dtype
    if isinstance(kind, pl.Float32) and column.kind != "float4":
        # The shortest text of a float32 is another number as a float64.
        return value.cast(pl.Float64).cast(pl.String)
    if kind.is_integer() or kind.is_float() or isinstance(kind, pl.Decimal | pl.Boolean):
        return value.cast(pl.String)
    if isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        text = value.cast(pl.String)
        # Most texts have nothing to escape, and looking is quicker than replacing.
        special = series.cast(pl.String).str.contains(_SPECIAL).any()
        return text.str.replace_many(list(_ESCAPES), list(_ESCAPES.values())) if special else text
    if isinstance(kind, pl.Binary):
        return pl.concat_str([pl.lit("\\\\x"), value.bin.encode("hex")])
    if isinstance(kind, pl.Date):
        return value.dt.to_string("%Y-%m-%d")
    if isinstance(kind, pl.Datetime):
        utc = value.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if kind.time_zone else value
        return utc.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
    if isinstance(kind, pl.Time):
        return value.dt.to_string("%H:%M:%S%.6f")
    if isinstance(kind, pl.Duration):
        micros = value.dt.total_microseconds().cast(pl.String)
        return micros if column.kind == "int8" else pl.concat_str([micros, pl.lit(" microseconds")])
    if isinstance(kind, pl.Null):
        return pl.lit(None, dtype=pl.String).alias(series.name)
    raise DataError(f"{type_name(kind)} values cannot be written to PostgreSQL", plugin="postgres")


def _as_json(values: pl.Series) -> pl.Series:
    texts = [None if value is None else msgspec.json.encode(value).decode() for value in values.to_list()]
    return pl.Series(values.name, texts, dtype=pl.String)
