"""PATTERN with groups and alternatives as instructions: ``(A | B C)+ D``, ``PERMUTE(A, B)``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from headrace_sql.operators.match_groups import Program

_TOKEN = re.compile(r"\s*(?:(PERMUTE\b)|([A-Za-z_]\w*)|(\{\s*\d*\s*(?:,\s*\d*\s*)?\})|(.))", re.I | re.S)
_STEPS_MAX = 2_000
_PERMUTED_MAX = 5

#: ("row", variable), ("all", parts), ("one", alternatives), ("times", part, least, most, greedy).
Tree = tuple[object, ...]


def needs_groups(text: str) -> bool:
    """Return whether a pattern has alternatives, groups with a quantifier, PERMUTE, or a variable twice."""
    names = re.findall(r"[A-Za-z_]\w*", text)
    return bool(re.search(r"\||\)\s*[*+?{]|\bPERMUTE\b", text, re.I)) or len(set(names)) < len(names)


def program(text: str, named: Callable[[str], str], fail: Callable[[str], Exception]) -> Program:
    """Return the instructions of a pattern. ``named``: the variable that a word means; ``fail``: the error with a reason."""
    reader = _Reader(text, named, fail)
    tree = reader.alternatives()
    if reader.token is not None:
        raise fail(f"{reader.token!r} is not expected")
    if _may_be_empty(tree):
        raise fail("it matches no row at all: a variable must stand there at least once")
    code: list[tuple[object, ...]] = []
    _emit(tree, code, fail)
    return Program(" ".join(text.split()), (*code, ("match",)))


class _Reader:
    def __init__(self, text: str, named: Callable[[str], str], fail: Callable[[str], Exception]) -> None:
        self._tokens = [found[0].strip() for found in _TOKEN.finditer(text) if found[0].strip()]
        self._at = 0
        self._named = named
        self._fail = fail

    @property
    def token(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, wanted: str) -> None:
        if self.token != wanted:
            raise self._fail(f"expected {wanted} " + (f"before {self.token!r}" if self.token else "at the end"))
        self._at += 1

    def alternatives(self) -> Tree:
        found = [self._sequence()]
        while self.token == "|":
            self._at += 1
            found.append(self._sequence())
        return found[0] if len(found) == 1 else ("one", tuple(found))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.token is not None and self.token not in ("|", ")", ","):
            parts.append(self._quantified())
        if not parts:
            raise self._fail("a variable is missing")
        return parts[0] if len(parts) == 1 else ("all", tuple(parts))

    def _quantified(self) -> Tree:
        part, word = self._primary(), self.token
        if word is None or not (word in ("*", "+", "?") or word.startswith("{")):
            return part
        self._at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(word, (0, 0))
        if word.startswith("{"):
            low, comma, high = word.strip("{} ").partition(",")
            least = int(low or 0)
            most = (int(high) if high.strip() else None) if comma else least
        if most is not None and (most < least or most == 0):
            raise self._fail(f"{word} is not a number of rows")
        greedy = self.token != "?"
        self._at += not greedy
        return ("times", part, least, most, greedy)

    def _primary(self) -> Tree:
        word = self.token or ""
        if word == "(":
            self._at += 1
            made = self.alternatives()
            self._take(")")
            return made
        if word.upper() == "PERMUTE":
            self._at += 1
            return self._permuted()
        if not re.fullmatch(r"[A-Za-z_]\w*", word):
            raise self._fail(f"{word!r} is not supported")
        self._at += 1
        return ("row", self._named(word))

    def _permuted(self) -> Tree:
        self._take("(")
        parts = [self.alternatives()]
        while self.token == ",":
            self._at += 1
            parts.append(self.alternatives())
        self._take(")")
        if len(parts) > _PERMUTED_MAX:
            raise self._fail(f"PERMUTE takes {_PERMUTED_MAX} parts at most")
        return ("one", tuple(("all", each) for each in itertools.permutations(parts)))


def _may_be_empty(tree: Tree) -> bool:
    kind = tree[0]
    if kind == "row":
        return False
    if kind == "times":
        return tree[2] == 0 or _may_be_empty(tree[1])  # type: ignore[arg-type]
    parts: Sequence[Tree] = tree[1]  # type: ignore[assignment]
    return any(map(_may_be_empty, parts)) if kind == "one" else all(map(_may_be_empty, parts))


def _emit(tree: Tree, code: list[tuple[object, ...]], fail: Callable[[str], Exception]) -> None:
    if len(code) > _STEPS_MAX:
        raise fail("it is too long")
    kind = tree[0]
    if kind == "row":
        code.append(("row", tree[1]))
    elif kind == "all":
        for part in tree[1]:  # type: ignore[attr-defined]
            _emit(part, code, fail)
    elif kind == "one":
        _emit_one(tree[1], code, fail)  # type: ignore[arg-type]
    else:
        _emit_times(tree, code, fail)


def _emit_one(parts: Sequence[Tree], code: list[tuple[object, ...]], fail: Callable[[str], Exception]) -> None:
    ends = []
    for part in parts[:-1]:
        split = len(code)
        code.append(())
        _emit(part, code, fail)
        ends.append(len(code))
        code.append(())
        code[split] = ("split", split + 1, len(code))
    _emit(parts[-1], code, fail)
    for end in ends:
        code[end] = ("jump", len(code))


def _emit_times(tree: Tree, code: list[tuple[object, ...]], fail: Callable[[str], Exception]) -> None:
    _, part, least, most, greedy = tree
    assert isinstance(part, tuple)
    assert isinstance(least, int)

    def split(at: int, out: int) -> tuple[object, ...]:
        return ("split", at + 1, out) if greedy else ("split", out, at + 1)

    for _ in range(least):
        _emit(part, code, fail)
    if most is None:
        at = len(code)
        code.append(())
        _emit(part, code, fail)
        code.append(("jump", at))
        code[at] = split(at, len(code))
        return
    assert isinstance(most, int)
    places = []
    for _ in range(most - least):
        places.append(len(code))
        code.append(())
        _emit(part, code, fail)
    for at in places:
        code[at] = split(at, len(code))
