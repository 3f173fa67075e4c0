"""LIKE and searches for a text as Python functions of one row; see ``conditions``.

``lowered``: the slot has the text in lower case, as ILIKE compares it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace_columnar import patterns

#: Returns whether the condition holds in a row, given as the values of the slots; None where SQL says NULL.
Condition = Callable[[Sequence[Any]], bool | None]


def contains(slot: int, wanted: str) -> Condition:
    def contained(row: Sequence[Any], slot: int = slot, wanted: str = wanted) -> bool | None:
        value = row[slot]
        return None if value is None else wanted in value

    return contained


def starts(slot: int, wanted: str | tuple[str, ...]) -> Condition:
    def begun(row: Sequence[Any], slot: int = slot, wanted: str | tuple[str, ...] = wanted) -> bool | None:
        value = row[slot]
        return None if value is None else value.startswith(wanted)

    return begun


def ends(slot: int, wanted: str | tuple[str, ...]) -> Condition:
    def ended(row: Sequence[Any], slot: int = slot, wanted: str | tuple[str, ...] = wanted) -> bool | None:
        value = row[slot]
        return None if value is None else value.endswith(wanted)

    return ended


def equals(slot: int, wanted: Any) -> Condition:
    # The result for NULL is None, not False, because NOT of it must be NULL as well.
    def equal(row: Sequence[Any], slot: int = slot, wanted: Any = wanted) -> bool | None:
        value = row[slot]
        return value == wanted if value is not None else None

    return equal


def like(slot: int, pattern: str, escape: str | None, *, lowered: bool = False) -> Condition | None:
    """Return LIKE as a function; None for a pattern with ``_``. Raises PatternError for an invalid pattern."""
    return _of_parts(slot, _parts_of(pattern, escape, lowered))


def like_any(slot: int, given: Sequence[str], escape: str | None, *, lowered: bool = False) -> list[Condition] | None:
    """Return functions of which one must be true for LIKE ANY, as ``like`` does. Those that look at one place of a text are one."""
    values: list[str] = []
    prefixes: list[str] = []
    suffixes: list[str] = []
    found: list[Condition] = []
    for pattern in given:
        parts = _parts_of(pattern, escape, lowered)
        texts = [part for part in parts if part]
        if parts == texts:
            values += texts or [""]
        elif len(texts) == 1 and len(parts) == 2 and "" not in parts:
            (prefixes if parts[0] else suffixes).append(texts[0])
        else:
            made = _of_parts(slot, parts)
            if made is None:
                return None
            found.append(made)
    if suffixes:
        found.insert(0, ends(slot, tuple(suffixes) if len(suffixes) > 1 else suffixes[0]))
    if prefixes:
        found.insert(0, starts(slot, tuple(prefixes) if len(prefixes) > 1 else prefixes[0]))
    if values:
        found.insert(0, listed(slot, frozenset(values)) if len(values) > 1 else equals(slot, values[0]))
    return found


def listed(slot: int, items: frozenset[Any], elsewhere: bool | None = False) -> Condition:
    """Return IN as a function. ``elsewhere``: the result for a value that is not an item."""

    def is_listed(
        row: Sequence[Any], slot: int = slot, items: frozenset[Any] = items, elsewhere: bool | None = elsewhere
    ) -> bool | None:
        value = row[slot]
        return None if value is None else True if value in items else elsewhere

    return is_listed


def _parts_of(pattern: str, escape: str | None, lowered: bool) -> list[str | None]:
    parts = patterns.split_like(pattern, escape)
    return [patterns.lower(part) if part else part for part in parts] if lowered else parts


def _of_parts(slot: int, parts: Sequence[str | None]) -> Condition | None:
    """Return a function that is true if the literals occur one after the other."""
    if "" in parts:
        return None
    literals = [part for part in parts if part]
    if not parts or parts == literals:
        return equals(slot, literals[0] if literals else "")
    if len(literals) == 1 and len(parts) == 3:
        return contains(slot, literals[0])
    if len(literals) == 1:
        return starts(slot, literals[0]) if parts[0] else ends(slot, literals[0])
    prefix = literals.pop(0) if parts[0] else ""
    suffix = literals.pop() if parts[-1] else ""
    least = len(prefix) + len(suffix)

    def matched(row: Sequence[Any]) -> bool | None:
        value = row[slot]
        if value is None:
            return None
        end = len(value) - len(suffix)
        if len(value) < least or not value.startswith(prefix) or not value.endswith(suffix):
            return False
        at = len(prefix)
        for literal in literals:
            at = value.find(literal, at, end)
            if at < 0:
                return False
            at += len(literal)
        return True

    return matched
