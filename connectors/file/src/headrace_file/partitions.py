"""Directories of partitions, as Hive has them: ``day=2024-01-31/hour=7``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import DataError, OptionError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

#: The directory of rows whose value is NULL or an empty text, as Flink calls it.
DEFAULT_NAME = "__DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 255
_NAME = re.compile(r"^[^=/]+=[^/]*$")
#: What Flink and Hive write as %XX, and the end of a name that readers take for an unfinished file. Letters of all languages stay as
#: they are: Flink and Spark take each %XX for a character.
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]|\.(?=tmp$)""")
#: With these a column's name would make a directory that readers leave out.
_HIDING = "._"


def directory_name(column: str, value: str | None) -> str:
    """Return the name of the directory for a value. Raises DataError for one that is too long."""
    key = _escaped(column)
    if key[0] in _HIDING:
        key = f"%{ord(key[0]):02X}{key[1:]}"
    name = f"{key}={_escaped(value or DEFAULT_NAME)}"
    size_bytes = len(name.encode())
    if size_bytes > _NAME_BYTES_MAX:
        raise DataError(f"the value of {column!r} is too long for a directory name ({size_bytes} bytes)")
    return name


def directory_of(values: Mapping[str, str | None]) -> str:
    """Return the directory of one partition, relative, given its values by column. Raises DataError."""
    return os.path.join(*(directory_name(*each) for each in values.items()))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


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
    # Values that share a directory are one partition: two parts would have one name.
    texts = [
        pl.col(column).cast(pl.String).replace("", None).fill_null(DEFAULT_NAME).alias(name)
        for column, name in zip(columns, names, strict=True)
    ]
    for part in frame.with_columns(texts).partition_by(names, maintain_order=True):
        values = part.select(names).row(0)
        yield directory_of(dict(zip(columns, values, strict=True))), part.drop(names)


def folders_of(directory: str) -> Iterator[str]:
    """Yield a directory of part files and the directories of its partitions, which others may remove at any time. Raises OSError."""
    yield directory
    try:
        with os.scandir(directory) as entries:
            found = [each.path for each in entries if _NAME.match(each.name) and each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    for path in found:
        yield from folders_of(path)


def tables_above(directory: str) -> Iterator[str]:
    """Yield the directories of which a directory is a partition, the innermost first; none for one that is not named as a partition."""
    path = os.path.abspath(directory)
    while _NAME.match(os.path.basename(path)):
        path = os.path.dirname(path)
        yield path
