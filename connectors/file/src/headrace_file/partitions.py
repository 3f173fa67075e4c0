"""Directories of partitions, as Hive has them: ``day=2024-01-31/hour=7``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.foundation.errors import DataError, OptionError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

#: The directory of rows whose value is NULL or an empty text, as Hive and Flink call it.
DEFAULT_NAME = "__DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 255
_NAME = re.compile(r"^[^=/]+=[^/]*$")
#: What may stand in a directory's name; everything else, and "." as a whole name, is written as %XX.
_PLAIN = " .,-_()@~!$&;<>+|`"


def directory_name(column: str, value: str | None) -> str:
    """Return the name of the directory for a value. Raises DataError for one that is too long."""
    name = f"{quote(column, safe=_PLAIN)}={quote(value, safe=_PLAIN) if value else DEFAULT_NAME}"
    if len(name) > _NAME_BYTES_MAX:
        raise DataError(f"the value of {column!r} is too long for the name of a directory ({len(name)} bytes)")
    return name


def check_partition_columns(columns: Sequence[str], schema: Mapping[str, Any] | None) -> None:
    """Check that rows can be divided by columns. Raises OptionError."""
    import polars as pl

    if not columns:
        return
    if schema is None:
        raise _wrong(
            "the columns of the rows are not known", hint="rows from map() have columns if it has schema={...}"
        )
    for name in columns:
        if name not in schema:
            raise _wrong(f"unknown column {name!r}", hint=did_you_mean(name, list(schema), known="columns"))
        kind = schema[name]
        if not (kind.is_integer() or kind.is_decimal() or kind in (pl.String, pl.Date, pl.Boolean)):
            raise _wrong(
                f"column {name!r} is {kind}: directories are named by texts, whole numbers, decimals, dates and booleans",
                hint="make a text of it with CAST or DATE_FORMAT",
            )  # fmt: skip
    if len(columns) != len(set(columns)) or len(columns) == len(schema):
        raise _wrong("a column stands there twice, or no other one is left for the files")


def _wrong(message: str, hint: str | None = None) -> OptionError:
    return OptionError(message, plugin="file", option="partition_by", hint=hint)


def divided(frame: pl.DataFrame, columns: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the directory of each partition, relative, and its rows in their order. Partitions in the order of their first row."""
    import polars as pl

    names = [f"__hr_partition_{place}" for place in range(len(columns))]
    texts = [pl.col(column).cast(pl.String).alias(name) for column, name in zip(columns, names, strict=True)]
    for part in frame.with_columns(texts).partition_by(names, maintain_order=True):
        values = part.select(names).row(0)
        folders = [directory_name(*each) for each in zip(columns, values, strict=True)]
        yield os.path.join(*folders), part.drop(names)


def folders_of(directory: str) -> Iterator[str]:
    """Yield a directory of part files and the directories of its partitions. Raises OSError."""
    waiting = [directory]
    while waiting:
        folder = waiting.pop()
        yield folder
        with os.scandir(folder) as entries:
            waiting += [each.path for each in entries if _NAME.match(each.name) and each.is_dir(follow_symlinks=False)]
