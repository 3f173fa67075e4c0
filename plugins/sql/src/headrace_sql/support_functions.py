"""The function that a text of the page of support calls."""

from __future__ import annotations


def plus_one(number: int) -> int:
    """Return the next number."""
    return number + 1
