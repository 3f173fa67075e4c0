"""What a grok expression is made of: a tree of literals, characters, repetitions, groups and references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as Of

Ranges = tuple[tuple[int, int], ...]

LAST_CHARACTER = 0x10FFFF

PositionKind = Of[
    "line begin", "line end", "text begin", "text end", "last line end", "word boundary", "no word boundary"
]
Manner = Of["greedy", "lazy", "possessive"]
GroupKind = Of["plain", "atomic", "ahead", "not ahead", "behind", "not behind", "any case", "exact case"]


@dataclass(frozen=True, slots=True)
class Text:
    """Literal characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of ranges of code points, or of a Unicode property such as ``\\p{L}``; negated: any other."""

    ranges: Ranges
    properties: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """A place between characters."""

    kind: PositionKind


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that follow each other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Alternatives, of which the first that matches is taken."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part that comes ``least`` to ``most`` times; None: any number."""

    item: Node
    least: int
    most: int | None
    manner: Manner = "greedy"


@dataclass(frozen=True, slots=True)
class Group:
    """A part in parentheses that captures nothing."""

    kind: GroupKind
    item: Node


@dataclass(frozen=True, slots=True)
class Named:
    """A reference (``%{INT:status:int}``) or a named capture. ``field``: what it captures; None: nothing."""

    label: str
    item: Node
    field: str | None = None
    type: str = "string"


@dataclass(frozen=True, slots=True)
class BackReference:
    """The text that the capture of this name has matched before."""

    field: str


Node = Text | Characters | Position | Sequence | Alternation | Repeat | Group | Named | BackReference


def children(node: Node) -> tuple[Node, ...]:
    """Return the parts directly below a node."""
    if isinstance(node, Sequence):
        return node.items
    if isinstance(node, Alternation):
        return node.branches
    if isinstance(node, Repeat | Group | Named):
        return (node.item,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it, in the order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def nested_repeats(node: Node) -> int:
    """Return how many repetitions are within each other at most."""
    most, pending = 0, [(node, 0)]
    while pending:
        current, depth = pending.pop()
        depth += isinstance(current, Repeat)
        most = max(most, depth)
        pending.extend((child, depth) for child in children(current))
    return most


def sequence(items: list[Node]) -> Node:
    """Return parts that follow each other as one node, neighbouring texts joined."""
    joined: list[Node] = []
    for item in items:
        last = joined[-1] if joined else None
        if isinstance(item, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + item.text)
        elif isinstance(item, Sequence):
            joined.extend(item.items)
        else:
            joined.append(item)
    return joined[0] if len(joined) == 1 else Sequence(tuple(joined))
