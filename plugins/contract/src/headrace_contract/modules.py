"""Finds modules that a new process cannot import by name: in pytest's importlib mode, test modules are not on sys.path."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any


def modules_by_file(kinds: Sequence[type]) -> dict[str, str]:
    """Return the files of those modules of the classes and their bases that a new process cannot import, by module name.

    These are mostly test modules.
    """
    found: dict[str, str] = {}
    for kind in kinds:
        for base in kind.__mro__:
            module = sys.modules.get(base.__module__)
            if isinstance(module, types.ModuleType) and getattr(module, "__file__", None) and not _importable(module):
                found[base.__module__] = str(module.__file__)
    return found


def _importable(module: types.ModuleType) -> bool:
    search: Any = None
    parts = module.__name__.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        spec = None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, search) if find_spec is not None else None
            if spec is not None:
                break
        if spec is None:
            return False
        search = spec.submodule_search_locations
    return spec is not None and (spec.origin is None or spec.origin == module.__file__ or spec.origin == "frozen"
                                 or spec.origin == "built-in")  # fmt: skip
