"""Formats of dates and times: Java's pattern letters (``yyyy-MM-dd HH:mm:ss``), as Spark and Flink take them."""

from __future__ import annotations

import re

#: Java's letters to those of chrono, which polars uses: https://docs.rs/chrono/latest/chrono/format/strftime/
_LETTERS = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "y": "%-Y", "M": "%-m", "MM": "%m", "MMM": "%b", "MMMM": "%B",
    "L": "%-m", "LL": "%m", "LLL": "%b", "LLLL": "%B", "d": "%-d", "dd": "%d", "D": "%-j", "DDD": "%j",
    "H": "%-H", "HH": "%H", "h": "%-I", "hh": "%I", "m": "%-M", "mm": "%M", "s": "%-S", "ss": "%S",
    "SSS": "%3f", "SSSSSS": "%6f", "SSSSSSSSS": "%9f", "E": "%a", "EE": "%a", "EEE": "%a", "EEEE": "%A", "a": "%p",
    "Q": "%q", "q": "%q", "X": "%:z", "XX": "%z", "XXX": "%:z", "Z": "%z", "xx": "%z", "xxx": "%:z",
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", re.DOTALL)


class FormatError(ValueError):
    """A pattern with a letter that is not known; the text says which."""


def chrono_format(pattern: str) -> str:
    """Return the pattern in chrono's letters. Raises FormatError.

    ``Y`` (year of the week) is refused: it is nearly always a mistake for ``y``, and its weeks differ between systems.
    """
    out: list[str] = []
    position = 0
    for found in _TOKEN.finditer(pattern):
        if found.start() != position:
            break
        position = found.end()
        token = found[0]
        if token.startswith("'"):
            out.append((found[1].replace("''", "'") or "'").replace("%", "%%"))
        elif not token[0].isalpha():
            out.append(token.replace("%", "%%"))
        elif token in _LETTERS:
            out.append(_LETTERS[token])
        elif token.startswith("Y"):
            raise FormatError(f"{token!r} is the year of the week; write {token.lower()!r} for the calendar's year")
        else:
            raise FormatError(f"{token!r} is not a known letter of a format")
    if position != len(pattern):
        raise FormatError("a quote in the format is not closed")
    return "".join(out)


def has_zone(chrono: str) -> bool:
    """Say whether a translated pattern contains a zone."""
    return "%z" in chrono or "%:z" in chrono


def has_time(chrono: str) -> bool:
    """Say whether a translated pattern contains an hour."""
    return any(letter in chrono for letter in ("%H", "%-H", "%I", "%-I"))
