"""Estimates how wide a text will be, without using a font.

The viewer's font is not known, so these are the widths of DejaVu Sans, which is wider than most fonts. A text may be
narrower than its box, but it does not cross the edge of the box.
"""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import east_asian_width

_NARROW = frozenset("iljtfr.,:;'|!()[]{}I \"`-/\\")
_WIDE = frozenset("mwMW@%&→…")
#: Advance of a character of the fixed-width font, in em.
_MONOSPACE = 0.602


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return about how wide a proportional text of a font size in pixels is, in pixels."""
    em = sum(map(_advance, text))
    return em * size * (1.1 if bold else 1.0)


def monospace_width(text: str, size: float) -> float:
    """Return how wide a text in a fixed-width font is, in pixels."""
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text) * _MONOSPACE * size


def fitted(text: str, room: float, measure: Callable[[str], float]) -> str:
    """Return the text, cut with an ellipsis if need be so that ``measure`` gives at most ``room``."""
    if measure(text) <= room:
        return text
    end = len(text)
    while end and measure(text[:end] + "…") > room:
        end -= 1
    return text[:end].rstrip() + "…"


def _advance(sign: str) -> float:
    if sign in _NARROW:
        return 0.38
    if sign in _WIDE:
        return 0.95
    if east_asian_width(sign) in "WF":
        return 1.0
    return 0.7 if sign.isupper() else 0.63
