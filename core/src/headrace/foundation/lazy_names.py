"""Names of a package that are imported when they are first used, so that importing the package itself costs little."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` (PEP 562) for a package, from its names by their module.

    Called once, in the package's ``__init__``. The names are also imported there under ``TYPE_CHECKING``, for type checkers.
    """
    home = {name: module for module, names in modules.items() for name in names}

    def look_up(name: str) -> Any:
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def all_names() -> list[str]:
        return sorted([*vars(sys.modules[package]), *home])

    return sorted(home), look_up, all_names
