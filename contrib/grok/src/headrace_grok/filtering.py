"""Pre-filter: finds which patterns can match each line before anything is captured, by texts that a pattern needs or with
hyperscan.
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
from headrace_grok.required_texts import Choice, strength

#: Of each pattern this many choices are looked for. A text of one character is in too many lines.
_CHOICES_MAX = 3
_LENGTH_MIN = 2
#: So many patterns without a text of their own are tried on all lines in less time than hyperscan takes for each.
_FEW = 6

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
    """Searches whole columns of lines for texts that every match of a pattern contains."""

    def __init__(self, programs: Sequence[Program]) -> None:
        needed = [_distinctive(program, programs) for program in programs]
        choices = list(dict.fromkeys(choice for some in needed for choice in some))
        self._without = sum(not some for some in needed)
        self._texts = sorted({text for choice in choices for text in choice})
        #: Each choice is a bit; for each text the choices that it is of, and for each program the choices that it needs.
        self._bits_of_texts = _bits(
            len(choices), [[choices.index(c) for c in choices if text in c] for text in self._texts]
        )
        self._bits_of_programs = _bits(len(choices), [[choices.index(c) for c in some] for some in needed])

    @property
    def is_sharp(self) -> bool:
        """Whether at most one pattern has to be tried on lines of all others."""
        return self._without <= 1

    def candidates(self, lines: pl.Series) -> Candidates:
        found = np.zeros((len(lines), self._bits_of_programs.shape[1]), dtype=np.uint64)
        if self._texts:
            texts = lines.str.extract_many(self._texts, overlapping=True)
            counts = texts.list.len().to_numpy()
            having = np.flatnonzero(counts)
            if len(having):
                begins = np.cumsum(counts[having], dtype=np.int64) - counts[having]
                codes = (
                    texts.filter(pl.Series(counts > 0)).explode().cast(pl.Enum(self._texts)).to_physical().to_numpy()
                )
                found[having] = np.bitwise_or.reduceat(self._bits_of_texts[codes], begins)
        return _Searched(found, self._bits_of_programs)


def _bits(count: int, numbers: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    """Return sets of numbers below ``count`` as rows of bits."""
    made = np.zeros((len(numbers), count // 64 + 1), dtype=np.uint64)
    for row, some in enumerate(numbers):
        for number in some:
            made[row, number // 64] |= np.uint64(1 << number % 64)
    return made


def _distinctive(program: Program, programs: Sequence[Program]) -> list[Choice]:
    """Return the choices of a program that lines of other programs contain least."""
    if len(programs) == 1 and program.rust is not None:
        return []  # its engine looks for texts itself
    found: list[tuple[int, int, Choice]] = []
    for choice in program.required:
        others = sum(_is_in(choice, other) for other in programs) - 1
        if strength(choice) >= _LENGTH_MIN and (others < len(programs) - 1 or len(programs) == 1):
            found.append((others, -strength(choice), choice))
    found.sort()
    return [choice for _, _, choice in found[:_CHOICES_MAX]]


def _is_in(choice: Choice, program: Program) -> bool:
    """Return whether every line that a program matches contains a text of a choice."""
    return any(all(any(text in has for text in choice) for has in other) for other in program.required)


class _Searched(Candidates):
    def __init__(self, found: NDArray[np.uint64], needed: NDArray[np.uint64]) -> None:
        self._found = found
        self._needed = needed

    def among(self, pattern: int, rows: Rows) -> Rows:
        needed = self._needed[pattern]
        if not needed.any():
            return rows
        fits: NDArray[np.bool_] = ((self._found[rows] & needed) == needed).all(axis=1)
        return rows[fits]


def _empty(lines: pl.Series) -> Rows:
    return np.flatnonzero((lines.str.len_bytes() == 0).to_numpy()).astype(np.int64)


def make_filter(programs: Sequence[Program], engine: str = "auto") -> Filter:
    """Return a filter. ``engine`` is ``auto`` (hyperscan if it is installed), ``hyperscan`` or ``polars``."""
    if engine == "hyperscan":
        return HyperscanFilter(programs)
    texts = TextFilter(programs)
    if engine == "polars" or texts.is_sharp or len(programs) <= _FEW or not hyperscan_is_installed():
        return texts
    return HyperscanFilter(programs)


def check_engine(engine: str) -> None:
    """Raise OptionError if hyperscan is asked for and not installed."""
    if engine == "hyperscan" and not hyperscan_is_installed():
        raise hr.OptionError("hyperscan is not installed", plugin="grok", option="engine", hint="pip install hyperscan")


def hyperscan_is_installed() -> bool:
    """Return whether this platform has hyperscan."""
    return find_spec("hyperscan") is not None
