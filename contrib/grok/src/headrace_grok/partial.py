"""Explains why a line fits no pattern: how much of it the best pattern matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.programs import Prefix, Program
from headrace_grok.searching import regex_of, time_limit
from headrace_grok.values import shown

_PATTERN_SHOWN_MAX = 60
#: Only this many characters of a line are searched: they are enough for a reason.
_LOOKED_AT_MAX = 4_000


@dataclass(frozen=True, slots=True)
class _Step:
    """The lines that match a prefix of a pattern, and the text that the prefix matches in each."""

    prefix: Prefix
    rows: NDArray[np.int64]
    texts: pl.Series
    lengths: NDArray[np.int64]


#: Results for prefixes that were tried already, by the text of the prefix: many patterns have the same prefix.
_Known = dict[str, tuple[NDArray[np.int64], pl.Series, NDArray[np.int64]]]


def reasons(programs: Sequence[Program], lines: pl.Series) -> list[str]:
    """Return for each line the longest partial match of a pattern, as a reason. If two are equally long, the first
    pattern is named.

    The parts of a prefix match lazily, so the length counts only what the prefix must match.
    """
    begins = lines.str.head(_LOOKED_AT_MAX)
    longest = np.zeros(len(lines), dtype=np.int64)
    places = np.full((len(lines), 2), -1, dtype=np.int64)
    known: _Known = {}
    steps = [_steps(program, begins, known) for program in programs]
    for number, of_program in enumerate(steps):
        lengths = np.full(len(lines), -1, dtype=np.int64)
        depths = np.full(len(lines), -1, dtype=np.int64)
        for depth, step in enumerate(of_program):
            lengths[step.rows] = step.lengths
            depths[step.rows] = depth
        better = lengths > longest
        longest[better] = lengths[better]
        places[better, 0] = number
        places[better, 1] = depths[better]
    made = []
    for row, (number, depth) in enumerate(places.tolist()):
        best = steps[number][depth] if number >= 0 else None
        text = "" if best is None else best.texts[int(np.searchsorted(best.rows, row))]
        made.append(_reason(len(programs), number, best, text))
    return made


def _steps(program: Program, lines: pl.Series, known: _Known) -> list[_Step]:
    """Return the lines that match each prefix of a pattern, from the shortest prefix to the longest. Each prefix
    matches a subset of the lines before.
    """
    rows, steps = np.arange(len(lines), dtype=np.int64), []
    for prefix in program.prefixes:
        if prefix.text not in known:
            matched = _matched(program, prefix, lines if len(rows) == len(lines) else lines[rows])
            fits = matched.is_not_null()
            texts = matched.filter(fits)
            known[prefix.text] = rows[fits.to_numpy()], texts, texts.str.len_chars().to_numpy().astype(np.int64)
        rows, texts, lengths = known[prefix.text]
        if not len(rows):
            break
        steps.append(_Step(prefix, rows, texts, lengths))
    return steps


def _matched(program: Program, prefix: Prefix, lines: pl.Series) -> pl.Series:
    """Return the text that a prefix matches in each line; NULL where it does not match."""
    if program.rust is not None:
        return lines.str.extract(f"({prefix.text})", 1)
    pattern = regex_of(prefix.text)
    found: list[str | None] = []
    for line in lines.to_list():
        try:
            match = pattern.search(line, timeout=time_limit(line))
        except TimeoutError:
            match = None
        found.append(None if match is None else match[0])
    return pl.Series(found, dtype=pl.String)


def _reason(count: int, number: int, step: _Step | None, text: str) -> str:
    what = "the pattern does not fit" if count == 1 else f"none of {count} patterns fits"
    if step is None:
        return f"{what}, not even its first part" if count == 1 else f"{what}, not even a first part"
    which = "" if count == 1 else f" of pattern {number + 1}"
    following = step.prefix.following
    return (
        f"{what}: the longest partial match{which} is {shown(text)} by {_end(step.prefix.fitting)}, "
        f"which should be followed by '{following[:_PATTERN_SHOWN_MAX]}'"
    )


def _end(text: str) -> str:
    """Return the end of the matched text: it lies next to the place where the pattern fails."""
    return text if len(text) <= _PATTERN_SHOWN_MAX else "…" + text[-_PATTERN_SHOWN_MAX:]
