"""Finds a text that every matching line contains. It is the pre-filter where hyperscan is not installed."""

from __future__ import annotations

from headrace_grok.tree import Group, Named, Node, Repeat, Sequence, Text


def required_text(node: Node) -> str | None:
    """Return the longest text that is in every match of a pattern; None if there is none."""
    found = max(_texts(node), key=len, default="")
    return found or None


def _texts(node: Node) -> list[str]:
    if isinstance(node, Text):
        return [node.text]
    if isinstance(node, Sequence):
        return [text for item in node.items for text in _texts(item)]
    if isinstance(node, Named):
        return _texts(node.item)
    if isinstance(node, Group) and node.kind in ("plain", "atomic", "exact case"):
        return _texts(node.item)
    if isinstance(node, Repeat) and node.least:
        return _texts(node.item)
    return []
