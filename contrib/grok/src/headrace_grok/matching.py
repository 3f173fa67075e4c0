"""Takes fields out of whole batches of lines, by many patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok import partial
from headrace_grok.filtering import make_filter
from headrace_grok.programs import Program, schema_of
from headrace_grok.searching import search
from headrace_grok.values import converted, shown, type_text

_ROW = "__row"
_NO_ROWS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """How patterns are applied."""

    #: Whether the first pattern that fits a line is the only one; else every pattern that fits adds its fields.
    break_on_match: bool = True
    #: Whether a capture without a character is an empty text; else it is NULL.
    keep_empty_captures: bool = False
    #: What a line gives that no pattern fits: False: a fault; True: a row of NULLs.
    null_rows: bool = False
    #: "auto", "hyperscan" or "polars"; results do not depend on it.
    engine: str = "auto"
    #: The layout of fields that are timestamps.
    timestamp_format: str | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """Which lines gave a row, these rows, and what is wrong with the others."""

    rows: NDArray[np.int64]
    frame: pl.DataFrame
    bad_rows: list[int]
    reasons: list[str]


class Matcher:
    """Applies patterns to lines. Used by one thread at a time. What a line gives depends on that line alone."""

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
        self._filter = make_filter(programs, self._options.engine)

    def match(self, lines: pl.Series) -> Matched:
        """Return the fields of lines. None of them is NULL."""
        texts, given_up = self._texts(lines)
        faults = {int(row): "the search for the pattern takes too long in this line" for row in given_up}
        unmatched = texts["__none"].to_numpy().copy()
        unmatched[given_up] = False
        if not self._options.null_rows and unmatched.any():
            rows = np.flatnonzero(unmatched)
            said = partial.reasons(self._programs, lines.gather(rows))
            faults.update(zip(rows.tolist(), said, strict=True))
        columns: list[pl.Series] = []
        for name, kind in self._columns.items():
            values, bad = converted(texts[name], kind, self._options.timestamp_format)
            columns.append(values)
            for row in [] if bad is None else np.flatnonzero(bad).tolist():
                faults.setdefault(row, f"field {name!r}: expected {type_text(kind)}, found {shown(texts[name][row])}")
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(lines))
        if not faults:
            return Matched(np.arange(len(lines), dtype=np.int64), frame, [], [])
        bad_rows = sorted(faults)
        good = np.ones(len(lines), dtype=np.bool_)
        good[bad_rows] = False
        kept = np.flatnonzero(good)
        frame = frame[kept] if columns else pl.DataFrame(height=len(kept))
        return Matched(kept, frame, bad_rows, [faults[row] for row in bad_rows])

    # ------------------------------------------------------------------------------------------------ private

    def _texts(self, lines: pl.Series) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Return the texts of all fields of all lines, with ``__none`` where no pattern fits; and lines that take too long."""
        candidates = self._filter.candidates(lines)
        open_rows = np.arange(len(lines), dtype=np.int64)
        parts: list[pl.DataFrame] = []
        given_up: list[NDArray[np.int64]] = []
        for number, program in enumerate(self._programs):
            rows = candidates.among(number, open_rows)
            if not len(rows):
                continue
            whole = len(rows) == len(lines)
            found = search(
                program, lines if whole else lines.gather(rows), keep_empty=self._options.keep_empty_captures
            )
            hits = rows[found.rows]
            wanted = [column for column in found.frame if column.name in self._columns]
            parts.append(pl.DataFrame([pl.Series(_ROW, hits), *wanted]))
            closed = hits
            if len(found.given_up):
                given_up.append(rows[found.given_up])
                closed = np.concatenate([hits, rows[found.given_up]]) if self._options.break_on_match else hits
            if self._options.break_on_match and len(closed):
                open_rows = np.setdiff1d(open_rows, closed, assume_unique=True)
        return self._whole(parts, len(lines)), np.unique(np.concatenate([_NO_ROWS, *given_up]))

    def _whole(self, parts: list[pl.DataFrame], count: int) -> pl.DataFrame:
        """Return a frame of all lines from what the patterns found in some."""
        empty = pl.DataFrame(schema={_ROW: pl.Int64, **dict.fromkeys(self._columns, pl.String)})
        found = pl.concat([empty, *parts], how="diagonal")
        if not self._options.break_on_match:
            # Several patterns may fit a line: the first one that has something for a field gives it.
            found = found.group_by(_ROW).agg(pl.all().drop_nulls().first())
        places = np.full(count, found.height, dtype=np.int64)
        places[found[_ROW].to_numpy()] = np.arange(found.height)
        found = found.drop(_ROW)
        none = pl.Series("__none", places == found.height)
        if found.height == count and (places == np.arange(count)).all():
            return found.with_columns(none)
        if none.any():
            nothing = pl.DataFrame({name: [None] for name in found.columns}, schema=found.schema)
            found = pl.concat([found, nothing]) if found.width else found
        return pl.DataFrame([*(column.gather(places) for column in found), none])
