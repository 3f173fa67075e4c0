"""Everything public says what it does: each name of ``headrace``, and each public method and property of its classes."""

from __future__ import annotations

import inspect
from typing import Any

import headrace as hr
import pytest

#: What is a value and not code: it is documented where its class is.
VALUES = {"EARLIEST", "LATEST", "hookimpl"}


def function_of(member: Any) -> Any:
    """Return the function behind a method or property; None for another member."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if inspect.isfunction(member) else None


def says_something(kind: type, name: str) -> bool:
    """Return whether a member has a docstring of its own, or overrides one that has."""
    members = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
    return any(getattr(function_of(member), "__doc__", None) for member in members)


@pytest.mark.parametrize("name", sorted(set(hr.__all__) - VALUES))
def test_each_public_name_and_its_members_have_docstrings(name: str) -> None:
    found = getattr(hr, name)
    text = inspect.getdoc(found)
    assert text, f"headrace.{name} says nothing"
    assert not text.startswith(f"{name}("), "the text is the one that dataclasses makes"
    if inspect.isclass(found):
        members = [each for each, member in vars(found).items() if not each.startswith("_") and function_of(member)]
        assert [each for each in members if not says_something(found, each)] == []
