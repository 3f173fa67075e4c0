"""Rows as SQL text, a column at a time; the driver's ``executemany`` does it value by value.

MySQL's protocol has no parameters for statements of many rows: every driver writes the values into the text. The rules
are those of https://dev.mysql.com/doc/refman/8.0/en/string-literals.html with backslashes as escape character, which is
why ``checked_escapes`` must be called on the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import polars as pl
from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError, JobError

from headrace_mysql.tables import TableColumn

_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
_NO_BACKSLASH_ESCAPES = 512


def checked_escapes(server_status: int) -> None:
    """Raise JobError when the session takes backslashes literally: then texts could end at the wrong place."""
    if server_status & _NO_BACKSLASH_ESCAPES:
        raise JobError(
            "the session has the SQL mode NO_BACKSLASH_ESCAPES, although the connector asked for another mode",
            plugin="mysql",
            hint="a proxy between this machine and the server probably sets sql_mode: remove NO_BACKSLASH_ESCAPES there",
        )


def row_texts(frame: pl.DataFrame, columns: Mapping[str, TableColumn]) -> pl.Series:
    """Return one text ``(value, value, …)`` per row. ``columns`` has the table's column for each of the frame's.

    NaN and infinities, which MySQL does not know, are NULL; nested values are JSON. Raises DataError for a value without a text
    form, such as one of a type that headrace does not know.
    """
    parts: list[pl.Expr] = []
    given: dict[str, pl.Series] = {}
    for number, (name, kind) in enumerate(frame.schema.items()):
        key = f"c{number}"
        given[key] = _as_json(frame[name]) if isinstance(kind, pl.List | pl.Array | pl.Struct) else frame[name]
        parts += [pl.lit("," if parts else "("), _literal(pl.col(key), given[key].dtype, columns[name])]
    return pl.DataFrame(given).select(pl.concat_str([*parts, pl.lit(")")]).alias("rows")).to_series()


def statements(prefix: str, rows: pl.Series, suffix: str, bytes_max: int, packet_bytes_max: int) -> Iterator[str]:
    """Yield statements of at most ``bytes_max`` bytes, or of one row when it is larger.

    Raises DataError when a row is larger than the server takes (``packet_bytes_max``).
    """
    around = len((prefix + suffix).encode()) + 1
    lengths = rows.str.len_bytes().to_numpy().astype(np.int64) + 1
    largest = int(lengths.max())
    if largest + around > packet_bytes_max:
        raise DataError(
            f"a row takes {largest:,} bytes, and the server takes {packet_bytes_max:,} (max_allowed_packet)",
            plugin="mysql",
        )
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(rows):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + bytes_max - around, side="right")))
        yield prefix + rows.slice(begin, end - begin).str.join(",").item() + suffix
        begin = end


def _literal(value: pl.Expr, kind: pl.DataType, column: TableColumn) -> pl.Expr:
    if kind.is_integer():
        text = value.cast(pl.String)
    elif isinstance(kind, pl.Boolean):
        text = value.cast(pl.Int8).cast(pl.String)
    elif kind.is_float():
        text = _float(value.cast(pl.Float64))
    elif isinstance(kind, pl.Decimal):
        text = value.cast(pl.String)
    elif isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        escaped = value.cast(pl.String).str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
        text = _in_quotes(escaped)
    elif isinstance(kind, pl.Binary):
        text = pl.concat_str([pl.lit("X'"), value.bin.encode("hex"), pl.lit("'")])
    elif isinstance(kind, pl.Date):
        text = _in_quotes(value.dt.to_string("%Y-%m-%d"))
    elif isinstance(kind, pl.Datetime):
        utc = value.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if kind.time_zone else value
        text = _in_quotes(utc.dt.to_string("%Y-%m-%d %H:%M:%S%.6f"))
    elif isinstance(kind, pl.Time):
        text = _in_quotes(value.dt.to_string("%H:%M:%S%.6f"))
    elif isinstance(kind, pl.Duration):
        text = _duration(value, column)
    elif isinstance(kind, pl.Null):
        text = pl.lit(None, dtype=pl.String)
    else:
        raise DataError(f"{type_name(kind)} values cannot be written to MySQL", plugin="mysql")
    return text.fill_null("NULL")


def _float(value: pl.Expr) -> pl.Expr:
    text = pl.when(value.is_finite()).then(value).cast(pl.String)
    # Without exponent it would be an exact number, which the server rounds in another way for a floating point column.
    return pl.when(text.str.contains("e", literal=True)).then(text).otherwise(pl.concat_str([text, pl.lit("e0")]))


def _duration(value: pl.Expr, column: TableColumn) -> pl.Expr:
    micros = value.dt.total_microseconds()
    if column.kind != "time":
        return micros.cast(pl.String)
    size = micros.abs()

    def digits(number: pl.Expr, width: int) -> pl.Expr:
        return number.cast(pl.String).str.zfill(width)

    return pl.concat_str(
        [
            pl.when(micros < 0).then(pl.lit("'-")).otherwise(pl.lit("'")),
            digits(size // 3_600_000_000, 2),
            pl.lit(":"),
            digits(size // 60_000_000 % 60, 2),
            pl.lit(":"),
            digits(size // 1_000_000 % 60, 2),
            pl.lit("."),
            digits(size % 1_000_000, 6),
            pl.lit("'"),
        ]
    )


def _in_quotes(text: pl.Expr) -> pl.Expr:
    return pl.concat_str([pl.lit("'"), text, pl.lit("'")])


def _as_json(values: pl.Series) -> pl.Series:
    texts = [None if value is None else msgspec.json.encode(value).decode() for value in values.to_list()]
    return pl.Series(values.name, texts, dtype=pl.String)
