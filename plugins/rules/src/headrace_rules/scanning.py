"""Finds many literals in one pass over a buffer: hyperscan where it is installed, polars where it is not.

Both return where each occurrence ends. Only literals are scanned for, never regular expressions. The buffer holds many
rows, and anchors, ``.`` and classes can match across row borders, so regular expressions would miss matches or give
wrong ones. Literals can only give too many matches, which are verified later.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_rules.disk_cache import DatabaseCache

#: For each occurrence the index of the literal, and the byte offset in the buffer at which the occurrence ends.
Occurrences = tuple[NDArray[np.int64], NDArray[np.int64]]

#: Databases of fewer literals are compiled faster than they are read from disk.
_CACHED_FROM = 300


class Scanner(ABC):
    """Looks for a fixed list of literals. Usable by several threads at once."""

    @abstractmethod
    def scan(self, buffer: bytes | memoryview) -> Occurrences:
        """Return every occurrence, overlapping ones too, as literal indexes and end offsets, in any order."""


class HyperscanScanner(Scanner):
    """A hyperscan database of literals. Letters outside of ASCII are compared exactly, also where case is ignored."""

    def __init__(self, literals: Sequence[bytes], caseless: Sequence[bool], cache: DatabaseCache | None = None) -> None:
        import hyperscan

        self._hyperscan = hyperscan
        self._local = threading.local()
        flags = [hyperscan.HS_FLAG_CASELESS if fold else 0 for fold in caseless]
        use_cache = cache is not None and len(literals) >= _CACHED_FROM
        key = _cache_key(hyperscan, literals, caseless) if use_cache else b""
        content = cache.find(key) if cache is not None and use_cache else None
        found = None if content is None else self._loaded(content)
        if found is None:
            found = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            found.compile(
                expressions=list(literals),
                ids=list(range(len(literals))),
                elements=len(literals),
                flags=flags,
                literal=True,
            )
            if cache is not None and use_cache:
                cache.store(key, hyperscan.dumpb(found))
                cache.trim()
        self._database = found

    def _loaded(self, content: bytes) -> Any:
        try:
            return self._hyperscan.loadb(content, self._hyperscan.HS_MODE_BLOCK)
        except self._hyperscan.error:
            return None  # another version or another kind of processor has written it: it is compiled again

    def scan(self, buffer: bytes | memoryview) -> Occurrences:
        ids: list[int] = []
        ends: list[int] = []
        add_id, add_end = ids.append, ends.append

        def found(literal: int, start: int, end: int, flags: int, context: object) -> None:
            add_id(literal)
            add_end(end)

        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = self._hyperscan.Scratch(self._database)
        self._database.scan(buffer, found, scratch=scratch)  # type: ignore[type-var]  # it takes any buffer
        return np.array(ids, dtype=np.int64), np.array(ends, dtype=np.int64)


class PolarsScanner(Scanner):
    """Uses the Aho-Corasick search of polars, on platforms without a hyperscan wheel. It is about ten times slower."""

    def __init__(self, literals: Sequence[bytes], caseless: Sequence[bool]) -> None:
        self._exact = self._indexed(literals, caseless, False)
        self._folded = self._indexed(literals, caseless, True)

    @staticmethod
    def _indexed(literals: Sequence[bytes], caseless: Sequence[bool], fold: bool) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, (literal, folded) in enumerate(zip(literals, caseless, strict=True)):
            if folded == fold:
                text = _as_characters(literal.lower() if fold else literal)
                found.setdefault(text, []).append(index)
        return found

    def scan(self, buffer: bytes | memoryview) -> Occurrences:
        parts = []
        given = bytes(buffer)
        for patterns, content in ((self._exact, given), (self._folded, given.lower())):
            if patterns:
                parts.append(self._search(patterns, content))
        ids = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        ends = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        return ids, ends

    @staticmethod
    def _search(patterns: dict[str, list[int]], content: bytes) -> Occurrences:
        # Each byte becomes one character, so that bytes that are not valid UTF-8 can be searched, too.
        text = pl.Series([_as_characters(content)])
        literals = list(patterns)
        found = pl.DataFrame([
            text.str.extract_many(literals, overlapping=True).explode().alias("literal"),
            text.str.find_many(literals, overlapping=True).explode().cast(pl.Int64).alias("start"),
        ]).drop_nulls()  # fmt: skip
        if not found.height:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        # Positions count bytes of the UTF-8 form of that text, in which each byte from 0x80 on takes two bytes.
        raw = np.frombuffer(content, dtype=np.uint8)
        widths = np.cumsum(1 + (raw >= 0x80).astype(np.int64))
        starts = np.searchsorted(widths, found["start"].to_numpy(), side="right")
        ids: list[int] = []
        ends: list[int] = []
        for literal, start in zip(found["literal"].to_list(), starts.tolist(), strict=True):
            for index in patterns[literal]:
                ids.append(index)
                ends.append(start + len(literal))
        return np.array(ids, dtype=np.int64), np.array(ends, dtype=np.int64)


def _as_characters(content: bytes) -> str:
    return content.decode("latin-1")


def _cache_key(module: Any, literals: Sequence[bytes], caseless: Sequence[bool]) -> bytes:
    """Return a key of everything that determines the content of a database."""
    parts = [module.__version__.encode()]
    parts += [(b"i" if fold else b"e") + literal for literal, fold in zip(literals, caseless, strict=True)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hyperscan_is_installed() -> bool:
    """Return whether this platform has hyperscan."""
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return False
    return True


def make_scanner(
    literals: Sequence[bytes], caseless: Sequence[bool], cache: DatabaseCache | None = None, *, engine: str = "auto"
) -> Scanner:
    """Return a scanner. ``engine`` is ``auto`` (hyperscan if it is installed), ``hyperscan`` or ``polars``."""
    if engine == "hyperscan" or (engine == "auto" and hyperscan_is_installed()):
        return HyperscanScanner(literals, caseless, cache)
    return PolarsScanner(literals, caseless)
