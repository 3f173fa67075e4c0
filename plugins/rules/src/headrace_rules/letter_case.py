"""The texts that become a given text in lower or upper case: a scanner that ignores only the case of ASCII letters must search for them.

The tables are made by the same function that changes the case of columns, so that they agree with it whatever version of
Unicode it has. They are made when the first text outside of ASCII is looked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import polars as pl

from headrace_rules.literals import LENGTH_MAX, Candidate, Fold, Literal, literal_candidates, windows

#: Characters behind these have no case: ideographs, tags and characters for private use.
_CASED_BELOW = 0x20000
#: A text whose letters can be written in more ways than this is looked for in part.
_SPELLINGS_MAX = 16


@dataclass(frozen=True, slots=True)
class _Table:
    #: The characters outside of ASCII that a character can come from, where that is not only itself.
    sources: Mapping[str, tuple[str, ...]]
    #: Characters that come from a part of another: they end what is looked for.
    borders: frozenset[str]


@cache
def _table(fold: Fold) -> _Table:
    every = [chr(code) for code in range(0x80, _CASED_BELOW) if not 0xD800 <= code < 0xE000]
    column = pl.Series(every)
    changed = (column.str.to_lowercase() if fold is Fold.LOWER else column.str.to_uppercase()).to_list()
    sources: dict[str, list[str]] = {}
    borders: set[str] = set()
    for character, made in zip(every, changed, strict=True):
        if made == character:
            continue
        sources.setdefault(character, [])  # it does not come from itself
        if len(made) == 1:
            sources.setdefault(made, []).append(character)
        else:
            borders.update(made)
    for character, found in sources.items():
        at = ord(character) - 0x80
        if at >= 0 and changed[at if at < 0xD800 - 0x80 else at - 0x800] == character:
            found.append(character)
    if fold is Fold.LOWER:
        sources.setdefault("ς", ["ς"]).append("Σ")  # at the end of a word
    spellings = {character: tuple(sorted(found)) for character, found in sources.items() if not character.isascii()}
    return _Table(spellings, frozenset(one for one in borders if not one.isascii()))


def changed_candidates(text: str, fold: Fold, *, first: bool = False, last: bool = False) -> list[Candidate]:
    """Return the candidates of a text that a column, in lower or upper case, must contain; ``first``, ``last``: at which end.

    ASCII letters come from ASCII letters, or from a few others that the scan looks for beside them (see ``trigger_plan``).
    """
    if text.isascii():
        return literal_candidates(text, folded=True, first=first, last=last)
    table = _table(fold)
    runs = [part for part in _split(text, table.borders | {"\0"}) if part]
    found: list[Candidate] = []
    longest = 0
    for run in runs:
        for plain in _split(run, frozenset(table.sources)):
            if plain:
                whole = plain == text
                found += windows(plain, True, first and whole, last and whole)
                longest = max(longest, len(plain))
    for run in runs:
        window = _window(run, table)
        if len(window) > longest and any(character in table.sources for character in window):
            spellings = itertools.product(*(table.sources.get(each, (each,)) for each in window))
            found.append(frozenset(Literal("".join(one), folded=True) for one in spellings))
    return [candidate for candidate in found if candidate]


def has_one_case(text: str, fold: Fold) -> bool:
    """Return whether only the text itself becomes the text in lower or upper case."""
    if any("a" <= letter.lower() <= "z" for letter in text if letter.isascii()):
        return False
    if text.isascii():
        return True
    table = _table(fold)
    return not any(letter in table.sources or letter in table.borders for letter in text)


def _split(text: str, at: frozenset[str]) -> Iterator[str]:
    """Yield the parts of a text between characters."""
    part = ""
    for character in text:
        if character in at:
            yield part
            part = ""
        else:
            part += character
    yield part


def _window(text: str, table: _Table) -> str:
    """Return the longest part of a text that can be written in few enough ways."""
    best = ""
    for begin in range(len(text)):
        ways, end = 1, begin
        while end < min(len(text), begin + LENGTH_MAX):
            ways *= max(1, len(table.sources.get(text[end], " ")))
            if ways > _SPELLINGS_MAX:
                break
            end += 1
        if end - begin > len(best):
            best = text[begin:end]
    return best
