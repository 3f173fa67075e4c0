"""Patterns as a search needs them: what may follow a match at the end of a pattern is left out.

Whether ``-k\\s\\w{1,64}(?: -p)?`` occurs in a text is decided by ``-k\\s\\w``. Rust's engine takes 15 milliseconds to build the first form,
because ``\\w`` is large; polars keeps only a few patterns that were built.
"""

from __future__ import annotations

import functools
import re

#: With this flag a pattern may have comments and blanks that mean nothing.
_VERBOSE = re.compile(r"\(\?[a-zA-Z-]*x")
_MAY_BE_MISSING = re.compile(r"(?:\?|\*|\{0,\d*\})\??")
_REPEATED = re.compile(r"\{(\d+),\d*\}\??")
_CLASSES = frozenset("wWdDsS")


@functools.lru_cache(maxsize=1024)
def shortened(pattern: str) -> str:
    """Return a pattern, of Rust's, that is found in the same texts; not at the same places in them."""
    if _VERBOSE.search(pattern):
        return pattern
    while True:
        shorter = _without_end(pattern)
        if shorter is None:
            return pattern
        pattern = shorter


def _without_end(pattern: str) -> str | None:
    """Return a pattern without what need not follow at its end; None if there is no such thing."""
    groups: list[int] = []
    kind, begin, place = "", 0, 0  # of the last piece, and the next position
    while place < len(pattern):
        letter = pattern[place]
        if letter in "{?*" and kind:
            shorter = _shorter(pattern, kind, begin, place)
            if shorter is not None:
                return shorter
        kind, begin, end = "", place, place + 1
        if letter == "\\":
            kind, end = "class" if pattern[place + 1 : place + 2] in _CLASSES else "", place + 2
        elif letter == "[":
            end = _end_of_class(pattern, place)
        elif letter == "(":
            groups.append(place)
        elif letter == ")" and groups:
            kind, begin = "group", groups.pop()
        place = end
    return None


def _shorter(pattern: str, kind: str, begin: int, end: int) -> str | None:
    """Return a pattern whose last part is repeated, with as few of it as there must be; None if it is not the last part."""
    repetition = pattern[end:]
    if kind == "group" and _MAY_BE_MISSING.fullmatch(repetition):
        return pattern[:begin]
    found = _REPEATED.fullmatch(repetition)
    if kind != "class" or found is None:
        return None
    least = int(found[1])
    if least == 0:
        return pattern[:begin]
    return pattern[:end] + (f"{{{least}}}" if least > 1 else "")


def _end_of_class(pattern: str, place: int) -> int:
    """Return the place behind the class of characters that begins here."""
    depth, at = 0, place
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            depth += 1
            at += pattern[at + 1 : at + 2] == "^"
            at += pattern[at + 1 : at + 2] == "]"
        elif letter == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(pattern)
