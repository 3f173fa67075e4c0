"""Sets of characters as ranges of code points: what classes and escapes mean, the same for every engine.

``\\d``, ``\\w`` and ``\\s`` mean ASCII characters, as in the dialect of Logstash's patterns.
"""

from __future__ import annotations

from headrace_grok.tree import LAST_CHARACTER, Ranges

DIGITS: Ranges = ((0x30, 0x39),)
UPPER: Ranges = ((0x41, 0x5A),)
LOWER: Ranges = ((0x61, 0x7A),)
WORD: Ranges = (*DIGITS, *UPPER, (0x5F, 0x5F), *LOWER)
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
HEX: Ranges = (*DIGITS, (0x41, 0x46), (0x61, 0x66))
NEWLINE: Ranges = ((0x0A, 0x0A),)
EVERY: Ranges = ((0, 0xD7FF), (0xE000, LAST_CHARACTER))

#: What an escape such as ``\d`` means.
ESCAPES = {"d": DIGITS, "w": WORD, "s": SPACE, "h": HEX}
#: What ``[:name:]`` within a class means.
POSIX = {
    "alnum": (*DIGITS, *UPPER, *LOWER), "alpha": (*UPPER, *LOWER), "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)), "digit": DIGITS, "graph": ((0x21, 0x7E),), "lower": LOWER,
    "print": ((0x20, 0x7E),), "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)), "space": SPACE,
    "upper": UPPER, "word": WORD, "xdigit": HEX, "ascii": ((0x00, 0x7F),),
}  # fmt: skip
#: Characters that have an escape of their own.
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


#: Characters outside ASCII that engines treat as an ASCII letter when they ignore case: ſ, the Kelvin sign, İ and ı.
_FOLDED = {"s": 0x17F, "k": 0x212A, "i": 0x130}
_FOLDED_TOO = {"i": 0x131}


def in_any_case(ranges: Ranges) -> Ranges:
    """Return the characters that an engine matches with the ranges when it ignores case; the result may hold more
    characters.
    """
    if any(high >= 0x80 for _, high in ranges):
        return EVERY
    found = list(ranges)
    for code in (code for low, high in ranges for code in range(low, high + 1)):
        letter = chr(code)
        if letter.isalpha():
            found.append((ord(letter.swapcase()), ord(letter.swapcase())))
            found += [(each[letter.lower()],) * 2 for each in (_FOLDED, _FOLDED_TOO) if letter.lower() in each]
    return merged(found)


def merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Return ranges in order, without overlaps."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def others(ranges: Ranges) -> Ranges:
    """Return all characters that are in none of the ranges. Surrogates are no characters."""
    out: list[tuple[int, int]] = []
    begin = 0
    for low, high in merged([*ranges, (0xD800, 0xDFFF)]):
        if low > begin:
            out.append((begin, low - 1))
        begin = high + 1
    if begin <= LAST_CHARACTER:
        out.append((begin, LAST_CHARACTER))
    return tuple(out)
