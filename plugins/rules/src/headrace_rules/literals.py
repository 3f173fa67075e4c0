"""Finds the texts that a value must contain for a pattern to match. The scanner looks for these texts.

A pattern gives *candidates*. A candidate is a set of literals. Every text that the pattern matches contains at least one
of them. So a scan for the literals of one candidate finds all matches, and also some texts that do not match. If a pattern
gives no candidate, nothing is known about the texts that it matches.

Regular expressions are those of headrace_columnar.regular_expressions: Rust's syntax, or that of Python's ``re`` where a
pattern needs look-around or back references. The parser here understands only a part of this syntax. For a pattern with
anything else it gives no candidates, but the pattern stays valid.
"""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


class Fold(enum.Enum):
    """How letters of the text are compared with those of a literal."""

    EXACT = "exact"
    #: The text in lower case (``lower``, ILIKE).
    LOWER = "lower"
    #: The text in upper case.
    UPPER = "upper"
    #: Without regard to case, as regular expressions have it (``(?i)``).
    ANY = "any"


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """A text to look for. ``folded``: without regard to case; then it has only characters whose case the scanner understands.

    ``first``, ``last``: the text that is searched begins, or ends, with it.
    """

    text: str
    folded: bool = False
    first: bool = False
    last: bool = False


Candidate = frozenset[Literal]

#: Literals are cut to so many characters. That is selective enough, and the whole condition is verified anyway.
LENGTH_MAX = 48
#: A candidate of more literals than this is not worth scanning for.
ALTERNATIVES_MAX = 64

#: For each way to compare: characters outside of ASCII that can stand for ASCII letters, and those letters. Where a text has such
#: a character, no scan for a literal with one of the letters decides.
GUARDS: Mapping[Fold, Mapping[str, str]] = {
    Fold.EXACT: {},
    Fold.LOWER: {"\u212a": "k", "\u0130": "i"},
    Fold.ANY: {"\u212a": "k", "\u0130": "i", "\u0131": "i", "\u017f": "s"},
    Fold.UPPER: {
        "\u00df": "s", "\u0131": "i", "\u0149": "n", "\u017f": "s", "\u01f0": "j", "\u1e96": "h", "\u1e97": "t",
        "\u1e98": "w", "\u1e99": "y", "\u1e9a": "a", "\ufb00": "f", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "fi",
        "\ufb04": "fl", "\ufb05": "st", "\ufb06": "st",
    },
}  # fmt: skip
#: Kinds of letters and marks that may have a case, now or in another version of Unicode.
_CASED = ("Lu", "Ll", "Lt", "Lm", "Nl", "Mn", "Mc", "Me", "Cn")


def guards_of(text: str, fold: Fold) -> list[str]:
    """Return the characters that can stand for a letter of the text."""
    letters = set(text.lower())
    return [guard for guard, kept in GUARDS[fold].items() if not letters.isdisjoint(kept)]


def has_no_case(character: str) -> bool:
    """Return whether a character equals no other one, also without regard to case."""
    return (
        unicodedata.category(character) not in _CASED
        and character == character.lower() == character.upper() == character.casefold()
    )


def caseless_runs(text: str) -> list[str]:
    """Return the parts of a text that can be found by a scanner that ignores case for ASCII letters only, the longest first."""
    runs: list[str] = []
    current = ""
    for character in text:
        if character.isascii() or has_no_case(character):
            current += character
        else:
            runs.append(current)
            current = ""
    runs.append(current)
    return sorted((run for run in runs if run), key=len, reverse=True)


def literal_candidates(text: str, *, folded: bool = False, first: bool = False, last: bool = False) -> list[Candidate]:
    """Return the candidates of a text that must be contained as it is, or (``folded``) without regard to case.

    ``first``, ``last``: at the beginning, at the end.
    """
    # A scanner takes a zero byte as the end of a literal.
    parts = [part for part in text.split("\0") if part]
    if folded:
        parts = [run for part in parts for run in caseless_runs(part)]
    if parts == [text]:
        return windows(text, folded, first, last)
    return [candidate for part in parts for candidate in windows(part, folded, False, False)]


def windows(text: str, folded: bool, first: bool, last: bool) -> list[Candidate]:
    """Return the candidates of a text that a scanner can look for as it is: itself, or its beginning and its end if it is long."""
    if len(text) <= LENGTH_MAX:
        return [frozenset({Literal(text, folded, first, last)})]
    return [
        frozenset({Literal(text[:LENGTH_MAX], folded, first, False)}),
        frozenset({Literal(text[-LENGTH_MAX:], folded, False, last)}),
    ]


def size(candidate: Candidate) -> tuple[int, int]:
    """Return a measure of how selective a candidate is likely to be, before anything is known of the traffic."""
    return min(len(literal.text) for literal in candidate), -len(candidate)


def best(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the candidate that is likely to be the most selective."""
    return max(candidates, key=size, default=None)


def any_of(branches: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Return the candidate of an alternation, made of the best one of each branch; none if a branch has none
    or if there are too many literals.
    """
    chosen = [best(branch) for branch in branches]
    merged: set[Literal] = set()
    for candidate in chosen:
        if candidate is None:
            return []
        merged |= candidate
    return [frozenset(merged)] if merged and len(merged) <= ALTERNATIVES_MAX else []


class _UnknownError(Exception):
    """The pattern holds something whose meaning is not known here."""


def regex_candidates(pattern: str, *, python: bool = False) -> list[Candidate]:
    """Return the candidates of a regular expression that is searched for anywhere in a text.

    ``python``: the pattern has the syntax of Python's ``re``, and backtracks. The pattern must be valid in its engine.
    """
    try:
        return _Parser(pattern, python=python).parse()
    except (_UnknownError, IndexError, RecursionError):
        return []


@dataclass(slots=True)
class _Sequence:
    """What is known of a concatenation so far: complete candidates, and the literal that further characters may extend."""

    candidates: list[Candidate] = field(default_factory=list)
    run: str = ""
    folded: bool = False

    def add(self, text: str, *, folded: bool) -> None:
        if folded != self.folded:
            self.end_run()
            self.folded = folded
        self.run += text

    def end_run(self) -> None:
        self.candidates += literal_candidates(self.run, folded=self.folded)
        self.run = ""


class _Parser:
    """A recursive-descent parser of one pattern."""

    def __init__(self, pattern: str, *, python: bool) -> None:
        self._pattern = pattern
        self._python = python
        self._at = 0

    def parse(self) -> list[Candidate]:
        found = self._alternation(folded=False)
        if self._at < len(self._pattern):
            raise _UnknownError
        return found

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self) -> str:
        character = self._pattern[self._at]
        self._at += 1
        return character

    def _alternation(self, *, folded: bool) -> list[Candidate]:
        """Parse up to the closing bracket or the end. Flags that one branch sets also hold in the branches after it."""
        branches = []
        sequence = _Sequence()
        self._folded = folded
        while True:
            if self._at == len(self._pattern) or self._peek(")"):
                sequence.end_run()
                branches.append(sequence.candidates)
                return branches[0] if len(branches) == 1 else any_of(branches)
            if self._peek("|"):
                self._at += 1
                sequence.end_run()
                branches.append(sequence.candidates)
                sequence = _Sequence()
                continue
            self._element(sequence)

    def _element(self, sequence: _Sequence) -> None:
        """Parse one element with its quantifiers into the sequence."""
        character = self._pattern[self._at]
        text: str | None = None
        inner: list[Candidate] = []
        if character == "(":
            group = self._group()
            if group is None:
                return
            inner = group
        elif character == "[":
            self._skip_class()
        elif character == "\\":
            taken = self._escape()
            if taken == "":
                return
            text = taken
        elif character in "^$":
            self._at += 1
            return
        elif character == ".":
            self._at += 1
        elif character in "*+?{":
            raise _UnknownError
        else:
            text = self._take()
        least, repeated = self._quantifiers()
        if text is not None and least:
            sequence.add(text, folded=self._folded)
        elif least:
            sequence.end_run()
            sequence.candidates += inner
        if repeated:
            sequence.end_run()

    def _quantifiers(self) -> tuple[bool, bool]:
        """Parse quantifiers. Return whether the element must occur, and whether it has a quantifier, which ends a literal."""
        least, repeated = True, False
        while self._at < len(self._pattern) and self._pattern[self._at] in "*+?{":
            character = self._take()
            repeated = True
            if character in "*?":
                least = False
            elif character == "{":
                end = self._pattern.index("}", self._at) if "}" in self._pattern[self._at :] else -1
                bounds = self._pattern[self._at : end].replace(" ", "") if end >= 0 else ""
                if not bounds or not all(part.isdigit() or not part for part in bounds.split(",")):
                    raise _UnknownError
                self._at = end + 1
                first = bounds.split(",")[0]
                least = least and first not in ("", "0") and int(first) > 0
            if self._peek("?"):
                self._at += 1  # lazy: the pattern still matches the same texts
        return least, repeated

    def _group(self) -> list[Candidate] | None:
        """Parse a group. Return None for a group without width (flags, comments, look-around), which does not end a literal."""
        self._at += 1
        folded = self._folded
        zero_width = False
        if self._peek("?"):
            self._at += 1
            if self._peek("#"):
                self._at = self._pattern.index(")", self._at) + 1
                return None
            if self._peek(":") or self._peek(">"):
                self._at += 1
            elif any(self._peek(sign) for sign in ("=", "!", "<=", "<!")):
                self._at += 2 if self._peek("<") else 1
                zero_width = True
            elif self._peek("P=") or self._peek("("):
                raise _UnknownError
            elif self._peek("P<") or self._peek("<"):
                self._at = self._pattern.index(">", self._at) + 1
            else:
                inner_folded, ends = self._flags(folded)
                if ends:
                    self._folded = inner_folded
                    return None
                return self._closed(inner_folded, folded)
        found = self._closed(folded, folded)
        if zero_width:
            self._quantifiers()
            return None
        return found

    def _closed(self, inner_folded: bool, folded: bool) -> list[Candidate]:
        found = self._alternation(folded=inner_folded)
        if not self._peek(")"):
            raise _UnknownError
        self._at += 1
        self._folded = folded
        return found

    def _flags(self, folded: bool) -> tuple[bool, bool]:
        """Parse flags such as ``i)`` and ``s-i:``. Return the new fold, and whether ``)`` ends them: then no group follows."""
        on = True
        while True:
            character = self._take()
            if character in ":)":
                return folded, character == ")"
            if character == "-":
                on = False
            elif character == "i":
                folded = on
            elif character in "smU" and not (self._python and character == "U"):
                pass
            else:
                raise _UnknownError  # x changes the meaning of characters; other flags exist in one engine only

    def _skip_class(self) -> None:
        """Skip a character class. In Rust's syntax a class may contain classes; in Python's a ``[`` in a class is a character."""
        depth = 0
        while True:
            character = self._take()
            if character == "\\":
                self._at += 1
            elif character == "[" and (depth == 0 or not self._python):
                depth += 1
                if self._peek("^"):
                    self._at += 1
                if self._peek("]"):
                    self._at += 1
            elif character == "]":
                depth -= 1
                if depth == 0:
                    return

    def _escape(self) -> str | None:
        """Parse an escape. Return the character that it stands for, "" if it has no width, None for anything else."""
        self._at += 1
        character = self._take()
        if character in "dDwWsS":
            return None
        if character in "bBAzZ":
            if self._peek("{"):
                raise _UnknownError
            return ""
        if character in "ntrfva":
            return {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}[character]
        if character in "xuU":
            return self._code_point(character)
        if character in "<>" or character.isalnum() or not character.isascii():
            raise _UnknownError
        return character

    def _code_point(self, kind: str) -> str:
        if self._peek("{"):
            end = self._pattern.index("}", self._at)
            digits = self._pattern[self._at + 1 : end]
            self._at = end + 1
        else:
            count = {"x": 2, "u": 4, "U": 8}[kind]
            digits = self._pattern[self._at : self._at + count]
            self._at += count
            if len(digits) != count:
                raise _UnknownError
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise _UnknownError
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise _UnknownError
        return chr(code)
