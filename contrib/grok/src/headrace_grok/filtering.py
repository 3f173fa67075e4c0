"""Pre-filter: finds which patterns can match each line before anything is captured. Hyperscan does it for all patterns
in one pass.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import headrace as hr
import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.programs import Program

Engine = Literal["auto", "hyperscan", "polars"]
Rows = NDArray[np.int64]


class Candidates(ABC):
    """Which patterns can fit which lines of a batch."""

    @abstractmethod
    def among(self, pattern: int, rows: Rows) -> Rows:
        """Return those of the rows that the pattern can fit, in their order."""


class Filter(ABC):
    """Finds candidates. It never misses a pattern that matches. Used by one thread at a time."""

    @abstractmethod
    def candidates(self, lines: pl.Series) -> Candidates:
        """Return which patterns can match each line. No line is NULL."""


class HyperscanFilter(Filter):
    """Scans each line for all patterns at once. Patterns that hyperscan does not know can fit every line."""

    def __init__(self, programs: Sequence[Program]) -> None:
        import hyperscan

        filters = tuple((number, each.filter) for number, each in enumerate(programs) if each.filter is not None)
        self._database, known = _database(filters)
        self._scratch = None if self._database is None else hyperscan.Scratch(self._database)
        self._unknown = frozenset(range(len(programs))) - known

    def candidates(self, lines: pl.Series) -> Candidates:
        found: list[int] = []
        counts: list[int] = []
        if self._database is not None:
            add = found.append

            def fits(pattern: int, start: int, end: int, flags: int, context: object) -> None:
                add(pattern)

            scan, scratch, count = self._database.scan, self._scratch, counts.append
            for line in lines.cast(pl.Binary).to_list():
                if line:
                    scan(line, fits, scratch=scratch)
                count(len(found))
        ends = np.array(counts, dtype=np.int64)
        rows = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        return _Scanned(np.array(found, dtype=np.int64), rows, len(lines), self._unknown, _empty(lines))


@functools.lru_cache(maxsize=32)
def _database(filters: tuple[tuple[int, str], ...]) -> tuple[Any, frozenset[int]]:
    """Return the database of numbered filters, and the numbers of the filters that hyperscan could compile; None if it
    could compile none of them.

    The database is cached, because it takes long to compile and each lane of the process needs the same one. Only the
    scratch space of a scan belongs to a thread.
    """
    import hyperscan

    flags = (
        hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_PREFILTER | hyperscan.HS_FLAG_UTF8
        | hyperscan.HS_FLAG_ALLOWEMPTY | hyperscan.HS_FLAG_MULTILINE
    )  # fmt: skip

    def compiled(some: Sequence[tuple[int, str]]) -> Any:
        made = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        made.compile(
            expressions=[text.encode() for _, text in some],
            ids=[number for number, _ in some],
            elements=len(some),
            flags=[flags] * len(some),
        )
        return made

    def is_known(one: tuple[int, str]) -> bool:
        try:
            compiled([one])
        except hyperscan.error:
            return False
        return True

    if not filters:
        return None, frozenset()
    try:
        return compiled(filters), frozenset(number for number, _ in filters)
    except hyperscan.error:
        known = [each for each in filters if is_known(each)]
    return (compiled(known) if known else None), frozenset(number for number, _ in known)


class _Scanned(Candidates):
    def __init__(self, patterns: Rows, rows: Rows, count: int, unknown: frozenset[int], empty: Rows) -> None:
        order = np.argsort(patterns, kind="stable")
        self._patterns, self._rows = patterns[order], rows[order]
        self._count = count
        self._unknown = unknown
        self._empty = empty

    def among(self, pattern: int, rows: Rows) -> Rows:
        if pattern in self._unknown:
            return rows
        begin, end = np.searchsorted(self._patterns, [pattern, pattern + 1])
        if begin == end and not len(self._empty):
            return rows[:0]
        can = np.zeros(self._count, dtype=np.bool_)
        can[self._rows[begin:end]] = True
        can[self._empty] = True  # hyperscan does not scan empty lines
        return rows[can[rows]]


class TextFilter(Filter):
    """Searches for the longest text that every match of a pattern contains. Used where hyperscan is not installed."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._texts = [program.required for program in programs]

    def candidates(self, lines: pl.Series) -> Candidates:
        return _Searched(self._texts, lines)


class _Searched(Candidates):
    def __init__(self, texts: Sequence[str | None], lines: pl.Series) -> None:
        self._texts = texts
        self._lines = lines

    def among(self, pattern: int, rows: Rows) -> Rows:
        text = self._texts[pattern]
        if text is None or not len(rows):
            return rows
        lines = self._lines if len(rows) == len(self._lines) else self._lines.gather(rows)
        has: NDArray[np.bool_] = lines.str.contains(text, literal=True).to_numpy()
        return rows[has]


def _empty(lines: pl.Series) -> Rows:
    return np.flatnonzero((lines.str.len_bytes() == 0).to_numpy()).astype(np.int64)


def make_filter(programs: Sequence[Program], engine: str = "auto") -> Filter:
    """Return a filter. ``engine`` is ``auto`` (hyperscan if it is installed), ``hyperscan`` or ``polars``."""
    if engine == "polars" or (len(programs) == 1 and engine == "auto"):
        return TextFilter(programs)  # one pattern is tried on every line anyway
    if engine == "hyperscan" or hyperscan_is_installed():
        return HyperscanFilter(programs)
    return TextFilter(programs)


def check_engine(engine: str) -> None:
    """Raise OptionError if hyperscan is asked for and not installed."""
    if engine == "hyperscan" and not hyperscan_is_installed():
        raise hr.OptionError("hyperscan is not installed", plugin="grok", option="engine", hint="pip install hyperscan")


def hyperscan_is_installed() -> bool:
    """Return whether this platform has hyperscan."""
    return find_spec("hyperscan") is not None
