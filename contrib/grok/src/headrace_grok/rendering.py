"""Writes trees as regular expressions: for Rust's regex crate, for Python's ``regex`` package, for the pre-filter, and for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace_grok.characters import EVERY, in_any_case
from headrace_grok.tree import (
    Alternation,
    BackReference,
    Characters,
    Group,
    Named,
    Node,
    Position,
    PositionKind,
    Repeat,
    Sequence,
    Text,
    walk,
)

Target = Literal["rust", "python", "filter", "shown"]

_WORD = "[0-9A-Za-z_]"
#: Rust's ``\b`` looks at Unicode's letters unless it is told not to; Python's has no such switch within a pattern.
_PYTHON_BOUNDARY = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_PYTHON_NO_BOUNDARY = f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"
_POSITIONS: dict[Target, dict[PositionKind, str]] = {
    "rust": {
        "line begin": "(?m:^)", "line end": "(?m:$)", "text begin": r"\A", "text end": r"\z",
        "word boundary": r"(?-u:\b)", "no word boundary": r"(?-u:\B)",
    },
    "python": {
        "line begin": "(?m:^)", "line end": "(?m:$)", "text begin": r"\A", "text end": r"\Z",
        "last line end": r"(?=\n?\Z)", "word boundary": _PYTHON_BOUNDARY, "no word boundary": _PYTHON_NO_BOUNDARY,
    },
    # The flag MULTILINE gives ^ and $ their meaning. A filter without a position lets more lines through, which is
    # allowed.
    "filter": {
        "line begin": "^", "line end": "$", "text begin": "", "text end": "", "last line end": "",
        "word boundary": r"\b", "no word boundary": "",
    },
    "shown": {
        "line begin": "^", "line end": "$", "text begin": r"\A", "text end": r"\z", "last line end": r"\Z",
        "word boundary": r"\b", "no word boundary": r"\B",
    },
}  # fmt: skip
_GROUPS = {
    "plain": "(?:", "atomic": "(?>", "ahead": "(?=", "not ahead": "(?!", "behind": "(?<=", "not behind": "(?<!",
    "any case": "(?i:", "exact case": "(?-i:",
}  # fmt: skip
_ANY = Characters(EVERY)
_META = frozenset("\\.+*?()|[]{}^$#&-~")
_CLASS_META = frozenset("\\]^[-&~")
#: In a filter, a repetition whose maximum is above this has no maximum: maxima make the filter's automata large.
_FILTER_COUNT_MAX = 4


@dataclass
class Renderer:
    """Writes trees for one target. ``captures``: the field of each group that was written, in order."""

    target: Target
    capturing: bool = True
    #: Whether all repetitions are lazy.
    lazily: bool = False
    captures: list[Named] = field(default_factory=list)
    #: In a filter, each letter is written in both cases: hyperscan ignores case for fewer letters than the other
    #: engines.
    _any_case: bool = False

    def text(self, node: Node) -> str:
        """Return the node as a regular expression."""
        if isinstance(node, Text):
            if self._any_case:
                return "".join(_class(Characters(in_any_case(((ord(each), ord(each)),)))) for each in node.text)
            return node.text if self.target == "shown" else "".join(map(_escaped, node.text))
        if isinstance(node, Characters):
            if self._any_case and not node.negated:
                return _class(Characters(in_any_case(node.ranges), node.properties))
            return "." if self.target == "shown" and node == _ANY else _class(node)
        if isinstance(node, Position):
            return _POSITIONS[self.target][node.kind]
        if isinstance(node, Sequence):
            return "".join(self._part(item) for item in node.items)
        if isinstance(node, Alternation):
            return "|".join(map(self.text, node.branches))
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Named):
            return self._named(node)
        if isinstance(node, BackReference):
            return self._back_reference(node)
        return self._group(node)

    def _part(self, node: Node) -> str:
        """Return the node as one part of a sequence."""
        return f"(?:{self.text(node)})" if isinstance(node, Alternation) else self.text(node)

    def _repeat(self, node: Repeat) -> str:
        item = node.item
        inner = self.text(item)
        if not inner:
            return ""
        single = isinstance(item, Characters | Named | Group) or (isinstance(item, Text) and len(item.text) == 1)
        inner = inner if single else f"(?:{inner})"
        most = node.most
        if self.target == "filter" and most is not None and most > _FILTER_COUNT_MAX:
            most = None
        least = min(node.least, _FILTER_COUNT_MAX) if self.target == "filter" else node.least
        if node.least == most and least == node.least:
            return inner if least == 1 else f"{inner}{{{least}}}"
        short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
        count = short or f"{{{least},{'' if most is None else most}}}"
        if node.manner == "possessive":
            return inner + count + ("+" if self.target in ("python", "shown") else "")
        lazy = node.manner == "lazy" or self.lazily
        return inner + count + ("?" if lazy and self.target != "filter" else "")

    def _named(self, node: Named) -> str:
        if self.target == "shown":
            return node.label
        if self.target == "filter" or not self.capturing or node.field is None:
            return f"(?:{self.text(node.item)})"
        self.captures.append(node)
        return f"(?P<g{len(self.captures) - 1}>{self.text(node.item)})"

    def _back_reference(self, node: BackReference) -> str:
        if self.target == "shown":
            return f"\\k<{node.field}>"
        if self.target == "filter":
            return "(?s:.)*"
        for number, capture in enumerate(self.captures):
            if capture.field == node.field:
                return f"(?P=g{number})"
        raise ValueError(
            f"the back reference {node.field!r} refers to a group that comes later, or that does not exist"
        )

    def _group(self, node: Group) -> str:
        if self.target == "filter" and node.kind in ("ahead", "not ahead", "behind", "not behind"):
            return ""
        if self.target != "filter":
            return f"{_GROUPS[node.kind]}{self.text(node.item)})"
        before = self._any_case
        if node.kind in ("any case", "exact case"):
            self._any_case = node.kind == "any case"
        text = f"(?:{self.text(node.item)})"
        self._any_case = before
        return text


def is_linear(node: Node) -> bool:
    """Return whether Rust's engine can run the pattern: it has no look-around, no back reference, no atomic group and
    no possessive repetition.
    """
    for part in walk(node):
        if isinstance(part, BackReference):
            return False
        if isinstance(part, Group) and part.kind in ("atomic", "ahead", "not ahead", "behind", "not behind"):
            return False
        if isinstance(part, Repeat) and part.manner == "possessive":
            return False
        if isinstance(part, Position) and part.kind == "last line end":
            return False
    return True


def is_filterable(node: Node) -> bool:
    """Return whether the pre-filter supports the pattern. It does not support Unicode properties."""
    return not any(isinstance(part, Characters) and part.properties for part in walk(node))


def _escaped(character: str) -> str:
    return "\\" + character if character in _META else _coded(character)


def _in_class(code: int) -> str:
    character = chr(code)
    return "\\" + character if character in _CLASS_META else _coded(character)


def _coded(character: str) -> str:
    return character if character.isprintable() or ord(character) > 0xFF else f"\\x{ord(character):02x}"


def _class(node: Characters) -> str:
    if node == _ANY:
        return "(?s:.)"
    if not node.ranges and len(node.properties) == 1:
        return f"[^{node.properties[0]}]" if node.negated else node.properties[0]
    parts = [_in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}" for low, high in node.ranges]
    return f"[{'^' if node.negated else ''}{''.join([*parts, *node.properties])}]"
