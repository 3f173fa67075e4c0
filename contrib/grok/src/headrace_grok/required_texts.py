"""Finds texts that every matching line contains. They are a pre-filter, which searches whole columns for them."""

from __future__ import annotations

from collections.abc import Sequence as Items

from headrace_grok.tree import Alternation, Group, Named, Node, Repeat, Sequence, Text

#: Texts of which a line that matches contains at least one.
Choice = tuple[str, ...]
_TEXTS_MAX = 16


def required_texts(node: Node) -> tuple[Choice, ...]:
    """Return the choices of a pattern: every text that it matches contains one text of each of them."""
    return tuple(dict.fromkeys(_choices(node)))


def strength(choice: Choice) -> int:
    """Return the length of the shortest text of a choice: the longer it is, the fewer other lines contain it."""
    return min(map(len, choice))


def _choices(node: Node) -> list[Choice]:
    if isinstance(node, Text):
        return [(node.text,)] if node.text else []
    if isinstance(node, Sequence):
        return [choice for item in node.items for choice in _choices(item)]
    if isinstance(node, Alternation):
        return _of_alternation([_choices(branch) for branch in node.branches])
    if isinstance(node, Named):
        return _choices(node.item)
    if isinstance(node, Group) and node.kind in ("plain", "atomic", "exact case"):
        return _choices(node.item)
    if isinstance(node, Repeat) and node.least:
        return _choices(node.item)
    return []


def _of_alternation(branches: Items[list[Choice]]) -> list[Choice]:
    if not all(branches):
        return []  # a branch without a text: nothing is required
    texts = tuple(sorted({text for choices in branches for text in max(choices, key=strength)}))
    return [texts] if len(texts) <= _TEXTS_MAX else []
