"""Searches lines for one pattern: a column at once where Rust's engine can, else line by line within a time limit."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.programs import FITS, Program

#: Time limits of a search: the same as for regular expressions of SQL (docs/adr/013-regular-expressions.md).
_SECONDS_MAX = 0.1
_SECONDS_PER_CHARACTER = 1e-6


@dataclass(frozen=True, slots=True)
class Found:
    """Matches of a pattern: the numbers of the matching lines, and the texts of its fields in them."""

    rows: NDArray[np.int64]
    #: One column of texts for each field, one row for each of ``rows``.
    frame: pl.DataFrame
    #: Numbers of the lines whose search reached the time limit.
    given_up: NDArray[np.int64]


def search(program: Program, lines: pl.Series, *, keep_empty: bool = False) -> Found:
    """Search lines, none of them NULL, for the pattern."""
    rows, columns, given_up = _by_columns(program, lines) if program.rust else _line_by_line(program, lines)
    made: dict[str, pl.Series] = {}
    for group, name in program.groups.items():
        texts = columns[group]
        if not keep_empty:
            texts = texts.set(texts == "", None)
        if name in made:
            before = made[name]
            texts = before if not before.null_count() else before.zip_with(before.is_not_null(), texts)
        made[name] = texts.alias(name)
    frame = pl.DataFrame(list(made.values())) if made else pl.DataFrame(height=len(rows))
    return Found(rows, frame, given_up)


def _by_columns(program: Program, lines: pl.Series) -> tuple[NDArray[np.int64], pl.DataFrame, NDArray[np.int64]]:
    assert program.rust is not None
    groups = lines.str.extract_groups(program.rust).struct.unnest()
    fits = groups[FITS].is_not_null()
    none = np.zeros(0, dtype=np.int64)
    if fits.all():
        return np.arange(len(lines), dtype=np.int64), groups, none
    return np.flatnonzero(fits.to_numpy()), groups.filter(fits), none


def _line_by_line(program: Program, lines: pl.Series) -> tuple[NDArray[np.int64], pl.DataFrame, NDArray[np.int64]]:
    pattern = regex_of(program.python)
    names = list(program.groups)
    rows: list[int] = []
    given_up: list[int] = []
    values: list[Sequence[str | None]] = []
    for row, line in enumerate(lines.to_list()):
        try:
            found = pattern.search(line, timeout=time_limit(line))
        except TimeoutError:
            given_up.append(row)
            continue
        if found is not None:
            rows.append(row)
            values.append(found.groups())
    frame = pl.DataFrame(values, schema=dict.fromkeys(names, pl.String), orient="row")
    return np.array(rows, dtype=np.int64), frame, np.array(given_up, dtype=np.int64)


def taken(series: pl.Series, rows: NDArray[np.int64]) -> pl.Series:
    """Return the values at rows, none of which is negative. Indexing with them would look for negative ones."""
    return series.gather(pl.Series(rows.astype(np.uint32)))


def time_limit(line: str) -> float:
    """Return the seconds that a search in a line may take."""
    return _SECONDS_MAX + len(line) * _SECONDS_PER_CHARACTER


@functools.lru_cache(maxsize=1024)
def regex_of(text: str) -> Any:
    """Return a pattern of Python's ``regex`` package."""
    import regex

    return regex.compile(text, regex.VERSION0)
