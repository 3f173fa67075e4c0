"""Takes fields out of whole batches of lines, by many patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok import partial
from headrace_grok.filtering import Filter, check_engine, make_filter
from headrace_grok.programs import Program, schema_of
from headrace_grok.searching import search, taken
from headrace_grok.values import typed_columns

_NULL = pl.Series([None], dtype=pl.String)
_NO_ROWS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """How patterns are applied."""

    #: Whether the first pattern that fits a line is the only one; else every pattern that fits adds its fields.
    break_on_match: bool = True
    #: Whether a capture without a character is an empty text; else it is NULL.
    keep_empty_captures: bool = False
    #: What a line becomes that no pattern matches. False: a bad record; True: a row of NULLs.
    null_rows: bool = False
    #: "auto", "hyperscan" or "polars"; results do not depend on it.
    engine: str = "auto"
    #: The layout of fields that are timestamps.
    timestamp_format: str | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """The numbers of the lines that made a row, these rows, and what is wrong with the other lines."""

    rows: NDArray[np.int64]
    frame: pl.DataFrame
    bad_rows: list[int]
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class _Part:
    """The lines that one pattern matches, and the texts of its fields in them."""

    rows: NDArray[np.int64]
    columns: Mapping[str, pl.Series]


class Matcher:
    """Applies patterns to lines. Used by one thread at a time. The result of a line depends on that line alone."""

    def __init__(
        self,
        programs: Sequence[Program],
        options: MatchOptions | None = None,
        columns: Mapping[str, pl.DataType] | None = None,
    ) -> None:
        """Make a matcher. ``columns``: the fields that are wanted, and their types; None: all, as the patterns say."""
        self._programs = programs
        self._options = options or MatchOptions()
        self._columns = schema_of(programs) if columns is None else columns
        check_engine(self._options.engine)
        self._filter: Filter | None = None

    def match(self, lines: pl.Series) -> Matched:
        """Return the fields of lines. None of them is NULL."""
        parts, given_up = self._found(lines)
        faults = {int(row): "the search for the pattern takes too long in this line" for row in given_up}
        good = np.full(len(lines), self._options.null_rows, dtype=np.bool_)
        for part in parts:
            good[part.rows] = True
        good[given_up] = False
        rows = np.flatnonzero(good)
        if len(rows) + len(given_up) < len(lines):
            unmatched = np.setdiff1d(np.flatnonzero(~good), given_up, assume_unique=True)
            said = partial.reasons(self._programs, lines.gather(unmatched))
            faults.update(zip(unmatched.tolist(), said, strict=True))
        texts = [(self._column(parts, name, rows, len(lines)), kind) for name, kind in self._columns.items()]
        columns, wrong = typed_columns(texts, self._options.timestamp_format)
        if wrong:
            faults.update({int(rows[place]): reason for place, reason in wrong.items()})
            kept = np.setdiff1d(np.arange(len(rows)), list(wrong), assume_unique=True)
            rows, columns = rows[kept], [column.gather(kept) for column in columns]
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        bad_rows = sorted(faults)
        return Matched(rows, frame, bad_rows, [faults[row] for row in bad_rows])

    # ------------------------------------------------------------------------------------------------ private

    def _found(self, lines: pl.Series) -> tuple[list[_Part], NDArray[np.int64]]:
        """Return the matches of each pattern in the lines for which it is tried, and the lines whose search takes too
        long.
        """
        if self._filter is None:  # compiled in the process that runs it: a plan is built without it
            self._filter = make_filter(self._programs, self._options.engine)
        candidates = self._filter.candidates(lines)
        open_rows = np.arange(len(lines), dtype=np.int64)
        is_open = np.ones(len(lines), dtype=np.bool_)
        parts: list[_Part] = []
        given_up = [_NO_ROWS]
        for number, program in enumerate(self._programs):
            rows = candidates.among(number, open_rows)
            if not len(rows):
                continue
            asked = lines if len(rows) == len(lines) else taken(lines, rows)
            found = search(program, asked, keep_empty=self._options.keep_empty_captures)
            hits = rows[found.rows]
            parts.append(_Part(hits, {column.name: column for column in found.frame}))
            given_up.append(rows[found.given_up])
            if self._options.break_on_match:
                is_open[hits] = False
                is_open[rows[found.given_up]] = False
                open_rows = open_rows[is_open[open_rows]]
        return parts, np.unique(np.concatenate(given_up))

    def _column(self, parts: Sequence[_Part], name: str, wanted: NDArray[np.int64], count: int) -> pl.Series:
        """Return the texts of a field for the wanted lines. The first pattern that captured the field gives its text;
        it is NULL where no pattern did.

        ``count``: the number of all lines.
        """
        places = np.full(count, -1, dtype=np.int64)
        texts: list[pl.Series] = []
        begin = 0
        having = [part for part in parts if name in part.columns]
        for part in having:
            column = part.columns[name]
            rows, at = part.rows, np.arange(begin, begin + len(part.rows))
            if not self._options.break_on_match:
                new = (places[rows] < 0) & column.is_not_null().to_numpy()
                rows, at = rows[new], at[new]
            places[rows] = at
            texts.append(column)
            begin += len(column)
        if not texts:
            return pl.Series(name, [None], dtype=pl.String).new_from_index(0, len(wanted))
        # This does not hold when the numbers are equal: the search for another pattern may have timed out in a line
        # that this pattern matches.
        if len(having) == 1 and np.array_equal(having[0].rows, wanted):
            return texts[0]
        places = places[wanted]
        places[places < 0] = begin
        return taken(pl.concat([*texts, _NULL], rechunk=True), places)
