"""How a mistake is planted: a piece of headrace is replaced by one that has it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

Mutation = Callable[[], AbstractContextManager[Any]]


def in_place_of(owner: Any, name: str, make: Callable[[Any], Any]) -> Mutation:
    """Return a mutation that replaces an attribute by what ``make`` makes of it."""

    def planted() -> AbstractContextManager[Any]:
        before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        made = make(before.__func__ if isinstance(before, staticmethod) else before)
        return patch.object(owner, name, staticmethod(made) if isinstance(before, staticmethod) else made)

    return planted
